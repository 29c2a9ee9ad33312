"""A changed file beside a running configuration: applied elements, and the names of those that need a restart."""

from __future__ import annotations

from dataclasses import replace

from understudy.config.changes import changes
from understudy.config.high_availability import HighAvailabilityPolicy, Role
from understudy.config.model import (
    AcceptorConfiguration,
    AddressConfiguration,
    AddressSettingsConfiguration,
    Configuration,
    ConnectorConfiguration,
    SecuritySettingConfiguration,
)
from understudy.terms import DivertDefinition
from understudy.wildcards import Wildcards

RUNNING = Configuration(
    acceptors=(AcceptorConfiguration("a", "h", 1), AcceptorConfiguration("b", "h", 2)),
    connectors=(ConnectorConfiguration("c", "h", 1),),
)


def test_the_same_file_changes_nothing() -> None:
    change = changes(RUNNING, RUNNING)
    assert (change.configuration, change.applied, change.restart) == (RUNNING, (), ())


def test_addresses_settings_security_and_diverts_are_taken() -> None:
    read = replace(
        RUNNING,
        addresses=(AddressConfiguration("a", frozenset()),),
        address_settings=(AddressSettingsConfiguration("#", max_delivery_attempts=2),),
        security_settings=(SecuritySettingConfiguration("#"),),
        diverts=(DivertDefinition("d", "a", "b"),),
    )
    change = changes(RUNNING, read)
    assert change.configuration == read
    assert change.applied == ("addresses", "address-settings", "security-settings", "diverts")
    assert change.restart == ()


def test_changes_that_need_a_restart_are_named_and_not_applied() -> None:
    read = replace(
        RUNNING,
        name="other",
        journal_min_files=9,
        global_max_size_bytes=5,
        ha_policy=HighAvailabilityPolicy(role=Role.PRIMARY),
        wildcards=Wildcards(delimiter="/"),
        acceptors=(AcceptorConfiguration("a", "h", 1), AcceptorConfiguration("new", "h", 3)),
        connectors=(ConnectorConfiguration("c", "other", 1),),
    )
    change = changes(RUNNING, read)
    assert change.configuration == RUNNING
    assert change.applied == ()
    assert set(change.restart) == {
        "name",
        "journal-min-files",
        "global-max-size",
        "ha-policy",
        "wildcard-addresses",
        "acceptors/acceptor[@name='b']",
        "acceptors/acceptor[@name='new']",
        "connectors/connector[@name='c']",
    }
