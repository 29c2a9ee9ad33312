"""SETTING records: address settings and security settings that management added or removed at run time, the
target of a scale-down that is not complete, XA branches that it moved, stores of other nodes whose messages have moved
here, the bindings of message groups in a cluster, bridges that management created, named readers, the exchanges of
AMQP 0-9-1 with their bindings, and client sessions of AMQP 0-9-1 (docs/build/journal-format.md s. 4.15).

The store keeps the values as a JSON object and does not interpret them: ``config.json_settings``
does. A later record for the same kind and match replaces an earlier one; a record without values
removes it.

Not here: which settings are in force (``routing.addresses.settings``, ``security.settings``).
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from enum import StrEnum
from typing import Final

from understudy.dataclass import dataclass
from understudy.store.log.format_version import FORMAT_VERSION_FIRST


class SettingKind(StrEnum):
    """Kind of a setting."""

    ADDRESS = "address"
    SECURITY = "security"
    SCALE_DOWN = "scale-down"
    """The node whose id is the match may have messages of this one that are still here."""
    GROUP = "group"
    """The queue of a member that gets the messages of the message group whose name is the match."""
    BRIDGE = "bridge"
    """A bridge that management created; the match is its name."""
    CONNECTOR = "connector"
    """A connector that management added; the match is its name."""
    MOVED_BRANCH = "moved-branch"
    """The node to which a scale-down moved the prepared XA branch whose name is the match, in hexadecimal digits."""
    MOVED_STORE = "moved-store"
    """A replica of the node whose id is the match has moved all messages of its store here (ADR 0126)."""
    EXCHANGE = "exchange"
    """The exchange of AMQP 0-9-1 whose name is the match (ADR 0185)."""
    EXCHANGE_BINDING = "exchange-binding"
    """A binding of such an exchange; the match has what identifies it."""
    CLIENT_SESSION = "client-session"
    """The client session of AMQP 0-9-1 whose UUID is the match, or a channel of it if ``/`` and its number follow
    (ADR 0195)."""
    READER = "reader"
    """The reader of the log whose name is the match (``store.named_readers``)."""

    @property
    def format_version(self) -> int:
        """Lowest format version of a log that may have a record of this kind (``log.format_version``)."""
        return _VERSIONS.get(self, 2)


#: Format versions of the kinds that do not need version 2.
_VERSIONS: Final = {
    SettingKind.ADDRESS: FORMAT_VERSION_FIRST,
    SettingKind.SECURITY: FORMAT_VERSION_FIRST,
    SettingKind.CONNECTOR: 3,
    SettingKind.MOVED_BRANCH: 4,
    SettingKind.MOVED_STORE: 5,
    SettingKind.EXCHANGE: 6,
    SettingKind.EXCHANGE_BINDING: 6,
    SettingKind.CLIENT_SESSION: 7,
}


@dataclass(frozen=True, slots=True)
class SettingRecord:
    """Settings of one match of addresses, as a record of the log."""

    scope: SettingKind
    match: str
    values: Mapping[str, object] | None
    """None: the setting was removed."""

    @property
    def of_this_log(self) -> bool:
        """Whether the record has a meaning in this log only: the position of a reader, as sequences begin anew in
        another."""
        return self.scope is SettingKind.READER

    @property
    def key(self) -> tuple[SettingKind, str]:
        """Key of the setting; a later record of the same key replaces it."""
        return self.scope, self.match


def encode_setting(record: SettingRecord) -> bytes:
    """Payload of SETTING."""
    values = None if record.values is None else dict(record.values)
    return json.dumps(
        {"kind": record.scope.value, "match": record.match, "values": values}, separators=(",", ":"), sort_keys=True
    ).encode("ascii")


def decode_setting(payload: bytes) -> SettingRecord:
    """The record of a payload. Raises ValueError or KeyError for what ``encode_setting`` did not write."""
    found = json.loads(payload)
    if not isinstance(found, dict):
        raise ValueError("a SETTING is no JSON object")
    match, values = found["match"], found["values"]
    if not isinstance(match, str) or not (values is None or isinstance(values, dict)):
        raise ValueError("a SETTING has no match or no values")
    return SettingRecord(SettingKind(found["kind"]), match, values)


def settings_by_key(records: Iterable[object]) -> dict[tuple[SettingKind, str], SettingRecord]:
    """The settings among the items of a checkpoint."""
    return {each.key: each for each in records if isinstance(each, SettingRecord)}
