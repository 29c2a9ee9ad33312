"""Spark pipelines over what brokers and their clients wrote down. Needs the extra ``spark``.

``session`` owns the settings, ``ledgers`` reads, ``audits`` holds ``DataFrame -> DataFrame``
functions without I/O, ``jobs`` puts them together. No Python code runs per row.
"""
