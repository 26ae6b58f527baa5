"""View synchrony (004 §4): who is in the group, agreed among them, and what is settled when that changes."""
