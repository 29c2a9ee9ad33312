"""``python -m understudy``: the command line, as ``understudy``."""

from __future__ import annotations

from understudy.cli.main import main

if __name__ == "__main__":
    main()
