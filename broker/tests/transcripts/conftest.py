"""The option that rewrites transcripts."""

from __future__ import annotations

import pytest


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--rewrite-transcripts",
        action="store_true",
        help="write the output of today into the transcripts instead of comparing it",
    )


@pytest.fixture
def rewrite(request: pytest.FixtureRequest) -> bool:
    """Whether transcripts are rewritten."""
    return bool(request.config.getoption("--rewrite-transcripts"))
