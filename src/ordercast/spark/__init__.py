"""Brings Spark up on whatever machine this is: Java, session, progress. What is done with it is elsewhere."""

from ordercast.spark.java import java_home
from ordercast.spark.sessions import session

__all__ = ["java_home", "session"]
