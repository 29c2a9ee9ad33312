"""Wrong ports: the error of ``connect`` says what to change, in both clients and with real sockets."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import ssl
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from support.certificates import make
from support.targets import Target
from understudy.client import aio, sync
from understudy.errors import BrokerError


def connect_aio(url: str) -> None:
    async def connection() -> None:
        await aio.connect(url)

    asyncio.run(connection())


CLIENTS: dict[str, Callable[[str], object]] = {"sync": sync.connect, "aio": connect_aio}


@pytest.fixture
def error_of() -> Callable[[str, str], str]:
    def error(client: str, url: str) -> str:
        with pytest.raises(BrokerError) as raised:
            CLIENTS[client](f"{url}{'&' if '?' in url else '?'}callTimeout=5000")
        return str(raised.value)

    return error


@pytest.mark.parametrize("client", CLIENTS)
def test_tls_to_a_port_without_it(client: str, broker: Target, error_of: Callable[[str, str], str]) -> None:
    assert "does that port speak TLS?" in error_of(client, f"{broker.url}?sslEnabled=true&trustAll=true")


@pytest.mark.parametrize("client", CLIENTS)
def test_the_port_of_the_management(client: str, broker: Target, error_of: Callable[[str, str], str]) -> None:
    port = broker.node.http_port  # type: ignore[union-attr]  # ours, not Artemis
    assert "is that the port of the management?" in error_of(client, f"tcp://127.0.0.1:{port}")


@pytest.mark.parametrize("client", CLIENTS)
def test_a_port_that_refuses_as_that_of_a_passive_node(client: str, error_of: Callable[[str, str], str]) -> None:
    with socket.socket() as bound:
        bound.bind(("127.0.0.1", 0))
        text = error_of(client, f"tcp://127.0.0.1:{bound.getsockname()[1]}")
    assert "a passive node opens no port" in text
    assert text.count("127.0.0.1") == 2, "the list of places, and the place of the last error"


@pytest.mark.parametrize("client", CLIENTS)
def test_a_port_with_tls_without_it(client: str, tmp_path: Path, error_of: Callable[[str, str], str]) -> None:
    pem = make().write(tmp_path / "server.pem")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(pem)
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def serve() -> None:
            connection, _ = listener.accept()
            with connection, contextlib.suppress(OSError):
                context.wrap_socket(connection, server_side=True)

        thread = threading.Thread(target=serve)
        thread.start()
        assert "sslEnabled=true asks for TLS" in error_of(client, f"tcp://127.0.0.1:{listener.getsockname()[1]}")
        thread.join()


def test_the_package_can_be_run_as_a_module() -> None:
    done = subprocess.run([sys.executable, "-m", "understudy", "--version"], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0
    assert "understudy" in done.stdout
