"""The address settings and security settings in force on an active node, and their changes at run time.

Settings come from three sources: settings added by management, which are stored in the log, take precedence over
broker.xml for the same match (as in Artemis, which applies stored settings after those of the file), and both over
the defaults. A change applies at once: to existing addresses and queues, to permissions that sessions have checked
before, and to all cached answers. It is written to the log first, so that it survives a restart and a failover.

Removing a setting removes the one added by management; that of broker.xml for the same match, if there is one, applies
again. Not here: names and values (``config.json_settings``), reading a changed file (``runtime.process.reloading``).
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
from understudy.config.model import AddressSettingsConfiguration, Configuration, SecuritySettingConfiguration
from understudy.errors import LimitExceeded, ManagementError, StoreError
from understudy.limits import SETTING_BYTES_MAX, SETTINGS_MAX
from understudy.routing.post_office import PostOffice
from understudy.security.settings import SecuritySettings
from understudy.session.registry import SessionRegistry
from understudy.session.session import ServerSession
from understudy.store.messages.message_store import MessageStore
from understudy.store.setting_record import SettingKind, SettingRecord, encode_setting
from understudy.store.state import StoreState
from understudy.terms import Permission

log = logging.getLogger(__name__)


class NodeSettings:
    """Settings of one activation that management can read."""

    def __init__(
        self,
        office: PostOffice,
        security: SecuritySettings,
        registry: SessionRegistry[ServerSession],
        store: MessageStore,
    ) -> None:
        """Args:
        office: Post office, whose directory holds the address settings.
        security: The security settings, also if security is disabled.
        registry: Registry of the sessions, which cache permissions.
        store: Store of the settings added by management.
        """
        self._office = office
        self._security = security
        self._registry = registry
        self._store = store
        self._matches: dict[SettingKind, set[str]] = {kind: set() for kind in SettingKind}
        security.listeners.append(registry.forget_permissions)

    def close(self) -> None:
        """Stop listening to the security settings, when the node is not active any more."""
        self._security.listeners.remove(self._registry.forget_permissions)

    def restore(self, state: StoreState) -> None:
        """Restore the settings in the log, before any address is created.

        Raises:
            StoreError: an invalid setting.
        """
        restored: list[SecuritySettingConfiguration] = []
        for record in state.settings.values():
            if record.scope not in (SettingKind.ADDRESS, SettingKind.SECURITY):
                continue
            self._matches[record.scope].add(record.match)
            try:
                if record.scope is SettingKind.ADDRESS:
                    setting = parse_address_setting(record.match, record.values or {})
                    self._office.directory.settings.add(setting)
                else:
                    restored.append(parse_security_setting(record.match, record.values or {}))
            except ValueError as error:
                raise StoreError(f"the {record.scope} setting {record.match!r} is invalid: {error}") from error
        self._security.restore(restored)

    # -- by management ----------------------------------------------------------------------------

    def add_address_setting(self, match: str, values: Mapping[str, object]) -> AddressSettingsConfiguration:
        """Add or replace the address setting of a match.

        Args:
            match: Address or wildcard.
            values: Values by JSON name; absent and null values are inherited from less specific matches.

        Raises:
            ManagementError: invalid match, name or value; nothing was changed.
            LimitExceeded: too many settings, or the setting is too large.
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
        """Remove the address setting that management added for a match, if there is one."""
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
        """Remove the security setting that management added for a match, if there is one."""
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
        """Apply the address settings and security settings of a changed broker.xml."""
        self._office.directory.settings.configure(configuration.address_settings)
        self._office.apply_settings()
        self._security.configure(configuration.security_settings)
