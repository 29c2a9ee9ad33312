"""The address settings and security settings in force on an active node, and their changes at run time.

Three sources are laid over each other: what the log keeps of management's additions goes before broker.xml
for the same match (as in Artemis, which reads stored settings after those of the file), and both before the
defaults. A change counts at once: for addresses and queues that exist, for what a session was permitted
before, and for every answer that was remembered. It is written to the log first, so a restart and a failover
find it.

Removing takes back what management added; the block of broker.xml for the same match, if there is one, counts
again. Not here: names and values (``config.json_settings``), reading a changed file (``runtime.reloading``).
"""

from __future__ import annotations

import logging
from collections.abc import Mapping

from understudy.config.json_settings import (
    check_security_match,
    check_setting_match,
    parse_address_setting,
    parse_security_setting,
    security_values,
    without_effect,
)
from understudy.config.model import (
    AddressSettingsConfiguration,
    Configuration,
    Permission,
    SecuritySettingConfiguration,
)
from understudy.errors import LimitExceeded, ManagementError, StoreError
from understudy.limits import SETTING_BYTES_MAX, SETTINGS_MAX
from understudy.routing.post_office import PostOffice
from understudy.security.settings import SecuritySettings
from understudy.session.registry import SessionRegistry
from understudy.store.message_store import MessageStore
from understudy.store.setting_record import SettingKind, SettingRecord, encode_setting
from understudy.store.state import StoreState

log = logging.getLogger(__name__)


class NodeSettings:
    """Settings of one activation."""

    def __init__(
        self, office: PostOffice, security: SecuritySettings, registry: SessionRegistry, store: MessageStore
    ) -> None:
        """Args:
        office: Its directory has the address settings.
        security: The security settings, also while security is not enabled.
        registry: Sessions, which remember what they were permitted.
        store: Keeps what management adds.
        """
        self._office = office
        self._security = security
        self._registry = registry
        self._store = store
        self._matches: dict[SettingKind, set[str]] = {kind: set() for kind in SettingKind}
        security.listeners.append(self._forget_permissions)

    def close(self) -> None:
        """The node is not active any more; the security settings outlive that."""
        self._security.listeners.remove(self._forget_permissions)

    def restore(self, state: StoreState) -> None:
        """Take over what the log has, before any address is made.

        Raises:
            StoreError: a setting that no broker could have written.
        """
        restored: list[SecuritySettingConfiguration] = []
        for record in state.settings.values():
            self._matches[record.scope].add(record.match)
            try:
                if record.scope is SettingKind.ADDRESS:
                    setting = parse_address_setting(record.match, record.values or {})
                    self._office.directory.settings.add(setting)
                else:
                    restored.append(parse_security_setting(record.match, record.values or {}))
            except ValueError as error:
                raise StoreError(f"the {record.scope} setting {record.match!r} in the log is none: {error}") from error
        self._security.restore(restored)

    # -- by management ----------------------------------------------------------------------------

    def add_address_setting(self, match: str, values: Mapping[str, object]) -> AddressSettingsConfiguration:
        """Add or replace the address setting of a match.

        Args:
            match: Address or wildcard.
            values: By JSON name; what is left out or null comes from less specific matches.

        Raises:
            ManagementError: a match, name or value that cannot be used; nothing was changed.
            LimitExceeded: too many settings, or too large a one.
        """
        try:
            check_setting_match(match, self._office.directory.settings.wildcards)
            setting = parse_address_setting(match, values)
        except ValueError as error:
            raise ManagementError(str(error)) from error
        idle = without_effect(values)
        if idle:
            log.warning("address settings without effect in this version", extra={"match": match, "names": idle})
        given = {name: value for name, value in values.items() if value is not None}
        self._keep(SettingRecord(SettingKind.ADDRESS, match, given))
        self._office.directory.settings.add(setting)
        self._office.apply_settings()
        return setting

    def remove_address_setting(self, match: str) -> None:
        """Take back the address setting that management added for a match; nothing happens without one."""
        if self._forget(SettingKind.ADDRESS, match):
            self._office.directory.settings.remove(match)
            self._office.apply_settings()

    def add_security_setting(self, match: str, permissions: Mapping[Permission, frozenset[str]]) -> None:
        """Add or replace the security setting of a match. Raises as ``add_address_setting``."""
        try:
            check_security_match(match, self._security.wildcards)
        except ValueError as error:
            raise ManagementError(str(error)) from error
        self._keep(SettingRecord(SettingKind.SECURITY, match, security_values(permissions)))
        self._security.add(SecuritySettingConfiguration(match, permissions))

    def remove_security_setting(self, match: str) -> None:
        """Take back the security setting that management added for a match; nothing happens without one."""
        if self._forget(SettingKind.SECURITY, match):
            self._security.remove(match)

    def _keep(self, record: SettingRecord) -> None:
        known = self._matches[record.scope]
        if record.match not in known and len(known) >= SETTINGS_MAX:
            raise LimitExceeded(f"{len(known)} {record.scope} settings, limit {SETTINGS_MAX}")
        size_bytes = len(encode_setting(record))
        if size_bytes > SETTING_BYTES_MAX:
            raise LimitExceeded(f"a setting of {size_bytes} bytes, limit {SETTING_BYTES_MAX}")
        self._store.store_setting(record)
        known.add(record.match)

    def _forget(self, kind: SettingKind, match: str) -> bool:
        known = self._matches[kind]
        if match not in known:
            return False
        self._store.store_setting(SettingRecord(kind, match, None))
        known.remove(match)
        return True

    # -- by the configuration ---------------------------------------------------------------------

    def configure(self, configuration: Configuration) -> None:
        """Take the address settings and security settings of a changed broker.xml."""
        self._office.directory.settings.configure(configuration.address_settings)
        self._office.apply_settings()
        self._security.configure(configuration.security_settings)

    def _forget_permissions(self) -> None:
        """Have every session ask again before its next message."""
        for session in self._registry:
            session.sends.forget_permissions()
