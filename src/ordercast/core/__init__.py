"""What every protocol machine stands on: the contract, identities, windows, packing, the wire."""
