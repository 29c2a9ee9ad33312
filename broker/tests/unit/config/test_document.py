"""Errors of any configuration file: XML, namespaces, places, properties."""

from __future__ import annotations

import pytest

from support.config import FILE, core
from understudy.config.reading import document as document_module
from understudy.config.reading.document import Document, Node, nearest
from understudy.errors import ConfigError


def parse(data: bytes, **properties: str) -> Node:
    document = Document(FILE, properties)
    nodes = document.parse(data)
    document.finish()
    return nodes[0]


def fails(data: bytes, **properties: str) -> ConfigError:
    with pytest.raises(ConfigError) as caught:
        parse(data, **properties)
    return caught.value


def test_an_error_names_path_file_and_line() -> None:
    error = fails(b'<core>\n<acceptors>\n<acceptor name="artemis"><port/></acceptor>\n</acceptors></core>')
    assert error.path == "core/acceptors/acceptor[@name='artemis']/port"
    assert (error.file, error.line) == (FILE, 3)
    assert str(error).startswith(f"{FILE}:3 core/acceptors/acceptor[@name='artemis']/port: ")


@pytest.mark.parametrize("data", [b"", b"plain text", b"<core>", b"<core></cor>", b"<core>\xff\xfe</core>", b"\x00"])
def test_no_xml_is_a_config_error(data: bytes) -> None:
    assert "not well-formed XML" in str(fails(data))


def test_a_syntax_error_names_its_line() -> None:
    assert fails(b"<core>\n<name>a</name>\n<name>").line == 3


def test_too_large_a_file_is_refused_before_it_is_parsed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(document_module, "CONFIG_BYTES_MAX", 10)
    assert "11 bytes, limit 10" in str(fails(b"<core>     "))


@pytest.mark.parametrize(
    "data",
    [
        b'<!DOCTYPE core [<!ENTITY a "b">]><core><name>&a;</name></core>',
        b'<!DOCTYPE core SYSTEM "http://127.0.0.1/x.dtd"><core/>',
        b'<!DOCTYPE core [<!ENTITY x SYSTEM "file:///etc/passwd">]><core><name>&x;</name></core>',
        b"<!DOCTYPE core><core/>",
    ],
)
def test_entities_and_dtds_are_refused(data: bytes) -> None:
    assert "DOCTYPE is not allowed" in str(fails(data))


def test_an_entity_bomb_does_not_go_off() -> None:
    entities = "".join(f'<!ENTITY e{i} "{f"&e{i - 1};" * 10}">' for i in range(1, 12))
    data = f'<!DOCTYPE core [<!ENTITY e0 "0123456789">{entities}]><core><filter string="&e11;"/></core>'.encode()
    fails(data)


def test_an_include_is_refused() -> None:
    data = b'<core xmlns:xi="http://www.w3.org/2001/XInclude"><xi:include href="file:///etc/passwd"/></core>'
    assert "includes are not read" in str(fails(data))


def test_a_foreign_namespace_is_refused() -> None:
    error = fails(b'<core><name xmlns="urn:other">a</name></core>')
    assert "unknown namespace 'urn:other'" in str(error)
    assert "urn:activemq:core" in str(error)


def test_a_foreign_attribute_is_refused_but_not_those_of_xml_itself() -> None:
    parse(b'<core xmlns:xsi="http://www.w3.org/2001/XMLSchema-instance" xsi:schemaLocation="a b" xml:lang="en"/>')
    assert "unknown attribute 'x'" in str(fails(b'<core xmlns:o="urn:o" o:x="1"/>'))


@pytest.mark.parametrize(
    ("data", "text"),
    [
        (b"<broker/>", "the root element is 'broker'"),
        (b"<configuration/>", "0 core elements"),
        (b"<configuration><core/><core/></configuration>", "2 core elements"),
        (b"<configuration><jmx/><core/></configuration>", "unknown element 'jmx'"),
        (b"<configuration><name>a</name></configuration>", "it belongs in core"),
        (b"<configuration>text<core/></configuration>", "unexpected text 'text'"),
        (b"<core>text</core>", "unexpected text 'text'"),
        (b"<core><name>a</name>tail</core>", "unexpected text 'tail'"),
    ],
)
def test_a_wrong_frame_is_refused(data: bytes, text: str) -> None:
    assert text in str(fails(data))


def test_the_error_of_a_misplaced_element_names_its_place() -> None:
    error = fails(core("<dead-letter-address>DLQ</dead-letter-address>"))
    assert "misplaced element 'dead-letter-address'" in str(error)
    assert "it belongs in core/address-settings/address-setting" in str(error)


def test_an_element_of_many_places_names_some() -> None:
    assert "more places" in str(fails(core("<connector-ref>a</connector-ref>")))


def test_a_typo_gets_the_nearest_name_there_before_others() -> None:
    assert "did you mean 'acceptors'?" in str(fails(core("<acceptor-s/>")))
    assert "did you mean 'security-enabled'?" in str(fails(core("<securty-enabled>true</securty-enabled>")))


def test_comments_and_instructions_are_no_content() -> None:
    node = parse(core("<name>a<!-- not b -->c</name><?hint x?><!-- end -->"))
    assert node.text("name") == "ac"


def test_properties_are_put_in() -> None:
    data = core(
        '<name>${host}-${n:1}</name><acceptors><acceptor name="${a: x }">tcp://${host}:${p}</acceptor></acceptors>'
    )
    node = parse(data, host="h", p="61616")
    assert node.text("name") == "h-1"
    acceptors = node.child("acceptors")
    assert acceptors is not None
    (acceptor,) = acceptors.all("acceptor")
    assert acceptor.attributes["name"] == "x"
    assert acceptor.value == "tcp://h:61616"


def test_a_default_may_hold_colons_and_be_empty() -> None:
    assert parse(core("<name>${url:tcp://a:1}</name>")).text("name") == "tcp://a:1"
    assert parse(core("<cluster-user>${u:}</cluster-user>")).text("cluster-user") == ""


def test_values_of_properties_are_not_expanded_again() -> None:
    assert parse(core("<name>${a}</name>"), a="${a}<b>").text("name") == "${a}<b>"


def test_a_property_without_value_and_default_is_an_error() -> None:
    error = fails(core("<name>${hots}</name>"), host="h")
    assert "property 'hots' has no value and no default" in str(error)
    assert "did you mean 'host'?" in str(error)


def test_a_property_must_be_closed() -> None:
    assert "no closing brace" in str(fails(core("<name>${host</name>")))


def test_a_wrong_choice_gets_the_nearest_one() -> None:
    assert "did you mean 'ASYNCIO'?" in str(fails(core("<journal-type>asynco</journal-type>")))


def test_nearest_says_nothing_when_nothing_is_near() -> None:
    assert nearest("acceptor", ["acceptors"]) == "did you mean 'acceptors'?"
    assert nearest("xyz", ["acceptors"]) is None


def test_long_names_are_shortened_in_paths() -> None:
    error = fails(core(f'<acceptors><acceptor name="{"a" * 200}" x="1">tcp://h</acceptor></acceptors>'))
    assert len(error.path) < 140
