"""CPU time and memory of a broker's process, from ``/proc``."""

from __future__ import annotations

import os
from pathlib import Path

from support.processes import Node

_TICKS = os.sysconf("SC_CLK_TCK")


def cpu_seconds(node: Node) -> float:
    """CPU time of the process so far."""
    return _stat_seconds(_proc(node) / "stat")


def process_cpu_seconds(pid: int) -> float:
    """CPU time of a process so far."""
    return _stat_seconds(Path(f"/proc/{pid}/stat"))


def thread_seconds(node: Node) -> dict[str, float]:
    """CPU time of each thread so far, to the microsecond where the kernel counts it (``schedstat``). The first is the
    loop's; the others are in the order in which they started.
    """
    tasks = sorted(int(each.name) for each in (_proc(node) / "task").iterdir())
    return {
        f"thread {number}" if number else "loop": _task_seconds(_proc(node) / "task" / str(task))
        for number, task in enumerate(tasks)
    }


def _task_seconds(task: Path) -> float:
    try:
        return int((task / "schedstat").read_text().split()[0]) / 1e9
    except (OSError, ValueError, IndexError):
        return _stat_seconds(task / "stat")


def resident_mib(node: Node) -> float:
    """Resident memory of the process."""
    pages = int((_proc(node) / "statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") / 1024 / 1024


def _proc(node: Node) -> Path:
    assert node.process is not None
    return Path(f"/proc/{node.process.pid}")


def _stat_seconds(path: Path) -> float:
    fields = path.read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / _TICKS
