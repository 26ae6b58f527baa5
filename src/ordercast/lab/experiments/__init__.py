"""The experiments, a module each: `totem_density` holds `EXPERIMENT`, which is named ``totem-density``.

A module that is added here is an experiment of ``ordercast lab``, and nothing else needs to know of it. What
several experiments share is in `ordercast.lab`.
"""
