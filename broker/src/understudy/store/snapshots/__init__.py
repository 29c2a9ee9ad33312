"""Shortening the log: snapshots, dropped segments, messages copied forward (ADR 0010)."""
