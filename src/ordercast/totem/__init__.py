"""The Totem single-ring protocol (000), as one pure machine."""
