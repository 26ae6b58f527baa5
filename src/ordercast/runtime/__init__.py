"""Real nodes: the effects of a machine carried out on sockets, clocks and disks."""
