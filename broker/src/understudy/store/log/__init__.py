"""The log: its records and segments, appending to it, following it, its end (docs/build/journal-format.md)."""
