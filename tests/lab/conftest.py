"""Fixtures: labs, kept for all tests of one module."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))
# Clients of other protocols that keep ledgers (``support``).
sys.path.append(str(Path(__file__).resolve().parents[2] / "broker" / "tests"))

from understudy_lab import image as images
from understudy_lab.errors import CannotRun
from understudy_lab.hosts import Lab

SCRATCH = Path(__file__).resolve().parents[2] / ".scratch" / "lab"
KEEP = "UNDERSTUDY_LAB_KEEP"
"""Set to leave the hosts running after the tests, and to use hosts that run."""

DEBIAN = "UNDERSTUDY_LAB_DEBIAN"
"""Release of Debian that the hosts have."""


@pytest.fixture(scope="module")
def lab(request: pytest.FixtureRequest) -> Iterator[Lab]:
    """Four hosts, or as many as the module says in ``HOSTS``, each with ``MEMORY_MIB``."""
    try:
        image = images.make(lambda line: print(line, file=sys.stderr), os.environ.get(DEBIAN, images.DEFAULT_RELEASE))
    except CannotRun as error:
        pytest.skip(str(error))
    name = os.environ.get(KEEP) or f"t{os.getpid()}"
    made = Lab(SCRATCH / name, name, image)
    try:
        made.create(getattr(request.module, "HOSTS", 4), getattr(request.module, "MEMORY_MIB", 512))
        yield made
    finally:
        if not os.environ.get(KEEP):
            made.destroy()
