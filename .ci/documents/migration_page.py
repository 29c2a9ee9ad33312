"""Prints docs/operate/from-artemis.md: ``python -m documents.migration_page``."""

from __future__ import annotations

from understudy.migration.report import page

if __name__ == "__main__":
    print(page(), end="")
