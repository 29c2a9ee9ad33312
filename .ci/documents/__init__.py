"""Generators of documentation, of diagrams and of the blocking client; ``make docs`` runs them."""
