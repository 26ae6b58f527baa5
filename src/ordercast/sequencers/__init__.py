"""Orderers in which a sequencer gives messages their places (002, 003, 004): each runs inside a view."""
