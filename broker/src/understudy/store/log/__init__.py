"""The log: its records and segments, appending to it, following it, and where it ends (docs/journal-format.md)."""
