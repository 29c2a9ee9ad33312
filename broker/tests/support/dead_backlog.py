"""Whether a client that loses its connection to a killed server can still reach the dying one.

The kernel closes the descriptors of a dying process one after the other. A client whose connection goes first and that
connects again at once is accepted by the kernel on behalf of a listener that no process will ever accept from.
"""

from __future__ import annotations

import os
import select
import signal
import socket
import sys

#: Connections of the server when it is killed.
CONNECTIONS = 32


def reconnects_to_the_dead(pid: int, port: int, connections: int = CONNECTIONS, first: bytes = b"") -> bool:
    """Kill the server ``pid`` with SIGKILL and connect as soon as one connection is lost; whether that was accepted.

    Args:
        pid: Listens on ``port`` of 127.0.0.1 and accepts.
        port: See ``pid``.
        connections: How many there are when it is killed.
        first: What each sends when it is connected.
    """
    clients = [socket.create_connection(("127.0.0.1", port), timeout=60) for _ in range(connections)]
    poll = select.poll()
    try:
        for client in clients:
            client.sendall(first)
            poll.register(client, select.POLLIN | select.POLLHUP | select.POLLERR)
        again = socket.socket()
        os.kill(pid, signal.SIGKILL)
        poll.poll(60_000)
        try:
            again.connect(("127.0.0.1", port))
        except OSError:
            return False
        finally:
            again.close()
        return True
    finally:
        for client in clients:
            client.close()


def serve(floor: int) -> None:
    """A server of plain sockets: prints its port, accepts, and waits to be killed."""
    from understudy.runtime.net.listening import bound_socket

    listening = bound_socket(socket.AF_INET, ("127.0.0.1", 0), floor)
    listening.setblocking(True)
    listening.listen(1024)
    print(listening.getsockname()[1], flush=True)
    accepted = []
    while True:
        accepted.append(listening.accept()[0])


if __name__ == "__main__":
    serve(int(sys.argv[1]))
