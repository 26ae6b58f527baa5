"""Levels of nodes (004 §3.3.2): a primary ring that orders, and lower rings that follow its order."""
