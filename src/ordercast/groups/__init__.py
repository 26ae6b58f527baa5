"""Groups by name over any machine, and the API of an application: `Node` and `Group`."""
