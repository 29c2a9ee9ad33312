"""ProxyCommand of ssh with ``ProxyUseFdpass yes``: connects inside the lab's namespace and hands the socket to ssh.

    proxy.py NAMESPACE ADDRESS PORT

Nothing stays between ssh and the host, so the connection is as fast as a direct one.
"""

from __future__ import annotations

import socket
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from understudy_lab.errors import LabError
from understudy_lab.network import connect

CONNECT_TIMEOUT_S = 5.0


def main() -> None:
    namespace, host, port = sys.argv[1:]
    try:
        connection = connect(namespace, host, int(port), CONNECT_TIMEOUT_S)
    except (LabError, OSError) as error:
        sys.exit(f"{host}:{port} in {namespace}: {error}")
    ssh = socket.socket(fileno=sys.stdout.fileno())
    socket.send_fds(ssh, [b"\0"], [connection.fileno()])


if __name__ == "__main__":
    main()
