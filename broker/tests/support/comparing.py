"""Differences between two answers of management: names, types, and values that the state determines.

Texts that are JSON are compared as values. Values under the names in ``OF_THE_NODE`` differ by
nature (ids, times, ports): of them only the type counts.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any

OF_THE_NODE = frozenset(
    {"id", "messageID", "userID", "timestamp", "creationTime", "connectionID", "sessionID", "session", "remoteAddress",
     "clientAddress", "localAddress", "port", "nodeID", "nodeId", "uptime", "version", "sequentialId", "addressSize",
     "persistentSize", "directDeliver", "live", "primary", "_AMQ_ORIG_MESSAGE_ID", "_AMQ_ACTUAL_EXPIRY"}
)  # fmt: skip

#: Names that Artemis does not have: the subject of the certificate of a client (ADR 0054).
OURS_ALONE = frozenset({"certificateSubject"})


def differences(theirs: object, ours: object, path: str = "") -> Iterator[str]:
    """One line for each difference; none when they say the same."""
    theirs, ours = _opened(theirs), _opened(ours)
    if isinstance(theirs, list) and isinstance(ours, list):
        theirs, ours = _comparable([_opened(each) for each in theirs]), _comparable([_opened(each) for each in ours])
    if type(theirs) is not type(ours):
        yield f"{path}: {_brief(theirs)} there, {_brief(ours)} here"
    elif isinstance(theirs, dict) and isinstance(ours, dict):
        theirs, ours = _counted(theirs), _counted(ours)
        for name in theirs.keys() - ours.keys():
            yield f"{path}.{name}: {_brief(theirs[name])} there, missing here"
        for name in ours.keys() - theirs.keys() - OURS_ALONE:
            yield f"{path}.{name}: missing there, {_brief(ours[name])} here"
        for name in theirs.keys() & ours.keys():
            if name in OF_THE_NODE:
                if type(theirs[name]) is not type(ours[name]):
                    yield f"{path}.{name}: {_brief(theirs[name])} there, {_brief(ours[name])} here"
            else:
                yield from differences(theirs[name], ours[name], f"{path}.{name}")
    elif isinstance(theirs, list) and isinstance(ours, list):
        if len(theirs) != len(ours):
            yield f"{path}: {len(theirs)} elements there, {len(ours)} here"
        for number, (one, other) in enumerate(zip(theirs, ours, strict=False)):
            yield from differences(one, other, f"{path}[{number}]")
    elif theirs != ours:
        yield f"{path}: {_brief(theirs)} there, {_brief(ours)} here"


_GIVEN_NAME = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")
#: What Artemis makes for protocols that this broker does not speak.
_OTHER_PROTOCOLS = "$sys."


def _comparable(values: list[object]) -> list[object]:
    """The list without what only one of both can have; by name where the elements have one."""
    kept = [value for value in values if not _named(value).startswith(_OTHER_PROTOCOLS)]
    if kept and all(isinstance(value, dict) and "sessionID" in value and "consumerCount" in value for value in kept):
        # sessions come in no order
        return sorted(kept, key=lambda value: value["consumerCount"])  # type: ignore[index]
    return sorted(kept, key=_named) if kept and all(_named(value) for value in kept) else kept


def _counted(page: dict[str, Any]) -> dict[str, Any]:
    """A page of a list, whose count is without what ``_comparable`` leaves out."""
    rows = page.get("data")
    if not isinstance(rows, list) or len(rows) != page.get("count"):
        return page
    return page | {"count": len(_comparable(rows))}


def _named(value: object) -> str:
    found = value.get("name") if isinstance(value, dict) else value
    return found if isinstance(found, str) else ""


def _opened(value: object) -> object:
    if isinstance(value, str):
        value = _GIVEN_NAME.sub("<given>", value)
    if isinstance(value, str) and value[:1] in ("{", "["):
        try:
            return json.loads(value)
        except ValueError:
            return value
    return value


def _brief(value: object) -> str:
    text = json.dumps(value, ensure_ascii=False)
    return text if len(text) <= 400 else f"{text[:400]}…"
