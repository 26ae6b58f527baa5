"""The Totem single-ring protocol (seed 000), as one pure machine."""
