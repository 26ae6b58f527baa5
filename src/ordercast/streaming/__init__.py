"""The ordered log and Spark: read as a stream or a table, and written to, each row once."""
