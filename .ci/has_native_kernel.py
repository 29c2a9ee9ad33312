#!/usr/bin/env python3
"""Exit code 0 where the native kernel (ADR 0034) can be used; 77 and the reason where it cannot."""

from __future__ import annotations

import sys

from understudy.kernel import load_native

if __name__ == "__main__":
    try:
        load_native()
    except ImportError as reason:
        print(f"{reason}: every part runs with the Python twin already")
        sys.exit(77)
