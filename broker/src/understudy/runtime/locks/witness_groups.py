"""Forming a group of witnesses, and replacing one of its members (ADR 0117); each is a command that can be repeated.

Replacing: the members that stay go to the next configuration first. From then on nothing that was begun with the old
member can be completed, so the members that stay have every number that was ever agreed on. The new member gets these
numbers and joins last. Until then it takes part in nothing.
"""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

from understudy.errors import ConfigError, LockManagerUnavailable
from understudy.ha.witness.frames import Answer, Kind, Request
from understudy.ha.witness.registers import Register

Place = tuple[str, int]
Ask = Callable[[Place, Request], Awaitable[Answer]]
"""Sends one request to one witness. Raises BrokerError: there is no answer, or an answer ERROR."""


def text_of(place: Place) -> str:
    """Text ``host:port`` of a place."""
    return f"{place[0]}:{place[1]}"


async def form(ask: Ask, places: Sequence[Place], group: bytes) -> bytes:
    """Make a group of witnesses that serve nothing yet; its id.

    Args:
        ask: Sends a request.
        places: All members.
        group: Random id, unless an interrupted command has begun with another one.

    Raises:
        ConfigError: a witness has locks or numbers of single clients, or is a member of another group.
        BrokerError: a witness does not answer; the command can be repeated.
    """
    found = [await _status(ask, place) for place in places]
    begun = {status["group"] for status in found if status["configuration"]}
    if len(begun) > 1 or any(status["configuration"] > 1 for status in found):
        raise ConfigError("the witnesses are members of a group already", hint="`understudy witness replace`")
    group = bytes.fromhex(begun.pop()) if begun else group
    for place, status in zip(places, found, strict=True):
        if not status["configuration"]:
            _check_unused(place, status)
    for place in places:
        await _set_configuration(ask, place, group, 0, 1)
    return group


async def replace(ask: Ask, places: Sequence[Place], new: Place) -> int:
    """Let a witness without state take the place of a member; the number of the new configuration.

    Args:
        ask: Sends a request.
        places: All members, the new one in the place of the old one.
        new: The new one.

    Raises:
        ConfigError: the others are not one group, or the new one has served before.
        BrokerError: a witness does not answer; the command can be repeated.
    """
    if new not in places:
        raise ConfigError(f"{text_of(new)} is none of the members")
    others = [place for place in places if place != new]
    found = {place: await _status(ask, place) for place in others}
    groups = {status["group"] for status in found.values()}
    configurations = {status["configuration"] for status in found.values()}
    if len(groups) > 1 or 0 in configurations:
        raise ConfigError(f"{', '.join(map(text_of, others))} are not members of one group")
    group = bytes.fromhex(groups.pop())
    joining = await _status(ask, new)
    if joining["configuration"]:
        hint = f"stop it, remove its directory, start it again: as it is it may be what {text_of(new)} was before"
        raise ConfigError(f"{text_of(new)} is a member of a group already", hint=hint)
    _check_unused(new, joining, imported=True)
    # of an interrupted command one of the others may have the next configuration already
    target: int = max(configurations) + (1 if len(configurations) == 1 else 0)
    for place in others:
        await _set_configuration(ask, place, group, found[place]["configuration"], target)
    registers: dict[str, Register] = {}
    for place in others:
        for key, register in (await _export(ask, place)).items():
            known = registers.get(key)
            if known is None or register.accepted > known.accepted:
                registers[key] = register
    for key, register in registers.items():
        ballot = register.accepted
        await ask(new, Request(Kind.IMPORT, 1, key, ballot.token, ballot.number, register.value))
    await _set_configuration(ask, new, group, 0, target)
    return target


async def _status(ask: Ask, place: Place) -> dict[str, Any]:
    status: dict[str, Any] = json.loads((await ask(place, Request(Kind.STATUS, 1))).text)
    if "configuration" not in status:
        raise ConfigError(f"{text_of(place)}: this version of the witness knows no groups", hint="update it first")
    return status


def _check_unused(place: Place, status: dict[str, Any], *, imported: bool = False) -> None:
    """Raises ConfigError: the witness has served."""
    if status["locks_total"] or (status["numbers_total"] and not imported):
        raise ConfigError(
            f"{text_of(place)} has locks or numbers of nodes for which it is the only witness",
            hint="use witnesses with an empty directory, and set the numbers in the group"
            " (docs/operate/lock-managers.md)",
        )


async def _set_configuration(ask: Ask, place: Place, group: bytes, before: int, after: int) -> None:
    answer = await ask(place, Request(Kind.FORM, 1, "", group, before, after))
    if answer.kind is not Kind.YES:
        raise LockManagerUnavailable(f"{text_of(place)}: {answer.text}", hint="repeat the command")


async def _export(ask: Ask, place: Place) -> dict[str, Register]:
    found: dict[str, Register] = {}
    while True:
        answer = await ask(place, Request(Kind.EXPORT, 1, first=len(found)))
        page = json.loads(answer.text)
        found.update({key: Register.from_json(each) for key, each in page.items()})
        if not page or len(found) >= answer.value:
            return found
