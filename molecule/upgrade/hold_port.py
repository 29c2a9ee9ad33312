"""Listens on a port, so that a broker cannot, until it is killed; notes its process then.

hold_port.py ADDRESS PORT FILE
"""

from __future__ import annotations

import os
import signal
import socket
import sys
from pathlib import Path


def main() -> None:
    address, port, noted = sys.argv[1:]
    with socket.create_server((address, int(port))):
        Path(noted).write_text(f"{os.getpid()}\n")
        signal.pause()


if __name__ == "__main__":
    main()
