"""How packets travel between nodes: lanes, UDP, segments, sealing, links, probes and waking."""
