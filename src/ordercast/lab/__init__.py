"""The laboratory: sweeps of simulated runs over Spark, measured by the papers' definitions, and judged."""
