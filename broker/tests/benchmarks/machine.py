"""The machine of a benchmark: figures of two runs are comparable only if it is the same."""

from __future__ import annotations

import compileall
import os
import platform
import sys
import sysconfig
import tempfile
from pathlib import Path

import understudy
from understudy import kernel


def describe() -> list[str]:
    """Interpreter and how it was built, kernel of the broker (ADR 0034), processors, disk of temporary files."""
    return [
        f"interpreter: {sys.executable}, {platform.python_version()}, {_build()}",
        f"kernel: {kernel.ACTIVE} ({kernel.WHY})",
        f"machine: {os.cpu_count()} processors, {platform.machine()}, Linux {platform.release()}",
        f"disk: {_disk(Path(tempfile.gettempdir()))}",
    ]


def as_installed() -> None:
    """Compile the sources of the broker to bytecode, as ``pip`` does when it installs it: a source tree whose processes
    may not write bytecode (``PYTHONDONTWRITEBYTECODE``) is compiled again at every start, which takes half a second.
    """
    compileall.compile_dir(str(Path(understudy.__file__).parent), quiet=1)


def _build() -> str:
    """How the interpreter was compiled. Debian optimises by profile without the argument of ``configure`` for it."""
    if "--enable-optimizations" in str(sysconfig.get_config_var("CONFIG_ARGS") or ""):
        return "built with --enable-optimizations"
    if sys.base_prefix == "/usr":
        return "the distribution's build (Debian: optimised by profile)"
    return "NOT built with --enable-optimizations: 1.2 to 1.5 times slower than Debian's"


def _disk(path: Path) -> str:
    """File system and device that a path is on."""
    best: tuple[str, str, str] | None = None
    for line in Path("/proc/self/mounts").read_text().splitlines():
        device, place, kind, *_ = line.split()
        if path.is_relative_to(place) and (best is None or len(place) >= len(best[0])):
            best = (place, kind, device)
    return f"{path} on {best[1]}, {best[2]}" if best is not None else str(path)
