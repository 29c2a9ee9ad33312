"""The comparison of an Artemis instance with what works here: findings for a table, and a page of all differences."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from understudy.dataclass import dataclass
from understudy.migration.differences import DIFFERENCES
from understudy.migration.instance import ArtemisInstance

_HEAD: Final = """\
# From Artemis

A broker.xml of Artemis is read as it is. This page lists everything that is refused here or behaves otherwise. It is
generated from the list that these commands use:

    understudy migrate check DIR              # compares an instance directory of Artemis with this list
    understudy migrate convert DIR NEW-DIR    # writes an instance of Understudy from it

`check` changes nothing. Its exit code is 0 if there is nothing to do, 1 if something behaves otherwise, 2 if the
instance cannot be used as it is. Elements of broker.xml without effect are listed in
[configuration.md](configuration.md) and printed by both commands.

| What you have | What happens here | What to do |
|---|---|---|
"""


@dataclass(frozen=True, slots=True)
class Finding:
    """Something that an instance has and that does not work here as in Artemis."""

    place: str
    """``file:line``, or a file."""
    have: str
    here: str
    action: str
    blocks: bool
    """Whether the instance cannot be used before the action was taken."""


def findings(instance: ArtemisInstance) -> list[Finding]:
    """The findings about an instance, those that make it unusable first."""
    found = list(_all(instance))
    return [each for each in found if each.blocks] + [each for each in found if not each.blocks]


def _all(instance: ArtemisInstance) -> Iterator[Finding]:
    told: set[str] = set()
    for difference in DIFFERENCES:
        for place in dict.fromkeys(difference.places(instance)):
            told.add(place)
            yield Finding(place, difference.have, difference.here, difference.action, difference.blocks)
    for error in (*instance.errors, *instance.problems):
        place = ":".join(str(part) for part in (error.file, error.line) if part is not None)
        if place not in told:
            text = str(error).removeprefix(f"{place} ").removeprefix(f"{place}: ")
            yield Finding(place, text, "The instance cannot be used", error.hint or "Correct it", blocks=True)
    for warning in instance.warnings:
        place = f"{warning.file}:{warning.line}"
        if place not in told:
            yield Finding(place, warning.path, warning.message, "Nothing, unless you rely on it", blocks=False)


def page() -> str:
    """The page of all differences, in Markdown."""
    rows = [f"| {each.have} | {each.here} | {each.action} |\n" for each in DIFFERENCES]
    return _HEAD + "".join(rows)
