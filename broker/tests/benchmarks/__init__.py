"""Benchmarks: side by side in one run, ratios and medians; ``make bench`` prints the tables.

No test asserts a time: machines are noisy. ``docs/build/benchmarks.md`` keeps the figures with their commands.
"""
