"""Ports that several servers of a process share (ADR 0073)."""

from __future__ import annotations

from dataclasses import dataclass, field

import pytest

from understudy.config.model import AcceptorConfiguration
from understudy.runtime.net.endpoints import Endpoints
from understudy.wire.core.http_upgrade import UpgradeRefused


@dataclass(eq=False)
class Acceptor:
    server: str
    is_named: bool
    configuration: AcceptorConfiguration = field(default_factory=lambda: AcceptorConfiguration("web", "h", 80))
    took_over: int = 0
    is_open: bool = True

    def listen_for_all(self) -> None:
        self.took_over += 1


def test_one_listens_and_requests_find_their_server() -> None:
    endpoints, main, backup = Endpoints(), Acceptor("main", False), Acceptor("backup", True)
    assert endpoints.join(main)
    assert not endpoints.join(backup)
    for at in (main, backup):
        assert endpoints.find(at, None) is main
        assert endpoints.find(at, "main") is main
        assert endpoints.find(at, "backup") is backup
    endpoints.leave(main)
    assert backup.took_over == 1
    endpoints.leave(main)
    endpoints.leave(backup)
    assert endpoints.join(main), "the place is free again"


def test_unknown_and_inactive_servers_have_different_answers() -> None:
    endpoints, backup = Endpoints(), Acceptor("backup", True)
    endpoints.servers |= {"main", "backup"}
    endpoints.join(backup)
    for server, status in (("main", 503), (None, 503), ("other", 404)):
        with pytest.raises(UpgradeRefused) as refused:
            endpoints.find(backup, server)
        assert refused.value.status == status


def test_two_acceptors_for_the_same_requests_are_refused() -> None:
    endpoints = Endpoints()
    endpoints.join(Acceptor("main", False))
    with pytest.raises(OSError, match="'main'"):
        endpoints.join(Acceptor("second", False))
    with pytest.raises(OSError, match="'main'"):
        endpoints.join(Acceptor("main", True))


def test_another_place_or_a_free_port_is_not_shared() -> None:
    endpoints = Endpoints()
    assert endpoints.join(Acceptor("main", False))
    assert endpoints.join(Acceptor("second", False, AcceptorConfiguration("web", "h", 81)))
    for server in ("third", "fourth"):
        any_port = Acceptor(server, False, AcceptorConfiguration("web", "h", 0))
        assert endpoints.join(any_port)
        endpoints.leave(any_port)
        assert any_port.took_over == 0


def test_a_server_that_has_only_taken_its_place_gets_no_requests() -> None:
    """The acceptor of the server is bound, and its activation may still fail."""
    endpoints, main, backup = Endpoints(), Acceptor("main", False), Acceptor("backup", True, is_open=False)
    endpoints.servers |= {"main", "backup"}
    endpoints.join(main)
    endpoints.join(backup)
    with pytest.raises(UpgradeRefused) as refused:
        endpoints.find(main, "backup")
    assert refused.value.status == 503
    backup.is_open = True
    assert endpoints.find(main, "backup") is backup
