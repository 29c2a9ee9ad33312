# SPDX-License-Identifier: Apache-2.0
"""The declared machine of one node during a roll, and the record of it that the host keeps.

The record makes a roll resumable from any controller: it says which roll the node is in, how far it is, and whether the
node served when its wave began. Pure, except for ``Record.read`` and ``Record.write``.
"""

from __future__ import annotations

import enum
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from ansible_collections.understudy.broker.plugins.module_utils.process import read_record, write_record

FORMAT = 1


class Phase(enum.Enum):
    """How far a node is."""

    IDLE = "idle"
    """The node has been in no roll."""
    BEGUN = "begun"
    """The release and configuration of the node are saved; the broker runs undisturbed."""
    STOPPED = "stopped"
    APPLIED = "applied"
    """The staged release and configuration are in place; the broker is down."""
    STARTED = "started"
    """The broker has reached its gate."""
    DONE = "done"
    RESTORING = "restoring"
    RESTORED = "restored"
    """The saved release and configuration are back, and the broker has reached its gate."""


class Event(enum.Enum):
    """Steps of a roll, and what a resumed roll finds."""

    BEGIN = "begin"
    STOP = "stop"
    APPLY = "apply"
    START = "start"
    FINISH = "finish"
    RESTORE = "restore"
    RESTART = "restart"
    """The broker has reached its gate again with the saved release and configuration."""
    SUPERSEDE = "supersede"
    """A rollback takes over a node that another roll has left half-way."""
    FOUND_RUNNING = "found_running"
    FOUND_DOWN = "found_down"


class IllegalEvent(ValueError):
    """The table refuses this event in this phase."""


TRANSITIONS: Mapping[tuple[Phase, Event], Phase] = {
    (Phase.IDLE, Event.BEGIN): Phase.BEGUN,
    (Phase.DONE, Event.BEGIN): Phase.BEGUN,
    (Phase.RESTORED, Event.BEGIN): Phase.BEGUN,
    (Phase.RESTORING, Event.BEGIN): Phase.BEGUN,
    (Phase.BEGUN, Event.STOP): Phase.STOPPED,
    (Phase.STOPPED, Event.APPLY): Phase.APPLIED,
    (Phase.APPLIED, Event.START): Phase.STARTED,
    (Phase.STARTED, Event.FINISH): Phase.DONE,
    **{
        (phase, Event.RESTORE): Phase.RESTORING
        for phase in (Phase.BEGUN, Phase.STOPPED, Phase.APPLIED, Phase.STARTED, Phase.DONE)
    },
    (Phase.RESTORING, Event.RESTART): Phase.RESTORED,
    **{
        (phase, Event.SUPERSEDE): Phase.BEGUN
        for phase in (Phase.STOPPED, Phase.APPLIED, Phase.STARTED, Phase.RESTORING)
    },
    # a host that has booted, or an operator, has started the broker
    (Phase.STOPPED, Event.FOUND_RUNNING): Phase.BEGUN,
    (Phase.APPLIED, Event.FOUND_RUNNING): Phase.STARTED,
    # the broker has ended meanwhile
    (Phase.BEGUN, Event.FOUND_DOWN): Phase.STOPPED,
    (Phase.STARTED, Event.FOUND_DOWN): Phase.APPLIED,
}

IGNORED: frozenset[tuple[Phase, Event]] = frozenset(
    {
        # a resumed roll repeats what is done already
        *((phase, Event.BEGIN) for phase in (Phase.BEGUN, Phase.STOPPED, Phase.APPLIED, Phase.STARTED)),
        (Phase.STOPPED, Event.STOP),
        (Phase.APPLIED, Event.APPLY),
        (Phase.STARTED, Event.START),
        (Phase.DONE, Event.FINISH),
        (Phase.RESTORING, Event.RESTORE),
        # nodes of the wave that the roll had not begun with
        (Phase.IDLE, Event.RESTORE),
        (Phase.RESTORED, Event.RESTORE),
        (Phase.RESTORED, Event.RESTART),
        (Phase.IDLE, Event.RESTART),
        *((phase, Event.SUPERSEDE) for phase in (Phase.IDLE, Phase.BEGUN, Phase.DONE, Phase.RESTORED)),
        *(
            (phase, event)
            for phase in (Phase.IDLE, Phase.DONE, Phase.RESTORED, Phase.RESTORING)
            for event in (Event.FOUND_RUNNING, Event.FOUND_DOWN)
        ),
        *((phase, Event.FOUND_RUNNING) for phase in (Phase.BEGUN, Phase.STARTED)),
        *((phase, Event.FOUND_DOWN) for phase in (Phase.STOPPED, Phase.APPLIED)),
    }
)

FINAL = frozenset({Phase.IDLE, Phase.DONE, Phase.RESTORED})
"""Phases of a node that is in no unfinished roll."""


def step(phase: Phase, event: Event) -> Phase:
    """The next phase.

    Raises:
        IllegalEvent: the event cannot come in this phase.
    """
    if (phase, event) in IGNORED:
        return phase
    try:
        return TRANSITIONS[phase, event]
    except KeyError:
        raise IllegalEvent(f"{event.value} is no step for a node that is {phase.value}") from None


def found(phase: Phase, *, running: bool) -> Phase:
    """The phase of a node at the begin of a resumed roll."""
    return step(phase, Event.FOUND_RUNNING if running else Event.FOUND_DOWN)


def runs(service: object) -> bool:
    """Whether a ``service`` in a result of ``node_info`` runs, or will be started again by itself."""
    return isinstance(service, Mapping) and bool(service.get("running") or service.get("kept"))


def aim_of(kind: str, target: str) -> tuple[str, ...]:
    """What identifies the aim of a roll: its kind, and the release of an update."""
    return (kind, target) if target else (kind,)


def title_of(kind: str, target: str) -> str:
    """A roll in words, such as ``update to 0.2.0``."""
    return f"{kind} to {target}" if target else kind


@dataclass(frozen=True)
class Record:
    """What a host remembers about the last roll of its node."""

    roll: str
    """Name of the roll: UTC time of its begin. Later rolls have greater names."""
    kind: str
    """``update``, ``restart`` or ``rollback``."""
    target: str
    """Release of an update; empty for the other kinds."""
    wave: str
    phase: Phase
    served: bool
    """Whether the node was active when its wave began."""

    @property
    def aim(self) -> tuple[str, ...]:
        return aim_of(self.kind, self.target)

    @property
    def title(self) -> str:
        return title_of(self.kind, self.target)

    @property
    def unfinished(self) -> bool:
        return self.phase not in FINAL

    def as_dict(self) -> dict[str, object]:
        return {"format": FORMAT, **asdict(self), "phase": self.phase.value}

    @classmethod
    def from_dict(cls, content: Mapping[str, object], origin: str) -> Record:
        """The inverse of ``as_dict``.

        Args:
            content: the record.
            origin: file or host, for the error.

        Raises:
            ValueError: it is no record of this version.
        """
        try:
            if content["format"] != FORMAT:
                raise ValueError(f"its format is {content['format']!r}")
            texts = {name: str(content[name]) for name in ("roll", "kind", "target", "wave")}
            return cls(**texts, phase=Phase(content["phase"]), served=content["served"] is True)
        except (KeyError, TypeError, ValueError) as error:
            raise ValueError(
                f"{origin} is no record of a roll of this version ({type(error).__name__}: {error}); look at the node, "
                "then remove the file"
            ) from error

    @classmethod
    def from_result(cls, name: str, result: Mapping[str, object]) -> Record | None:
        """The record in a result of ``node_info``, in the phase that the record and the process show together.

        The record is written before and after a step; a run that was killed in between has not written it.

        Args:
            name: of the node, for the error.
            result: with ``rollout`` and ``service``.

        Raises:
            ValueError: it is no record of this version.
        """
        rollout, service = result.get("rollout"), result.get("service")
        content = rollout.get("record") if isinstance(rollout, Mapping) else None
        if not isinstance(content, Mapping):
            return None
        record = cls.from_dict(content, f"rollout/record.json of {name}")
        return replace(record, phase=found(record.phase, running=runs(service)))

    @classmethod
    def read(cls, path: Path) -> Record | None:
        """The record in a file; None if there is none.

        Raises:
            ValueError: the file holds something else.
        """
        return cls.from_dict(read_record(path), str(path)) if path.exists() else None

    def write(self, path: Path) -> None:
        """Replace the file in one step, and have it on the disk before this returns."""
        write_record(path, self.as_dict())
