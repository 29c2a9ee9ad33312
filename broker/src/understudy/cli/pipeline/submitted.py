"""The program for ``spark-submit``: ``spark-submit [OPTIONS] .../understudy/cli/submitted.py JOB ...`` runs a job of
``understudy pipeline`` with the master and the settings of ``spark-submit``.
"""

from __future__ import annotations

import sys

# the directory of this file: its modules are no packages of their own, and one has the name of a standard one
sys.path = [each for each in sys.path if not each.endswith("understudy/cli")]

from understudy.cli.main import main  # noqa: E402  after the path is corrected

if __name__ == "__main__":
    sys.argv[1:1] = ["pipeline"]
    main()
