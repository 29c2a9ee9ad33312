"""Messages to a service manager."""

from __future__ import annotations

import asyncio
import os
import socket
from pathlib import Path

import pytest

from understudy.runtime.process.systemd import Watchdog, notify


def test_notify_reaches_the_manager_and_does_nothing_without_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("NOTIFY_SOCKET", raising=False)
    notify("READY=1")
    address = tmp_path / "notify"
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as manager:
        manager.bind(str(address))
        manager.settimeout(60)
        monkeypatch.setenv("NOTIFY_SOCKET", str(address))
        notify("READY=1")
        assert manager.recv(100) == b"READY=1"
    notify("STOPPING=1")  # the manager is gone


def test_watchdog_beats_while_the_loop_turns(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    address = tmp_path / "notify"
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as manager:
        manager.bind(str(address))
        manager.setblocking(False)
        monkeypatch.setenv("NOTIFY_SOCKET", str(address))
        monkeypatch.setenv("WATCHDOG_USEC", "2000")
        monkeypatch.setenv("WATCHDOG_PID", str(os.getpid()))

        async def beats() -> None:
            loop = asyncio.get_running_loop()
            watchdog = Watchdog(loop)
            watchdog.start()
            for _ in range(3):
                assert await loop.sock_recv(manager, 100) == b"WATCHDOG=1"
            watchdog.stop()

        asyncio.run(asyncio.wait_for(beats(), 60))


def test_watchdog_of_another_process_is_not_ours(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WATCHDOG_USEC", "2000")
    monkeypatch.setenv("WATCHDOG_PID", "1")
    loop = asyncio.new_event_loop()
    watchdog = Watchdog(loop)
    watchdog.start()
    assert watchdog._timer is None
    loop.close()
