"""Connectors that management added: checked, kept in the log, and read from it at the next activation.

Bridges that management creates reach their targets by them. Not here: bridges (``bridges``), the URL
(``config.added_connector``).
"""

from __future__ import annotations

import logging
from collections.abc import Sequence

from understudy.cluster.membership.connectors import Connectors
from understudy.config.added_connector import mask_passwords, parse_connector
from understudy.config.model import ConnectorConfiguration
from understudy.errors import LimitExceeded, ManagementError
from understudy.limits import SETTING_BYTES_MAX, SETTINGS_MAX
from understudy.store.messages.message_store import MessageStore
from understudy.store.setting_record import SettingKind, SettingRecord, encode_setting

log = logging.getLogger(__name__)


class AddedConnectors:
    """The connectors that were added in one activation."""

    def __init__(self, connectors: Connectors, store: MessageStore) -> None:
        """Adds those of the log. One that cannot be used, or whose name broker.xml has, is left aside.

        Args:
            store: Activated.
        """
        self._connectors = connectors
        self._store = store
        self._load()

    def _load(self) -> None:
        self._connectors.added.clear()
        for record in self._store.state.settings.values():
            if record.scope is not SettingKind.CONNECTOR:
                continue
            if record.match in self._connectors.configured:
                log.warning("a connector of broker.xml replaces an added one", extra={"connector": record.match})
                continue
            try:
                url = str((record.values or {}).get("url"))
                found = parse_connector(record.match, url, self._connectors.instance_directory)
            except ValueError as error:
                log.error(
                    "a connector that management added is left aside",
                    extra={"connector": record.match, "error": str(error)},
                )
            else:
                self._connectors.added[found.name] = found

    def all(self) -> Sequence[ConnectorConfiguration]:
        """All connectors of the node."""
        return self._connectors.all()

    def add(self, name: str, url: str) -> None:
        """Add a connector, which the next activations have too.

        Args:
            url: ``tcp://host:port`` with parameters. The log has its passwords masked, as far as masking goes: it is
                no encryption.

        Raises:
            ManagementError: the URL cannot be used, or there is a connector of this name.
            LimitExceeded: there are too many, or the URL is too long.
            DiskFull: it cannot be kept.
        """
        if self._connectors.get(name) is not None:
            raise ManagementError(f"there is a connector {name!r}")
        try:
            found = parse_connector(name, url, self._connectors.instance_directory)
        except ValueError as error:
            raise ManagementError(str(error)) from error
        if len(self._connectors.added) >= SETTINGS_MAX:
            raise LimitExceeded(f"{len(self._connectors.added)} added connectors, limit {SETTINGS_MAX}")
        record = SettingRecord(SettingKind.CONNECTOR, name, {"url": mask_passwords(url)})
        size_bytes = len(encode_setting(record))
        if size_bytes > SETTING_BYTES_MAX:
            raise LimitExceeded(f"a connector of {size_bytes} bytes, limit {SETTING_BYTES_MAX}")
        self._store.store_setting(record)
        self._connectors.added[name] = found

    def remove(self, name: str) -> None:
        """Remove a connector that management added; bridges that have it keep it until the next activation.

        Raises:
            ManagementError: there is none, or it is one of broker.xml.
            DiskFull: this cannot be kept.
        """
        if name in self._connectors.configured:
            raise ManagementError(f"connector {name!r} is one of broker.xml; remove it there")
        if name not in self._connectors.added:
            raise ManagementError(f"there is no connector {name!r}")
        self._store.store_setting(SettingRecord(SettingKind.CONNECTOR, name, None))
        del self._connectors.added[name]
