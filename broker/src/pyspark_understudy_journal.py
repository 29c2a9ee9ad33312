"""The data source ``understudy.journal`` for Spark, which finds and registers modules with names like this one's."""

from understudy.spark.journal.source import JournalSource as DefaultSource

__all__ = ["DefaultSource"]
