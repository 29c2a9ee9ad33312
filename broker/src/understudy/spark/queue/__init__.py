"""The data source ``understudy.queue``: live queues of a broker, read and written."""
