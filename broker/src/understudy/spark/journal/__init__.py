"""The data source ``understudy.journal``: segments and snapshots as tables and as a stream."""
