"""The overlay of broker.xml: states of single places that a running broker got, in a file of their own (ADR 0170).

broker.xml belongs to its author, a person or Ansible. The broker writes ``broker.d/50-cli.json`` beside it, and the
reader brings broker.xml to these states before it reads it. Not here: reading and writing the file
(``runtime.files.overlay_file``).
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from typing import Any, Final

from understudy.config.edit.changes import Clear, Ensure, Set, Target
from understudy.config.edit.paths import parse_path
from understudy.dataclass import dataclass
from understudy.errors import ConfigError
from understudy.limits import OVERLAY_BYTES_MAX, OVERRIDES_MAX

#: Path of the file below the directory of broker.xml.
OVERLAY_FILE: Final = "broker.d/50-cli.json"
_FORMAT: Final = 1
_KINDS: Final = ("set", "present", "absent")
_TEXTS: Final = ("path", "state", "time", "user", "line")


@dataclass(frozen=True, slots=True)
class Override:
    """The state of one place of broker.xml, and where it comes from."""

    target: Target
    time: str
    """When it was written, as ISO 8601 in UTC."""
    user: str
    """The login that wrote it, with the address that it came from."""
    line: str
    """The line of the management CLI, without the values of secrets."""
    waits: bool = False
    """Whether it names something that does not exist yet: it counts with the change that makes that."""

    @property
    def state(self) -> str:
        """The kind of the state: ``set``, ``present`` or ``absent``."""
        return _KINDS[(Set, Ensure, Clear).index(type(self.target))]

    @property
    def value(self) -> str | None:
        """The value of the place; None: the state is not ``set``."""
        return self.target.value if isinstance(self.target, Set) else None


def parse_overlay(data: bytes, file: str) -> tuple[Override, ...]:
    """The states in the bytes of an overlay, in their order; none in an empty file.

    Raises:
        ConfigError: the bytes are too many or no overlay; the message names the entry.
    """
    if len(data) > OVERLAY_BYTES_MAX:
        raise ConfigError(f"more than {OVERLAY_BYTES_MAX} bytes", file=file)
    if not data.strip():
        return ()
    try:
        document = json.loads(data)
    except (ValueError, RecursionError) as error:
        raise ConfigError(f"is no JSON: {error}", file=file) from None
    if not isinstance(document, dict) or document.get("format") != _FORMAT:
        raise ConfigError(f"is no overlay of format {_FORMAT}", file=file, hint="a later version may have written it")
    entries = document.get("overrides")
    if not isinstance(entries, list) or len(entries) > OVERRIDES_MAX:
        raise ConfigError(f"'overrides' is no list of at most {OVERRIDES_MAX} entries", file=file)
    return tuple(_override(entry, number, file) for number, entry in enumerate(entries, 1))


def _override(entry: Any, number: int, file: str) -> Override:
    place = f"overrides[{number}]"
    if not isinstance(entry, dict) or any(not isinstance(entry.get(name), str) for name in _TEXTS):
        raise ConfigError(f"needs the texts {', '.join(_TEXTS)}", path=place, file=file)
    state, path = entry["state"], entry["path"]
    if state not in _KINDS or (state == "set") != isinstance(entry.get("value"), str):
        raise ConfigError(f"state {state!r} with this value is none of set, present and absent", path=place, file=file)
    parse_path(path)
    targets: dict[str, Target] = {"present": Ensure(path), "absent": Clear(path)}
    target = targets.get(state) or Set(path, entry["value"])
    return Override(target, entry["time"], entry["user"], entry["line"], entry.get("waits") is True)


def format_overlay(overrides: Sequence[Override]) -> bytes:
    """The bytes of an overlay; ``parse_overlay`` gives the same states.

    Raises:
        ConfigError: there are too many states.
    """
    entries = [
        {"path": each.target.path, "state": each.state}
        | ({} if each.value is None else {"value": each.value})
        | {"time": each.time, "user": each.user, "line": each.line}
        | ({"waits": True} if each.waits else {})
        for each in overrides
    ]
    data = json.dumps({"format": _FORMAT, "overrides": entries}, indent=2).encode() + b"\n"
    if len(entries) > OVERRIDES_MAX or len(data) > OVERLAY_BYTES_MAX:
        message = f"{len(entries)} changes in {len(data)} bytes, limits {OVERRIDES_MAX} and {OVERLAY_BYTES_MAX}"
        raise ConfigError(message, hint="take them into broker.xml, then `understudy config drop --all`")
    return data


def with_override(overrides: Sequence[Override], new: Override) -> tuple[Override, ...]:
    """The states with one more, without those that it makes superfluous.

    A state of a place replaces the earlier ones of the place; an element that is removed takes the states of
    everything in it along. An element that is made after it was removed needs both.
    """
    path = new.target.path
    kept = []
    for each in overrides:
        inside = each.target.path.startswith(f"{path}/")
        same = each.target.path == path
        if isinstance(new.target, Clear) and (same or inside):
            continue
        if same and not (isinstance(new.target, Ensure) and isinstance(each.target, Clear)):
            continue
        kept.append(each)
    return (*kept, new)


def counting(overrides: Iterable[Override]) -> tuple[Override, ...]:
    """The states that are part of the configuration, without those that wait."""
    return tuple(each for each in overrides if not each.waits)


def waiting(overrides: Iterable[Override]) -> tuple[Override, ...]:
    """The states that wait for another change."""
    return tuple(each for each in overrides if each.waits)


def extended(
    overrides: Sequence[Override],
    new: Sequence[Override],
    check: Callable[[Sequence[Override]], object],
    *,
    may_wait: bool,
) -> tuple[tuple[Override, ...], ConfigError | None]:
    """An overlay with further states, and why some of them wait; None: all count.

    States that wait are kept beside those that count, so a start of the broker always finds a usable configuration.

    Args:
        overrides: The overlay, in which states that wait come last.
        new: The states of one change.
        check: The reader of the broker. Raises ConfigError: it refuses the configuration with the states.
        may_wait: Whether the change may wait if it only names something that does not exist.

    Raises:
        ConfigError: the result is refused, and the change does not wait.
    """
    before, held = counting(overrides), waiting(overrides)
    whole = tuple(replace(each, waits=False) for each in _added(before, (*held, *new)))
    try:
        check(whole)
    except ConfigError as error:
        refused = error
    else:
        return whole, None
    if held and not any(_concerns(each, other) for each in new for other in held):
        alone = _added(before, new)
        try:
            check(alone)
        except ConfigError as error:
            refused = error
        else:
            return (*alone, *held), None
    if not may_wait or not refused.names_missing:
        raise refused
    return (*before, *_added(held, [replace(each, waits=True) for each in new])), refused


def _added(overrides: Sequence[Override], new: Iterable[Override]) -> tuple[Override, ...]:
    for each in new:
        overrides = with_override(overrides, each)
    return tuple(overrides)


def _concerns(new: Override, held: Override) -> bool:
    """Whether one of two states is about the place of the other, or about a place in it."""
    paths = new.target.path, held.target.path
    return paths[0] == paths[1] or any(one.startswith(f"{other}/") for one, other in (paths, paths[::-1]))
