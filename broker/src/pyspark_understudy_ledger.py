"""The data source ``understudy.ledger`` for Spark, which finds and registers modules with names like this one's."""

from understudy.spark.ledger.source import LedgerSource as DefaultSource

__all__ = ["DefaultSource"]
