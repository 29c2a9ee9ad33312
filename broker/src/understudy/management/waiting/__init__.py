"""Reasons why messages wait in a queue."""
