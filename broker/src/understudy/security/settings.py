"""The security settings of a node: those of broker.xml and those added by management.

A setting added by management replaces that of broker.xml for the same match until it is removed. For an
address the most specific match applies and nothing is inherited from less specific ones; a setting for
``address::queue`` applies to that queue only, before any other (manual, "Role-based security for addresses").

Not here: users and roles (``authentication``), decisions (``authorization``), the log (``routing``).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Final

from understudy.config.model import SecuritySettingConfiguration
from understudy.wildcards import DEFAULT_WILDCARDS, Wildcards, fits, is_pattern, looked_up_name, specificity

FQQN_SEPARATOR: Final = "::"
"""Separates address and queue in a fully qualified queue name."""


class SecuritySettings:
    """Security settings by match."""

    def __init__(
        self,
        configured: Iterable[SecuritySettingConfiguration] = (),
        wildcards: Wildcards = DEFAULT_WILDCARDS,
    ) -> None:
        """Args:
        configured: Settings of broker.xml, each match once.
        wildcards: Syntax of wildcards.
        """
        self.wildcards = wildcards
        self.listeners: list[Callable[[], None]] = []
        """Called after every change of settings, users or roles."""
        self._configured = {setting.match: setting for setting in configured}
        self._added: dict[str, SecuritySettingConfiguration] = {}
        self._exact: dict[str, SecuritySettingConfiguration] = {}
        self._wild: list[SecuritySettingConfiguration] = []
        self._sort()

    def configure(self, configured: Iterable[SecuritySettingConfiguration], wildcards: Wildcards | None = None) -> None:
        """Replace the settings of broker.xml; those added by management stay."""
        self._configured = {setting.match: setting for setting in configured}
        if wildcards is not None:
            self.wildcards = wildcards
        self._changed()

    def restore(self, added: Iterable[SecuritySettingConfiguration]) -> None:
        """Replace all settings added by management with those of the log."""
        self._added = {setting.match: setting for setting in added}
        self._changed()

    def add(self, setting: SecuritySettingConfiguration) -> None:
        """Add a setting for management."""
        self._added[setting.match] = setting
        self._changed()

    def remove(self, match: str) -> None:
        """Remove a setting added by management; that of broker.xml for the match applies again."""
        if self._added.pop(match, None) is not None:
            self._changed()

    def entries(self) -> Iterator[tuple[SecuritySettingConfiguration, bool]]:
        """Each setting in force, and whether management added it."""
        for match, setting in (self._configured | self._added).items():
            yield setting, match in self._added

    def _changed(self) -> None:
        self._sort()
        self.notify()

    def notify(self) -> None:
        """Notify the listeners that settings, users or roles changed, so that they drop cached answers."""
        for listener in self.listeners:
            listener()

    def _sort(self) -> None:
        self._exact = {}
        wild: list[SecuritySettingConfiguration] = []
        for setting in (self._configured | self._added).values():
            if FQQN_SEPARATOR not in setting.match and is_pattern(setting.match, self.wildcards):
                wild.append(setting)
            else:
                self._exact[setting.match] = setting
        self._wild = sorted(wild, key=lambda setting: specificity(setting.match, self.wildcards))

    def of(self, address: str, queue: str | None = None) -> SecuritySettingConfiguration | None:
        """The setting that applies to an address, or to one of its queues; None: every permission is refused."""
        if queue is not None:
            setting = self._exact.get(f"{address}{FQQN_SEPARATOR}{queue}")
            if setting is not None:
                return setting
        address = looked_up_name(address, self.wildcards)
        setting = self._exact.get(address)
        if setting is not None:
            return setting
        return next((each for each in self._wild if fits(each.match, address, self.wildcards)), None)
