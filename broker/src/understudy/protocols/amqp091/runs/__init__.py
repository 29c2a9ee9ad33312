"""Frames of one channel that came together: publishes, and settlements of single deliveries (ADR 0193, 0207)."""
