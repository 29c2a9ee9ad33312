"""Measurements of the volume of a store on a host: syncs, the file server's clock, locks of other hosts.

The judgement is ``store_verdict``'s.
"""

from __future__ import annotations

import fcntl
import os
import struct
import subprocess
import sys
import time
import uuid
from pathlib import Path

BLOCK = b"\0" * 4096
LOCK_REQUEST = struct.pack("hhqqi4x", fcntl.F_WRLCK, os.SEEK_SET, 0, 0, 0)
SET_LOCK = 37
"""F_OFD_SETLK, the kind of lock that the broker takes; Python 3.11 has no name for it."""
HOLDER = """
import fcntl, os, sys, time
file = os.open(sys.argv[1], os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600)
fcntl.fcntl(file, int(sys.argv[3]), bytes.fromhex(sys.argv[4]))
print("locked", flush=True)
os.close(1)
time.sleep(float(sys.argv[2]))
os.unlink(sys.argv[1])
"""


def measure_syncs(path: Path, duration_s: float) -> tuple[list[float], int]:
    """Seconds of each write with its sync, and the clock of the host minus that of the file server in milliseconds.

    On a mount with the option ``sync`` the write itself waits for the server, and the sync after it has nothing to do.
    """
    probe = path / f".probe-{uuid.uuid4()}"
    descriptor = os.open(probe, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600)
    try:
        took: list[float] = []
        end = time.monotonic() + duration_s
        while not took or time.monotonic() < end:
            begun = time.perf_counter()
            os.pwrite(descriptor, BLOCK, 0)
            os.fsync(descriptor)
            took.append(time.perf_counter() - begun)
        before = time.time_ns()
        os.utime(descriptor)  # without a time, the file server's clock counts
        after = time.time_ns()
        skew_ns = (before + after) // 2 - os.fstat(descriptor).st_mtime_ns
    finally:
        os.close(descriptor)
        probe.unlink()
    return took, round(skew_ns / 1_000_000)


def hold_lock(path: Path, seconds: float) -> str:
    """Has a process of its own take the lock of a new file, and keep it for a while; the name of the file.

    Raises:
        OSError: it could not.
    """
    name = f".probe-lock-{uuid.uuid4()}"
    command = [sys.executable, "-c", HOLDER, str(path / name), str(seconds), str(SET_LOCK), LOCK_REQUEST.hex()]
    holder = subprocess.Popen(
        command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, start_new_session=True
    )
    if holder.stdout is None or holder.stderr is None or holder.stdout.readline() != b"locked\n":
        said = holder.stderr.read() if holder.stderr is not None else b""
        raise OSError(f"{path / name}: not locked: {said.decode(errors='replace')[-300:]}")
    return name


def sees_lock(file: Path) -> bool:
    """Whether the lock of the probe is refused, because another host holds it.

    Raises:
        OSError: the lock's file is missing or cannot be opened.
    """
    descriptor = os.open(file, os.O_RDWR | os.O_NOFOLLOW)
    try:
        fcntl.fcntl(descriptor, SET_LOCK, LOCK_REQUEST)
    except OSError:
        return True
    finally:
        os.close(descriptor)
    return False
