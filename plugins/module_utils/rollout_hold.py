# SPDX-License-Identifier: Apache-2.0
"""One roll at a time: each node is held by the run of Ansible that carries out a roll.

The hold is a file on the host, beside the record of the roll. It names the process of the controller; every step of the
roll renews it. A hold is over when its controller's process has ended, which another run on the same machine can see,
or when it has not been renewed for ``LEASE_S``, by the clock of the host that has it.
"""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from ansible_collections.understudy.broker.plugins.module_utils.process import (
    ProcessIdentity,
    ProcessTable,
    read_record,
    write_record,
)
from ansible_collections.understudy.broker.plugins.module_utils.rollout_record import title_of

LEASE_S = 900
"""Longer than any phase of a wave, which waits for a gate at most a few times."""
FILE = "rollout/hold.json"
HOLD_OPTIONS: Mapping[str, Mapping[str, object]] = {
    "holder": {"type": "dict"},
    "ignore_hold": {"type": "bool", "default": False},
}
"""Options of every module that acts on a node; the documentation fragment has the same."""
PROGRAM = "ansible"
"""How the programs of a controller are named: ansible-playbook, ansible-runner, ansible."""


class HeldByAnother(Exception):
    """Another run carries out a roll; the message says which one and what to do."""


@dataclass(frozen=True)
class Holder:
    """A run of Ansible on a controller."""

    controller: str
    """Name of its machine, for messages."""
    process: ProcessIdentity
    namespace: str
    """Namespace of process ids: the same number means another process in another container."""

    @classmethod
    def present(cls, table: ProcessTable, pid: int) -> Holder:
        """The run of Ansible that has started a process of this machine: its uppermost ancestor of such a name.

        Args:
            table: of this machine.
            pid: of a module that runs on the controller.
        """
        found = pid
        while pid > 1:
            if PROGRAM in _names(table.root, pid):
                found = pid
            pid = _parent(table.root, pid)
        identity = table.identify(found)
        if identity is None:
            raise ValueError(f"process {found} has ended")
        return cls(os.uname().nodename, identity, os.readlink(table.root / "self/ns/pid"))

    @classmethod
    def from_dict(cls, content: Mapping[str, object]) -> Holder:
        """The inverse of ``asdict``. Raises ValueError."""
        process = ProcessIdentity.from_record(content.get("process"))
        if process is None:
            raise ValueError("holder: process is missing or is no process")
        return cls(str(content.get("controller")), process, str(content.get("namespace")))

    def has_ended(self, table: ProcessTable, here: Holder) -> bool:
        """Whether the run can be seen to have ended, from another run on the same machine."""
        same = self.process.boot_id == here.process.boot_id and self.namespace == here.namespace
        return same and not table.is_alive(self.process)

    def __str__(self) -> str:
        return f"process {self.process.pid} on {self.controller}"


@dataclass(frozen=True)
class Hold:
    """What a host remembers of the run that holds its node."""

    roll: str
    holder: Holder
    renewed_ms: int
    """Wall clock of the host."""
    kind: str = ""
    """``update``, ``restart`` or ``rollback``; empty in a hold of an earlier release of the collection."""
    target: str = ""
    """Release of an update."""

    @property
    def aim(self) -> str:
        """The aim of the roll in words."""
        return title_of(self.kind or "roll", self.target)

    def as_dict(self) -> dict[str, object]:
        return asdict(self)

    @classmethod
    def from_dict(cls, content: Mapping[str, object]) -> Hold:
        """The inverse of ``as_dict``. Raises ValueError."""
        holder, renewed_ms = content.get("holder"), content.get("renewed_ms")
        if not isinstance(holder, Mapping) or not isinstance(renewed_ms, int):
            raise ValueError("hold: holder or renewed_ms is missing")
        texts = {name: str(content.get(name) or "") for name in ("kind", "target")}
        return cls(str(content.get("roll")), Holder.from_dict(holder), renewed_ms, **texts)

    def age_s(self, now_ms: int) -> int:
        """Seconds since the last step. A clock that was set back makes it young, never old."""
        return max(0, now_ms - self.renewed_ms) // 1000

    def refusal(self, node: str, age_s: int, override: str = "-e rolling_take_over=true") -> str:
        """Why another roll, or an action on the node, cannot begin.

        Args:
            node: name of the node.
            age_s: seconds since the last step.
            override: what continues regardless.
        """
        left_s = max(1, LEASE_S - age_s)
        return (
            f"{node} is in the roll {self.roll}, which {self.holder} carries out (last step {age_s} s ago); wait for "
            f"its end. If that run has ended, this is seen after {left_s} s, on {self.holder.controller} at once, or "
            f"set {override}"
        )


class HoldFile:
    """The hold of the node of one instance.

    Args:
        instance: directory of the instance.
        now_ms: wall clock of this host.
    """

    def __init__(self, instance: Path, now_ms: int) -> None:
        self._path = instance / FILE
        self._now_ms = now_ms

    def read(self) -> Hold | None:
        """The present hold; None without one.

        Raises:
            ValueError: the file holds something else.
        """
        try:
            return Hold.from_dict(read_record(self._path)) if self._path.exists() else None
        except ValueError as error:
            raise ValueError(
                f"{self._path} is no hold ({error}); see that no roll is under way, then remove it"
            ) from error

    def take(self, node: str, plan: Mapping[str, object], holder: Holder, over: list[Hold]) -> None:
        """Hold the node for a roll, or renew the hold.

        Args:
            node: its name, for the message.
            plan: ``roll``, ``kind`` and ``target`` of the roll.
            holder: the run that carries it out.
            over: holds of others that the plan found to be over.

        Raises:
            HeldByAnother: another run holds it.
        """
        with self._locked():
            present = self.read()
            if present is not None and present.holder != holder and present not in over:
                age_s = present.age_s(self._now_ms)
                if age_s < LEASE_S:
                    raise HeldByAnother(present.refusal(node, age_s))
            texts = {name: str(plan.get(name) or "") for name in ("kind", "target")}
            self._write(Hold(str(plan["roll"]), holder, self._now_ms, **texts))

    def refuse_others(self, node: str, holder: Holder | None) -> None:
        """Refuse an action on the node while another run holds it for a roll.

        Args:
            node: its name, for the message.
            holder: the run of this call, if it carries out a roll; None for any other one.

        Raises:
            HeldByAnother: another run holds it, and its last step is not older than the lease.
            ValueError: the file holds something else.
        """
        present = self.read()
        if present is None or present.holder == holder:
            return
        age_s = present.age_s(self._now_ms)
        if age_s < LEASE_S:
            raise HeldByAnother(present.refusal(node, age_s, "ignore_hold: true (-e broker_ignore_hold=true)"))

    def renew(self, node: str, holder: Holder) -> None:
        """Renew the hold before a step.

        Raises:
            HeldByAnother: another run has taken over meanwhile, or the hold was released.
        """
        with self._locked():
            present = self.read()
            if present is None or present.holder != holder:
                now = "no run" if present is None else str(present.holder)
                raise HeldByAnother(f"{node} is not held by this run any more but by {now}; nothing was changed")
            self._write(replace(present, renewed_ms=self._now_ms))

    def release(self, holder: Holder) -> bool:
        """Remove the hold if it is the one of this run; whether it was."""
        with self._locked():
            present = self.read()
            if present is None or present.holder != holder:
                return False
            self._path.unlink()
            return True

    def _write(self, hold: Hold) -> None:
        write_record(self._path, hold.as_dict())

    @contextmanager
    def _locked(self) -> Iterator[None]:
        """Other processes of this host wait meanwhile."""
        self._path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        descriptor = os.open(self._path.parent, os.O_RDONLY)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX)
            yield
        finally:
            os.close(descriptor)


def refuse_held(params: Mapping[str, object], directory: Path, node: str, now_ms: int) -> None:
    """Refuse an action on a node that another run holds for a roll.

    Args:
        params: parameters of the module, with ``HOLD_OPTIONS``.
        directory: the instance of the node.
        node: its name, for the message.
        now_ms: wall clock of this host.

    Raises:
        HeldByAnother: another run holds it.
        ValueError: the hold, or the holder of the parameters, cannot be read.
    """
    if params["ignore_hold"] is True:
        return
    given = params["holder"]
    holder = Holder.from_dict(given) if isinstance(given, Mapping) else None
    HoldFile(directory, now_ms).refuse_others(node, holder)


def _names(proc: Path, pid: int) -> set[str]:
    """Names of the program of a process and of its first argument, up to the first dash."""
    try:
        words = (proc / str(pid) / "cmdline").read_bytes().split(b"\0")[:2]
    except OSError:
        return set()
    return {word.decode("utf-8", "replace").rsplit("/", 1)[-1].split("-", 1)[0] for word in words}


def _parent(proc: Path, pid: int) -> int:
    """Process id of the parent; 0 for none."""
    try:
        text = (proc / str(pid) / "stat").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return 0
    return int(text.rsplit(")", 1)[1].split()[1])
