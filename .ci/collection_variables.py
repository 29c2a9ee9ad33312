#!/usr/bin/env python3
"""Write what is generated from the table of variables of the collection: defaults, argument specifications, a page.

PYTHONPATH=.scratch/collections .ci/collection_variables.py
"""

from __future__ import annotations

from pathlib import Path

from ansible_collections.understudy.broker.plugins.plugin_utils.variables import files, table

ROOT = Path(__file__).resolve().parents[1]


def main() -> None:
    for name, text in files(table()):
        path = ROOT / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
