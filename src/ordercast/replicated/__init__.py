"""Objects that are the same at every node that replicates them."""
