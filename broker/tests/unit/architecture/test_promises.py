"""Every row that the schema calls implemented is used by the code.

Goal: "yes" in docs/operate/configuration.md is never a wish. Method: ``ast`` over the source; the field of
every implemented row must be used outside of the package ``config``. It cannot tell whether it is used
well, only that it is not forgotten.
"""

from __future__ import annotations

import ast
import dataclasses

import pytest

from support.architecture import modules
from understudy.config.model import AddressSettingsConfiguration
from understudy.config.schema.cluster_rows import OLD_HA_ROWS
from understudy.config.schema.grammar import Element, Kind, Support
from understudy.config.schema.schema import element_at
from understudy.routing.addresses.settings import AddressSettings

#: Used in the package ``config`` itself, or read through ``Configuration.store_directories``, ``lock_directory`` and
#: ``wildcards``.
THROUGH_METHODS = {
    # the old form of ha-policy
    *(row.field for row in OLD_HA_ROWS),
    "bindings_directory",
    "large_messages_directory",
    "paging_directory",
    "wild_card_routing_enabled",
    # the old form of message_load_balancing
    "forward_when_no_consumers",
    # methods of ``wildcards``
    "literal_match_markers",
    "uuid_namespace",
    "create_bindings_dir",
    "create_journal_dir",
    # the reader unmasks the passwords
    "mask_password",
    "password_codec",
}


@pytest.fixture(scope="module")
def read_elsewhere() -> set[str]:
    """Attribute names used anywhere outside config/."""
    return {
        node.attr
        for module in modules().values()
        if module.package != "config"
        for node in module.nodes
        if isinstance(node, ast.Attribute)
    }


def implemented(path: str) -> list[Element]:
    return [
        row
        for row in element_at(path).children
        if row.kind is not Kind.CONTAINER and row.support is Support.IMPLEMENTED and not row.repeated
    ]


@pytest.mark.parametrize(
    "path",
    [
        "core",
        "core/cluster-connections/cluster-connection",
        "core/ha-policy/shared-store/primary",
        "core/ha-policy/shared-store/backup",
    ],
)
def test_an_implemented_value_is_read_outside_the_configuration(path: str, read_elsewhere: set[str]) -> None:
    rows = implemented(path)
    assert rows
    forgotten = [row.name for row in rows if row.field not in read_elsewhere | THROUGH_METHODS]
    assert not forgotten, "wire them, or mark them not_yet in the schema"


def test_values_read_through_methods_are_used() -> None:
    assert {"store_directories", "wildcards"} <= {
        node.attr
        for module in modules().values()
        if module.package in ("runtime", "broker")
        for node in module.nodes
        if isinstance(node, ast.Attribute)
    }


def test_an_implemented_address_setting_is_a_setting_of_routing() -> None:
    known = {each.name for each in dataclasses.fields(AddressSettings)}
    rows = implemented("core/address-settings/address-setting")
    assert len(rows) > 30
    assert {row.name.replace("-", "_") for row in rows} <= known
    assert known <= {each.name for each in dataclasses.fields(AddressSettingsConfiguration)}
