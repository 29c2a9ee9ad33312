"""Log lines of refused logins: each names peer and reason, and guesses cannot fill the log."""

from __future__ import annotations

import logging
from typing import Any

import pytest

from understudy.errors import AuthenticationFailed
from understudy.security.refusal_log import PERIOD_MS, REMEMBERED_MAX, RefusalLog
from understudy.testing.manual_time import ManualTime

WRONG = AuthenticationFailed("user 'a' is unknown or the password is wrong")


def lines(caplog: pytest.LogCaptureFixture) -> list[dict[str, Any]]:
    return [vars(each) for each in caplog.records]


def test_a_refusal_names_user_peer_connection_and_reason(caplog: pytest.LogCaptureFixture) -> None:
    RefusalLog(ManualTime()).note("a", "10.0.0.9:1234", "c1", WRONG)
    (line,) = lines(caplog)
    assert (line["levelno"], line["msg"]) == (logging.WARNING, "login refused")
    assert (line["user"], line["peer"], line["connection"], line["reason"]) == ("a", "10.0.0.9:1234", "c1", str(WRONG))
    assert line["further_since_last_line"] == 0


def test_further_refusals_are_counted_in_the_next_line(caplog: pytest.LogCaptureFixture) -> None:
    clock = ManualTime()
    log = RefusalLog(clock)
    for port in range(50):
        log.note("a", f"10.0.0.9:{port}", "c", WRONG)
    assert len(lines(caplog)) == 1
    clock.advance(PERIOD_MS)
    log.note("a", "10.0.0.9:99", "c", WRONG)
    assert [each["further_since_last_line"] for each in lines(caplog)] == [0, 49]


def test_users_and_hosts_have_lines_of_their_own(caplog: pytest.LogCaptureFixture) -> None:
    log = RefusalLog(ManualTime())
    for user, peer in (("a", "10.0.0.9:1"), ("b", "10.0.0.9:2"), (None, "10.0.0.9:3"), ("a", "10.0.0.8:1")):
        log.note(user, peer, "c", WRONG)
    log.note("a", "[2001:db8::1]:5", "c", WRONG)
    log.note("a", "[2001:db8::2]:5", "c", WRONG)
    assert len(lines(caplog)) == 5, "the addresses of one IPv6 network are one host"


def test_the_number_of_remembered_users_is_limited(caplog: pytest.LogCaptureFixture) -> None:
    log = RefusalLog(ManualTime())
    for number in range(REMEMBERED_MAX + 1):
        log.note(f"user {number}", "10.0.0.9:1", "c", WRONG)
    caplog.clear()
    log.note(f"user {REMEMBERED_MAX}", "10.0.0.9:1", "c", WRONG)
    assert lines(caplog) == []
    log.note("user 0", "10.0.0.9:1", "c", WRONG)
    assert len(lines(caplog)) == 1, "the oldest was dropped"
