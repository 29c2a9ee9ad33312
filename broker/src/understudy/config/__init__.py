"""broker.xml as frozen dataclasses. Reading order: ``schema``, ``reading``, ``model``."""
