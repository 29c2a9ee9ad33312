"""Stands in for the get-pip.py that ansible-test would download from a site that an isolated network cannot reach.

ansible-test looks for it in ~/.ansible/test/cache first; ``make collection-sanity`` puts it there. It makes pip from
the copy that Python carries, in a process of its own because ensurepip resets pip's configuration, then installs the
pinned versions that ansible-test names.
"""

from __future__ import annotations

import subprocess
import sys

subprocess.check_call([sys.executable, "-m", "ensurepip", "--default-pip"], stdout=subprocess.DEVNULL)
pins = [argument for argument in sys.argv[1:] if "==" in argument]
if pins:
    subprocess.check_call([sys.executable, "-m", "pip", "install", "--disable-pip-version-check", "--quiet", *pins])
