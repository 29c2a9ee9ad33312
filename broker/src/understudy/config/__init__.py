"""broker.xml as frozen dataclasses. Reading order: ``grammar``, ``schema``, ``document``, ``reader``, ``model``."""
