"""Rows of the driver, synced files and HTML pages, which several jobs use."""
