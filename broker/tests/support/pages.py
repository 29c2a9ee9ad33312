"""Pages of documentation as scripts: the blocks of a page run in their order, as a reader would type them.

A fenced block ```` ```bash ```` is typed in one shell. ```` ```bash NAME ```` is typed in a terminal of its own, which
is open until the end of the page; the next block is typed when the node that it starts has said that its management
listens, or when its commands have ended. ```` ```LANGUAGE NAME ```` of another language is written to the file NAME. A
page runs in a directory and with a home of its own, in a network namespace in which only the loopback interface exists,
so that its ports are free.
"""

from __future__ import annotations

import base64
import os
import re
import shlex
import shutil
import signal
import subprocess
from dataclasses import dataclass
from pathlib import Path

import pytest

from support.processes import COMMAND

ROOT = Path(__file__).parents[3]
TIMEOUT_S = 240

_BLOCK = re.compile(r"^```(?P<language>\w+)(?: (?P<name>[\w./-]+))?\n(?P<text>.*?)^```$", re.MULTILINE | re.DOTALL)
_PRELUDE = """
set -euo pipefail
ip link set lo up
typed() {
    (bash -euo pipefail "terminals/$1" >"terminals/$1.out" 2>&1; echo $? >"terminals/$1.code") &
    for _ in $(seq 600); do
        ! grep -q "management listens" "terminals/$1.out" 2>/dev/null || return 0
        if [ -e "terminals/$1.code" ]; then
            [ "$(cat "terminals/$1.code")" = 0 ] || { cat "terminals/$1.out"; return 1; }
            return 0
        fi
        sleep 0.1
    done
    cat "terminals/$1.out"
    return 1
}
"""


@dataclass(frozen=True)
class Block:
    """A fenced block of a page: its language, the name after it, empty without one, and its text."""

    language: str
    name: str
    text: str


def blocks(page: str) -> list[Block]:
    """Fenced blocks of a page in their order."""
    return [Block(each["language"], each["name"] or "", each["text"]) for each in _BLOCK.finditer(page)]


def script(page: str) -> str:
    """The blocks of a page as one shell script."""
    parts = [_PRELUDE, "mkdir -p terminals"]
    for number, block in enumerate(blocks(page), 1):
        if block.language == "bash" and not block.name:
            parts.append(f"echo {shlex.quote(f'+++ block {number}')}\n{block.text}")
        elif block.language == "bash":
            terminal = f"{number}-{block.name}"
            parts += [_written(f"terminals/{terminal}", block.text), f"typed {terminal}"]
        elif block.name:
            parts.append(_written(block.name, block.text))
    return "\n".join(parts)


def _written(name: str, text: str) -> str:
    encoded = base64.b64encode(text.encode()).decode()
    return f"mkdir -p $(dirname {name}); base64 -d <<<{encoded} >{name}"


def why_not() -> str:
    """Reason why a page cannot run in a network namespace here; empty if it can."""
    if shutil.which("ip") is None:
        return "the command ip is not installed"
    tried = subprocess.run([*_namespace(), "true"], capture_output=True, text=True, timeout=30, check=False)
    return f"no network namespaces: {tried.stderr.strip()}" if tried.returncode else ""


def _namespace() -> list[str]:
    # the processes of a page end with the first of their namespace, also those that a failed page leaves
    own = ["--net", "--pid", "--fork", "--kill-child", "--mount-proc"]
    return ["unshare", *([] if os.geteuid() == 0 else ["--map-root-user"]), *own]


def run_page(path: Path, directory: Path, **environment: str) -> str:
    """Run the blocks of a page in a directory, and return their output.

    Skips the test where there are no network namespaces; fails it when a command of the page fails.
    """
    reason = why_not()
    if reason:
        pytest.skip(reason)
    home = directory / "home"
    home.mkdir()
    inherited = {name: value for name, value in os.environ.items() if not name.startswith(("UNDERSTUDY_", "XDG_"))}
    process = subprocess.Popen(
        [*_namespace(), "bash", "-c", script(path.read_text())],
        cwd=directory,
        env={
            **inherited,
            "HOME": str(home),
            "PATH": f"{COMMAND.parent}:{os.environ['PATH']}",
            "PYTHONUNBUFFERED": "1",
            **environment,
        },
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    )
    try:
        output, _ = process.communicate(timeout=TIMEOUT_S)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        output, _ = process.communicate()
    written = sorted(directory.glob("terminals/*.out"))
    terminals = "".join(f"\n--- {each.name}\n{each.read_text()[-2000:]}" for each in written)
    assert process.returncode == 0, f"{path.name}: {output[-3000:]}{terminals[-6000:]}"
    return str(output)
