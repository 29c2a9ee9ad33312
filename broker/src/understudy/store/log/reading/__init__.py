"""Reading the log: its records, following a log that another node writes, its end, and damaged records."""
