"""Arbitrary and mutated bytes against everything that reads bytes (ADR 0016): ``python -m fuzz --help``.

Not here: what one named attack must not achieve (``integration/test_attacks_*``, docs/operate/security.md).
"""
