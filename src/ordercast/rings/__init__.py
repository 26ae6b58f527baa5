"""Several Totem rings joined by gateways, in one order (001, "The Totem Multiple-Ring Protocol")."""
