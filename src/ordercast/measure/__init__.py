"""Measuring real groups: network namespaces, load, figures, and whether the order was equal."""
