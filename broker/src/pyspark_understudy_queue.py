"""The data source ``understudy.queue`` for Spark, which finds and registers modules with names like this one's."""

from understudy.spark.queue.source import QueueSource as DefaultSource

__all__ = ["DefaultSource"]
