"""The auditor on Spark: for traces of many million events, and for many runs at once."""

from ordercast.audit.spark.engine import audit_on_spark, audited_on_spark

__all__ = ["audit_on_spark", "audited_on_spark"]
