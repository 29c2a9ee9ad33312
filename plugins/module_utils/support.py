"""Contents of a support bundle: which commands and files describe a node, without secrets."""

from __future__ import annotations

import io
import tarfile
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from ansible_collections.understudy.broker.plugins.module_utils.redaction import redact

BYTES_MAX = 4 * 1024 * 1024
"""The end of a longer text is kept."""
CONFIGURATION = ("broker.xml", "service.json", "store-seen.json", "artemis-roles.properties")
"""Files of the directory ``etc`` of an instance; files with users, tokens and keys are no part of a bundle."""


@dataclass(frozen=True, slots=True)
class Command:
    """One program whose output describes the host or the broker."""

    name: str
    """File in the bundle."""
    arguments: tuple[str, ...]
    codes: tuple[int, ...] = (0,)
    """Exit codes that are no failure."""


def commands(understudy: str, instance: str, unit: str, store: str, log_lines: int) -> list[Command]:
    """All programs of a bundle.

    Args:
        understudy: path of the command of the release that runs.
        instance: instance directory.
        unit: systemd unit; empty where a supervisor runs the broker.
        store: directory of the store; empty if there is none.
        log_lines: lines of the journal.
    """
    found = [
        Command("status.json", (understudy, "status", "--instance", instance, "--json")),
        Command("queues.json", (understudy, "queue", "stat", "--instance", instance, "--json")),
        # passwords are masked by the command, and its code 1 says that there are changes
        Command("overrides.json", (understudy, "config", "diff", "--instance", instance, "--json"), (0, 1)),
        Command("check.txt", (understudy, "run", "--check", "--config", f"{instance}/etc/broker.xml")),
        Command("processes.txt", ("ps", "-eo", "pid,ppid,user,stat,etime,rss,args", "--sort=-rss")),
        Command("sockets.txt", ("ss", "-tanp")),
        Command("addresses.txt", ("ip", "-brief", "address")),
        Command("space.txt", ("df", "-h")),
        Command("memory.txt", ("free", "-m")),
        Command("clock.txt", ("timedatectl",)),
    ]
    if unit:
        found += [
            Command("unit.txt", ("systemctl", "cat", unit)),
            Command("unit-status.txt", ("systemctl", "status", "--no-pager", "--full", unit)),
            Command("journal.txt", ("journalctl", "--unit", unit, "--no-pager", "--lines", str(log_lines))),
            Command("kernel.txt", ("journalctl", "--dmesg", "--no-pager", "--lines", "500")),
        ]
    if store:
        found.append(Command("store.txt", ("ls", "-lanR", "--time-style=full-iso", store)))
    return found


def archive(node: str, texts: Mapping[str, str], secrets: Iterable[str]) -> bytes:
    """The bundle as a compressed archive with one directory, named like the node."""
    hidden = [secret for secret in secrets if secret]
    target = io.BytesIO()
    with tarfile.open(fileobj=target, mode="w:gz") as bundle:
        for name, text in sorted(texts.items()):
            content = redact(text, hidden).encode("utf-8", "replace")[-BYTES_MAX:]
            entry = tarfile.TarInfo(f"{node}/{name}")
            entry.size, entry.mode = len(content), 0o600
            bundle.addfile(entry, io.BytesIO(content))
    return target.getvalue()


def outcome(command: Command, code: int, output: str, errors: str) -> str:
    """Output of a program; a failure is part of the description."""
    if code in command.codes:
        return output
    return f"{output}{errors}\n{' '.join(command.arguments)}: exit code {code}\n"
