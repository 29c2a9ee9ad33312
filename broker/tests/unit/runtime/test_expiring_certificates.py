"""Certificates of acceptors that expire soon or have expired: the lines of the log, and the check for monitors."""

from __future__ import annotations

import logging
from pathlib import Path

import pytest

from support.certificates import make
from support.config import read
from understudy.cli.managing.checks import _left
from understudy.runtime.base.environment import SystemClock
from understudy.runtime.net.tls_acceptors import TlsAcceptors

ACCEPTOR = (
    "<acceptors><acceptor name='core'>tcp://127.0.0.1:61617?sslEnabled=true;keyStorePath={file};keyStoreType=PEM"
    "</acceptor></acceptors>"
)


@pytest.mark.parametrize(
    ("days", "logged", "text"),
    [
        (-1.5, [("ERROR", "certificate has expired")], "has expired"),
        (1.5, [("WARNING", "certificate expires soon")], "expires in 1 day"),
        (5.5, [("WARNING", "certificate expires soon")], "expires in 5 days"),
        (90, [], ""),
    ],
)
def test_the_log_names_a_certificate_that_ends(
    days: float, logged: list[tuple[str, str]], text: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    file = make(days=days).write(tmp_path / "server.pem")
    configuration = read(ACCEPTOR.format(file=file)).configuration
    with caplog.at_level(logging.INFO):
        TlsAcceptors(configuration, SystemClock()).read()
    assert [(each.levelname, each.message) for each in caplog.records] == logged
    assert all(vars(each)["detail"].endswith(text) for each in caplog.records)


def test_the_check_says_how_long_a_certificate_is_valid() -> None:
    assert [_left(days) for days in (12, 1, 0, -1, -2)] == [
        "12 days left", "1 day left", "0 days left", "expired 1 day ago", "expired 2 days ago",
    ]  # fmt: skip
