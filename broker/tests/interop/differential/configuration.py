"""How both brokers are configured for the programs."""

from __future__ import annotations

from pathlib import Path

from support.targets import Target, start_target

#: Addresses that are created automatically are deleted with their last queue, which is the default. Deletion of idle
#: queues is not observed: its moment differs between the brokers.
_SETTINGS = """
      <address-setting match="plain.#">
        <auto-delete-addresses>true</auto-delete-addresses>
      </address-setting>
"""
#: So small that a few messages are paged (``exclusions.READ_BACK``).
_PAGING = """
      <address-setting match="paged.#">
        <max-size-bytes>20000</max-size-bytes>
        <page-size-bytes>10000</page-size-bytes>
        <max-read-page-bytes>-1</max-read-page-bytes>
        <max-read-page-messages>-1</max-read-page-messages>
        <auto-delete-addresses>{auto_delete}</auto-delete-addresses>
        <address-full-policy>PAGE</address-full-policy>
      </address-setting>
"""
_SCAN_PERIOD_MS = 3_600_000


def start(name: str, directory: Path, artemis: Path | None, *, restarted: bool = False) -> Target:
    """A broker of that kind for programs.

    Args:
        name: ``understudy`` or ``artemis``.
        directory: Directory in which only this broker keeps its files.
        artemis: The distribution's command.
        restarted: Whether the programs restart the broker (``exclusions.IDLE_AT_START``).
    """
    return start_target(
        name,
        directory,
        artemis if name == "artemis" else None,
        settings=_PAGING.format(auto_delete="false") if restarted else _SETTINGS + _PAGING.format(auto_delete="true"),
        scan_period_ms=_SCAN_PERIOD_MS,
        expiry_scan_period_ms=_SCAN_PERIOD_MS,
    )
