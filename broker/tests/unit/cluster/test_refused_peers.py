"""Nodes with another cluster password are named, once a minute for each host."""

from __future__ import annotations

import pytest

from understudy.cluster.refused_peers import REPEATED_MS, RefusedPeers


def test_a_host_is_logged_once_a_minute_whatever_its_port(caplog: pytest.LogCaptureFixture) -> None:
    peers = RefusedPeers()
    for number, now_ms in enumerate((0, 500, 1_000, REPEATED_MS)):
        peers.note(f"192.0.2.1:{40_000 + number}", now_ms)
    peers.note("192.0.2.2:40000", 500)
    assert [vars(each)["peer"] for each in caplog.records] == ["192.0.2.1:40000", "192.0.2.1:40003", "192.0.2.2:40000"]
    assert {each.levelname for each in caplog.records} == {"WARNING"}
