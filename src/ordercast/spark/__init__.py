"""Brings Spark up on whatever machine this is: Java, session, progress. What is done with it is elsewhere."""
