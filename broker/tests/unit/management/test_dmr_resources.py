"""The table of resources against the schema of broker.xml, and against the tables of the documents."""

from __future__ import annotations

from decimal import Decimal
from pathlib import Path

import pytest

from support.document_lines import LINES
from understudy.config.schema.grammar import Element, Kind, Support
from understudy.errors import ManagementError
from understudy.management.dmr.kinds import Attribute, Effect, ResourceType, Type
from understudy.management.dmr.resources import ALL, CONFIGURATIONS, RESOURCES, SERVER, SOCKET_BINDINGS
from understudy.management.dmr.resources import resource_type as type_of

PAGE = Path(__file__).parents[4] / "docs" / "operate" / "management-cli.md"
NUMBERS = (Kind.INTEGER, Kind.LONG, Kind.BYTES, Kind.MILLISECONDS, Kind.SECONDS, Kind.PERCENT)
KINDS = {
    Type.BOOLEAN: (Kind.BOOLEAN,),
    Type.INT: NUMBERS,
    Type.LONG: NUMBERS,
    Type.DECIMAL: (Kind.DECIMAL,),
    Type.STRING: (Kind.TEXT, Kind.CHOICE, Kind.PATH),
    Type.LIST: (Kind.TEXT,),
}
SERVED = list(ALL)
WRITABLE = [(kind, each) for kind in SERVED for each in kind.attributes if each.unserved is None and not each.runtime]


@pytest.mark.parametrize(("kind", "attribute"), WRITABLE, ids=lambda each: getattr(each, "name", None) or each.type)
def test_an_attribute_is_an_element_of_its_kind_that_the_broker_carries_out(
    kind: ResourceType, attribute: Attribute
) -> None:
    row = kind.row(attribute)
    assert row.kind in KINDS[attribute.type]
    assert row.support in (Support.IMPLEMENTED, Support.NO_EFFECT)
    assert not isinstance(row, Element) or row.repeated == (
        attribute.type is Type.LIST or (kind.name is None and kind is not SERVER and not attribute.element)
    )


@pytest.mark.parametrize("kind", SERVED, ids=lambda each: f"{each.type}={each.name}")
def test_no_two_attributes_of_a_resource_share_a_name(kind: ResourceType) -> None:
    names = [name for each in kind.attributes for name in each.names]
    assert len(names) == len(set(names))
    assert kind.doc


@pytest.mark.parametrize(
    ("name", "defaults"),
    [
        (
            "replication-master",
            {
                "check-for-live-server": False,
                "cluster-name": None,
                "group-name": None,
                "initial-replication-sync-timeout": 30000,
            },
        ),
        (
            "replication-slave",
            {
                "allow-failback": True,
                "cluster-name": None,
                "group-name": None,
                "initial-replication-sync-timeout": 30000,
                "max-saved-replicated-journal-size": 2,
                "restart-backup": True,
            },
        ),
        ("shared-store-master", {"failover-on-server-shutdown": False}),
        (
            "shared-store-slave",
            {"allow-failback": True, "failover-on-server-shutdown": False, "restart-backup": True},
        ),
    ],
)
def test_the_tables_of_the_documents_name_the_attributes_and_defaults_of_a_policy(
    name: str, defaults: dict[str, object]
) -> None:
    kind = type_of("ha-policy", name)
    assert kind is not None
    assert {each.name: kind.default(each) for each in kind.attributes if not each.runtime} == defaults


@pytest.mark.parametrize(
    "line", [each for each in LINES if not each.has_placeholder], ids=lambda each: str(each.number)
)
def test_a_line_of_the_documents_names_a_resource_and_attributes_of_the_table(line) -> None:  # type: ignore[no-untyped-def]
    operation = line.parsed()
    kind_name, name = operation.address[-1]
    among = SOCKET_BINDINGS if kind_name == "socket-binding" else RESOURCES
    kind = SERVER if kind_name == "server" else type_of(kind_name, name, among)
    assert kind is not None
    written = operation.arguments if operation.name == "add" else [operation.arguments.get("name")]
    for each in filter(None, written):
        kind.attribute(str(each))


@pytest.mark.parametrize(
    ("later", "earlier"),
    [
        ("replication-primary", "replication-master"),
        ("replication-secondary", "replication-slave"),
        ("shared-store-primary", "shared-store-master"),
        ("shared-store-secondary", "shared-store-slave"),
        ("primary-only", "live-only"),
    ],
)
def test_policies_have_their_later_names_as_well(later: str, earlier: str) -> None:
    assert type_of("ha-policy", later) is type_of("ha-policy", earlier)
    assert type_of("ha-policy", later) is not None
    assert type_of("acceptor", "a") is type_of("remote-acceptor", "a")
    assert type_of("ha-policy", "another") is None


@pytest.mark.parametrize(
    ("kind", "value", "text"),
    [
        (Type.BOOLEAN, "TRUE", "true"),
        (Type.BOOLEAN, False, "false"),
        (Type.INT, "-1", "-1"),
        (Type.LONG, "30000L", "30000"),
        (Type.LONG, 5, "5"),
        (Type.DECIMAL, Decimal("1.5"), "1.5"),
        (Type.DECIMAL, "2E1", "20"),
        (Type.STRING, 5, "5"),
        (Type.INT, "${n:5}", "${n:5}"),
        (Type.LIST, ["a", "b"], ("a", "b")),
        (Type.LIST, "a", ("a",)),
    ],
)
def test_values_become_texts_of_broker_xml(kind: Type, value: object, text: object) -> None:
    assert Attribute("a", kind).converted(value) == text  # type: ignore[arg-type]  # a value


@pytest.mark.parametrize(
    ("kind", "value"),
    [
        (Type.BOOLEAN, "yes"),
        (Type.INT, "many"),
        (Type.INT, True),
        (Type.LONG, "1.5"),
        (Type.LONG, "٣"),
        (Type.DECIMAL, "Infinity"),
        (Type.DECIMAL, "1E999999999"),
        (Type.DECIMAL, "1E-999999999"),
        (Type.STRING, ["a"]),
        (Type.STRING, None),
        (Type.LIST, [["a"]]),
        (Type.LIST, [""]),
    ],
)
def test_values_of_another_type_are_refused(kind: Type, value: object) -> None:
    with pytest.raises(ManagementError, match=rf"WFLYCTL0097: Wrong type for 'a': {kind.value} expected"):
        Attribute("a", kind).converted(value)  # type: ignore[arg-type]  # a value


def test_the_page_of_the_cli_has_every_resource_with_its_attributes() -> None:
    lines = PAGE.read_text().splitlines()
    below = [kind for _, kind in CONFIGURATIONS]
    for kind in (each for each in SERVED if each not in below):
        (row,) = [line for line in lines if line.startswith(f"| `{kind.type}={kind.name or 'NAME'}`")]
        names = [*kind.aliases, *kind.type_aliases]
        names += [name for each in kind.attributes if not each.unserved for name in each.names]
        assert [name for name in names if f"`{name}`" not in row] == []
        assert row.endswith("| at once |" if kind.effect is Effect.LIVE else "| reload |")
