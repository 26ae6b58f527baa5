"""Space-time drawings of a run, made from its trace alone: for the terminal and as SVG."""
