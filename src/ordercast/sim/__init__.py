"""Virtual time, networks and faults in which any machine runs."""
