"""The fuzzer over Spark: seeds by the million, in rounds, of which the later ones look near what was rare."""
