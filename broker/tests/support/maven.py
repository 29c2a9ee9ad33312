"""Maven, which brings the Java clients that tests run."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest


def maven(*arguments: str, cwd: Path) -> None:
    """Run Maven in a directory; skips, saying why, where there is none or its repository does not answer."""
    if shutil.which("mvn") is None:
        pytest.skip("Maven is not installed")
    result = subprocess.run(["mvn", "-q", "-B", *arguments], cwd=cwd, capture_output=True, text=True, timeout=600)
    if result.returncode:
        text = result.stdout + result.stderr
        if "Could not transfer" in text or "Unknown host" in text or "Could not resolve" in text:
            pytest.skip(f"Maven cannot reach its repository: {text[-300:]}")
        pytest.fail(f"mvn {' '.join(arguments)}: {text[-2000:]}")
