"""Bridges that management created: checked, kept in the log, and read from it at the next activation.

A stored bridge that cannot be used any more, because its connector is not there any more, is left aside with an
error in the log; the record stays. Not here: bridges that run (``bridges``), names and values (``config.json_bridge``).
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import replace

from understudy.cluster.membership.connectors import Connectors
from understudy.config.bridge import BridgeConfiguration
from understudy.config.json_bridge import parse_bridge
from understudy.config.model import Configuration
from understudy.config.password_codec import PasswordCodec
from understudy.errors import LimitExceeded, ManagementError
from understudy.limits import SETTING_BYTES_MAX, SETTINGS_MAX
from understudy.store.messages.message_store import MessageStore
from understudy.store.setting_record import SettingKind, SettingRecord, encode_setting

log = logging.getLogger(__name__)


class StoredBridges:
    """Bridges that one node keeps in its log."""

    def __init__(self, configuration: Configuration, connectors: Connectors, store: MessageStore) -> None:
        """Args:
        connectors: Connectors of the node, by which its bridges reach their targets.
        store: Activated.
        """
        self._configuration = configuration
        self._connectors = connectors
        self._store = store

    def _records(self) -> list[SettingRecord]:
        return [each for each in self._store.state.settings.values() if each.scope is SettingKind.BRIDGE]

    def load(self) -> list[BridgeConfiguration]:
        """The bridges that the log has and that can be used."""
        found = []
        for record in self._records():
            values = dict(record.values or {})
            try:
                if isinstance(values.get("password"), str):
                    values["password"] = PasswordCodec().unmask(str(values["password"]))
                found.append(self._parse(values))
            except ValueError as error:
                log.error(
                    "a bridge that management created is left aside",
                    extra={"bridge": record.match, "error": str(error)},
                )
        return found

    def _parse(self, values: Mapping[str, object]) -> BridgeConfiguration:
        return parse_bridge(values, replace(self._configuration, connectors=tuple(self._connectors.all())))

    def parse(self, values: Mapping[str, object]) -> BridgeConfiguration:
        """Make the bridge that these values describe. Raises ManagementError: one of them cannot be used."""
        try:
            return self._parse(values)
        except ValueError as error:
            raise ManagementError(f"bridge {values.get('name')!r}: {error}") from error

    def keep(self, name: str, values: Mapping[str, object]) -> None:
        """Write a bridge to the log. Raises LimitExceeded, DiskFull."""
        count = len(self._records())
        if count >= SETTINGS_MAX:
            raise LimitExceeded(f"{count} bridges, limit {SETTINGS_MAX}")
        kept = {key: value for key, value in values.items() if value is not None}
        if "password" in kept:
            kept["password"] = PasswordCodec().mask(str(kept["password"]))
        record = SettingRecord(SettingKind.BRIDGE, name, kept)
        size_bytes = len(encode_setting(record))
        if size_bytes > SETTING_BYTES_MAX:
            raise LimitExceeded(f"a bridge of {size_bytes} bytes, limit {SETTING_BYTES_MAX}")
        self._store.store_setting(record)

    def forget(self, name: str) -> None:
        """Remove a bridge from the log, if it is there. Raises DiskFull."""
        if (SettingKind.BRIDGE, name) in self._store.state.settings:
            self._store.store_setting(SettingRecord(SettingKind.BRIDGE, name, None))
