"""What must hold, checked from a trace alone."""
