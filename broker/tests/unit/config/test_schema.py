"""The schema against itself, against the dataclasses, and against documents made from its rows.

Goal: no row can be wrong in a way that only a user would notice. Method: every row of the tree is
put into a document in its right place, with a good value, a wrong value, twice, and misspelt.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable

import pytest

from support.config import FILE, REFUSED, REPORTED, ROWS, around, core, minimal, opening, parent_of, read, sample, wrong
from understudy.config import model
from understudy.config.high_availability import NetworkCheckConfiguration
from understudy.config.reading.document import ConfigErrors, Document, Node
from understudy.config.schema.address_rows import PERMISSIONS
from understudy.config.schema.cluster_rows import OLD_HA_ROWS
from understudy.config.schema.grammar import Element, Kind, Support, parse_value
from understudy.config.schema.schema import CORE, PLACES, Defaults, element_at
from understudy.errors import ConfigError

VALUED = [(path, row) for path, row in ROWS if row.kind not in (Kind.CONTAINER, Kind.TEXT, Kind.PATH)]
#: Values that become a part of others.
USED_BY_THE_READER = {
    "wild-card-routing-enabled",
    "literal-match-markers",
    "uuid-namespace",
    "mask-password",
    "password-codec",
}
Rows = list[tuple[str, Element]]
Check = Callable[[str, Element], None]


def over(rows: Rows) -> Callable[[Check], Callable[[Rows], None]]:
    """Makes of a check of one row a test for each section of the schema; a failure names its row."""
    sections: dict[str, Rows] = {}
    for path, row in rows:
        section = path.split("/")[1] if "/" in path.removeprefix("core/") or row.children else "values"
        sections.setdefault(section, []).append((path, row))

    def make(check: Check) -> Callable[[Rows], None]:
        @pytest.mark.parametrize("section", sections.values(), ids=sections.keys())
        def test(section: Rows) -> None:
            for path, row in section:
                try:
                    check(path, row)
                except BaseException as error:
                    error.add_note(f"row {path}")
                    raise

        test.__doc__ = check.__doc__
        return test

    return make


def parse(data: bytes) -> tuple[Node, Document]:
    document = Document(FILE, {})
    nodes = document.parse(data)
    document.finish()
    return nodes[0], document


def fault(data: bytes, text: str) -> ConfigError:
    """The first error of a document whose message contains a text."""
    with pytest.raises(ConfigError) as caught:
        parse(data)
    error = caught.value
    return next(each for each in (error.errors if isinstance(error, ConfigErrors) else [error]) if text in str(each))


def find(node: Node, path: str) -> Node:
    for name in path.split("/")[1:]:
        child = node.child(name)
        assert child is not None, f"{name} of {path}"
        node = child
    return node


@over(ROWS)
def test_a_default_is_a_value_of_its_row(path: str, row: Element) -> None:
    if row.default is not None:
        parse_value(row.default, row)
    for attribute in row.attributes:
        if attribute.default is not None:
            parse_value(attribute.default, attribute)
        assert not (attribute.required and attribute.default is not None)


@over(ROWS)
def test_a_row_is_documented(path: str, row: Element) -> None:
    assert row.doc.endswith((".", "parameters"))
    assert row.default is None or row.kind is not Kind.CONTAINER
    assert all(attribute.doc.endswith(".") for attribute in row.attributes)
    if row.support in (Support.NO_EFFECT, Support.REFUSED) and (path, row) in REPORTED + REFUSED:
        assert row.note, "an operator wants to know why"


@over(VALUED)
def test_a_wrong_value_is_an_error_with_path_and_line(path: str, row: Element) -> None:
    data, line = around(parent_of(path), f"{opening(row)}{wrong(row)}</{row.name}>")
    error = fault(data, f"/{row.name}")
    assert error.line == line
    assert error.file == FILE
    assert row.name in error.path.rpartition("/")[2]


@over(ROWS)
def test_a_wrong_attribute_is_an_error_with_path_and_line(path: str, row: Element) -> None:
    for attribute in row.attributes:
        if attribute.kind in (Kind.TEXT, Kind.PATH):
            continue
        data, line = around(parent_of(path), f"{opening(row, changed={attribute.name: wrong(attribute)})}</{row.name}>")
        error = fault(data, f"@{attribute.name}")
        assert error.line == line
        assert error.path.endswith(f"@{attribute.name}")


@over(ROWS)
def test_a_missing_or_unknown_attribute_is_an_error(path: str, row: Element) -> None:
    for attribute in row.attributes:
        if attribute.required:
            data, line = around(parent_of(path), f"{opening(row, changed={attribute.name: None})}</{row.name}>")
            assert fault(data, f"'{attribute.name}' is missing").line == line
    data, line = around(parent_of(path), f"{opening(row, changed={'surprise': 'x'})}</{row.name}>")
    assert fault(data, "unknown attribute 'surprise'").line == line


@over(ROWS)
def test_a_second_one_is_an_error_unless_it_is_a_value_or_a_list(path: str, row: Element) -> None:
    data, line = around(parent_of(path), f"{minimal(row)}\n{minimal(row)}")
    if row.repeated:
        parent = element_at(parent_of(path))
        if not any(child.required and child.name != row.name for child in parent.children):
            parse_unless_refused(data)
        return
    if row.kind is Kind.CONTAINER:
        assert fault(data, f"{row.name} stands twice").line == line + 1
        return
    document = Document(FILE, {})
    document.parse(data)
    assert [each.line for each in document.warnings if "stands twice" in each.message] == [line + 1]
    assert not [each for each in document.errors if "stands twice" in str(each)]


def parse_unless_refused(data: bytes) -> Node | None:
    try:
        return parse(data)[0]
    except ConfigError as error:
        if "not available in this version" in str(error) or " is missing" in str(error):
            return None
        raise


@over(ROWS)
def test_a_misspelt_child_is_an_error_with_a_hint(path: str, row: Element) -> None:
    for child in row.children[:1]:
        misspelt = f"{child.name}x"
        data, line = around(path, f"<{misspelt}/>")
        error = fault(data, f"unknown element '{misspelt}'")
        assert error.line == line
        assert error.path.endswith(f"/{misspelt}")
        assert f"did you mean '{child.name}'?" in str(error)


@over(REPORTED)
def test_an_ignored_element_gives_one_warning(path: str, row: Element) -> None:
    body = minimal(row) + (minimal(row) if row.repeated else "")
    required = "".join(
        minimal(child) for child in element_at(parent_of(path)).children if child.required and child.name != row.name
    )
    data, line = around(parent_of(path), body + required)
    _, document = parse(data)
    named = [warning for warning in document.warnings if row.name in warning.message]
    assert len(named) == 1
    assert named[0].line == line
    assert str(named[0]).startswith(f"{FILE}:{line} core")


@over(REFUSED)
def test_an_element_that_is_unsafe_to_ignore_is_an_error(path: str, row: Element) -> None:
    if row.kind is Kind.CONTAINER:
        body = minimal(row)
    else:
        other = {"true": "false", "false": "true"}.get(row.default or "", "7")
        body = f"{opening(row)}{other}</{row.name}>"
    data, line = around(parent_of(path), body)
    error = fault(data, "not available in this version")
    assert error.line == line
    assert row.note in str(error)


@over(REFUSED)
def test_a_refused_element_may_have_its_default_value(path: str, row: Element) -> None:
    if row.kind is not Kind.CONTAINER and row.default is not None:
        data, _ = around(parent_of(path), f"{opening(row)}{row.default}</{row.name}>")
        parse(data)
    elif "enabled" in row.by_name:
        data, _ = around(parent_of(path), f"{opening(row)}<enabled>false</enabled></{row.name}>")
        parse(data)


@over([(path, row) for path, row in ROWS if row.aliases])
def test_an_old_name_is_read_as_the_new_one(path: str, row: Element) -> None:
    for alias in row.aliases:
        data, _ = around(parent_of(path), minimal(row, name=alias))
        node = parse_unless_refused(data)
        assert node is None or find(node, path).element.name == row.name


def test_every_implemented_value_of_the_server_reaches_the_configuration() -> None:
    parts = (model.Configuration, NetworkCheckConfiguration)
    fields = {each.name for part in parts for each in dataclasses.fields(part)}
    for row in CORE.children:
        if row.kind is not Kind.CONTAINER and row.support is Support.IMPLEMENTED:
            assert row.field in fields or row.name in USED_BY_THE_READER or row in OLD_HA_ROWS, row.name


def test_every_value_read_is_not_the_default_by_accident() -> None:
    """Each plain element is read with a value other than its default and found in its field."""
    defaults = model.Configuration()
    for row in CORE.children:
        if row.kind is Kind.CONTAINER or not hasattr(defaults, row.field) or row.support is Support.REFUSED:
            continue
        before = getattr(defaults, row.field)
        text = {Kind.BOOLEAN: str(not before).lower(), Kind.TEXT: "another text", Kind.PATH: "/other"}.get(row.kind, "")
        if row.kind is Kind.CHOICE:
            text = next(each for each in row.choices if each != before)
        elif not text:
            least = row.raised_to or row.minimum
            text = str(least + 1 if before != least + 1 else least + 2)
        after = getattr(read(f"<{row.name}>{text}</{row.name}>").configuration, row.field)
        assert after == parse_value(text, row), row.name
        assert after != before, row.name


def test_address_setting_fields_are_the_element_names() -> None:
    rows = element_at("core/address-settings/address-setting").children
    fields = {each.name for each in dataclasses.fields(model.AddressSettingsConfiguration)} - {"match"}
    assert {row.name.replace("-", "_") for row in rows} == fields


def test_queue_attributes_are_the_fields_of_a_queue() -> None:
    row = element_at("core/addresses/address/anycast/queue")
    names = {attribute.name.replace("-", "_") for attribute in row.attributes}
    names |= {child.name.replace("-", "_") for child in row.children}
    fields = {each.name for each in dataclasses.fields(model.QueueConfiguration)}
    assert names == fields - {"address", "routing_type"}


@pytest.mark.parametrize(
    ("element", "values"),
    [
        ("address-full-policy", model.AddressFullPolicy),
        ("page-full-policy", model.PageFullPolicy),
        ("disk-full-policy", model.DiskFullPolicy),
        ("slow-consumer-policy", model.SlowConsumerPolicy),
        ("slow-consumer-threshold-measurement-unit", model.SlowConsumerUnit),
        ("config-delete-queues", model.ConfigDeletionPolicy),
        ("config-delete-addresses", model.ConfigDeletionPolicy),
        ("config-delete-diverts", model.ConfigDeletionPolicy),
        ("default-queue-routing-type", model.RoutingType),
        ("default-address-routing-type", model.RoutingType),
    ],
)
def test_choices_are_the_members_of_their_enum(element: str, values: type[model.AddressFullPolicy]) -> None:
    row = element_at(f"core/address-settings/address-setting/{element}")
    assert set(row.choices) == {member.name for member in values}
    for choice in row.choices:
        body = f'<address-setting match="a"><{element}>{choice}</{element}></address-setting>'
        setting = read(f"<address-settings>{body}</address-settings>").configuration.address_settings[0]
        assert getattr(setting, element.replace("-", "_")).name == choice


def test_permissions_are_the_members_of_their_enum() -> None:
    assert set(PERMISSIONS) == {member.value for member in model.Permission}


def test_places_know_every_name() -> None:
    assert PLACES["acceptor"] == ("core/acceptors",)
    assert "core/ha-policy/shared-store" in PLACES["master"]
    for path, row in ROWS:
        assert parent_of(path) in PLACES[row.name]


def test_element_at_refuses_other_roots() -> None:
    with pytest.raises(KeyError):
        element_at("configuration/core")


def test_defaults_complain_about_rows_without_one() -> None:
    with pytest.raises(KeyError, match="has no default"):
        Defaults("core").text("node-manager-lock-directory")


def test_a_sample_is_a_value() -> None:
    for _, row in ROWS:
        if row.kind is not Kind.CONTAINER:
            parse_value(sample(row), row)


def test_the_namespaces_are_optional() -> None:
    for data in (
        b"<core><name>a</name></core>",
        b"<configuration><core><name>a</name></core></configuration>",
        core("<name>a</name>"),
    ):
        assert parse(data)[0].text("name") == "a"
