"""Protocols: translate packets to calls of sessions and back."""
