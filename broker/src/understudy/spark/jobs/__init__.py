"""Jobs: read, transform, report."""
