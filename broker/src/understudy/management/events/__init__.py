"""Notifications, message counters and reports of an active node."""
