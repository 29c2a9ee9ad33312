"""Changes of broker.xml: only the bytes of the changed elements differ, and the reader accepts the result."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import pytest

from understudy.config.edit import Add, Change, Edited, Remove, Set, difference, edit
from understudy.config.edit.paths import parse_path
from understudy.config.reading.reader import read_broker_xml
from understudy.config.reading.servers import LoadedConfig
from understudy.errors import ConfigError

BROKER = b"""\
<?xml version='1.0'?>
<!-- the first node -->
<configuration xmlns="urn:activemq">
   <core xmlns="urn:activemq:core">
      <name>a</name>  <!-- as in DNS -->
      <journal-directory >
         data/journal
      </journal-directory>
      <!-- clients -->
      <acceptors>
         <acceptor name='artemis'>tcp://0.0.0.0:61616?tcpSendBufferSize=1&amp;protocols=CORE</acceptor>
      </acceptors>
      <addresses>
         <address name="a"><anycast/></address>
         <!-- orders of the shop -->
         <address name="orders">
            <anycast>
               <queue name="orders"/>
            </anycast>
         </address>
      </addresses>
      <address-settings>
         <address-setting match="#">
            <max-delivery-attempts>10</max-delivery-attempts>
         </address-setting>
      </address-settings>
   </core>
</configuration>
"""


PROPERTIES = {"which": "b"}


def edited(data: bytes, *changes: Change, files: Mapping[str, bytes] | None = None) -> Edited:
    def read_file(name: str) -> bytes:
        if files is None or name not in files:
            raise FileNotFoundError(2, "No such file")
        return files[name]

    def check(data: bytes, read: Callable[[str], bytes]) -> LoadedConfig:
        return read_broker_xml(data, file="/etc/broker.xml", read_file=read, properties=PROPERTIES)

    return edit(data, changes, file="/etc/broker.xml", check=check, read_file=read_file, properties=PROPERTIES)


def changed(data: bytes, *changes: Change) -> tuple[list[str], list[str]]:
    """Lines that went and lines that came."""
    found = edited(data, *changes)
    lines = found.diff().splitlines()[2:]
    return [each[1:] for each in lines if each[0] == "-"], [each[1:] for each in lines if each[0] == "+"]


SETTING = "core/address-settings/address-setting[@match='#']"


def test_a_value_is_set_and_nothing_else() -> None:
    found = edited(BROKER, Set(f"{SETTING}/max-delivery-attempts", "5"))
    assert found.after == BROKER.replace(b">10<", b">5<")
    assert found.loaded.configuration.address_settings[0].max_delivery_attempts == 5
    assert found.before == BROKER


def test_white_space_around_a_value_stays() -> None:
    found = edited(BROKER, Set("core/journal-directory", "/srv/<journal>&"))
    assert found.after == BROKER.replace(b"data/journal", b"/srv/&lt;journal&gt;&amp;")
    assert found.loaded.configuration.journal_directory == "/srv/<journal>&"


def test_comments_in_a_value_stay() -> None:
    data = BROKER.replace(b"<name>a</name>", b"<name><!-- 1 --> a <!-- 2 --><![CDATA[b]]><?x y?></name>")
    assert b"<name><!-- 1 --> c <!-- 2 --><?x y?></name>" in edited(data, Set("core/name", "c")).after


def test_an_attribute_is_set_in_its_quotes() -> None:
    path = "core/acceptors/acceptor[@name='artemis']/@name"
    found = edited(BROKER, Set(path, 'it\'s "<&>"'))
    assert b"<acceptor name='it&apos;s \"&lt;&amp;&gt;\"'>" in found.after
    assert found.loaded.configuration.acceptors[0].name == 'it\'s "<&>"'


def test_a_new_element_has_the_place_of_the_schema_and_the_indentation_of_its_siblings() -> None:
    went, came = changed(BROKER, Set(f"{SETTING}/dead-letter-address", "DLQ"))
    assert went == []
    assert came == ["            <dead-letter-address>DLQ</dead-letter-address>"]
    other = b"<dead-letter-address>D</dead-letter-address> <!-- x -->"
    data = BROKER.replace(b"<max-delivery-attempts>10</max-delivery-attempts>", other)
    lines = edited(data, Set(f"{SETTING}/max-delivery-attempts", "2")).after.decode().splitlines()
    place = lines.index("            <max-delivery-attempts>2</max-delivery-attempts>")
    assert lines[place - 1].endswith("</dead-letter-address> <!-- x -->"), "after a comment on the line of its sibling"


def test_a_new_entry_comes_after_its_like() -> None:
    went, came = changed(BROKER, Add("core/acceptors/acceptor[@name='b']", "tcp://127.0.0.1:5445"))
    assert (went, came) == ([], ['         <acceptor name="b">tcp://127.0.0.1:5445</acceptor>'])
    after = edited(BROKER, Add("core/addresses/address[@name='z']/multicast")).after.decode().splitlines()
    place = after.index('         <address name="z">')
    assert after[place - 1 : place + 4] == [
        "         </address>",
        '         <address name="z">',
        "            <multicast/>",
        "         </address>",
        "      </addresses>",
    ]


def test_lists_and_elements_around_are_made() -> None:
    _, came = changed(BROKER, Add("core/connectors/connector[@name='b']", "tcp://10.0.0.2:61616"))
    assert came == [
        "      <connectors>",
        '         <connector name="b">tcp://10.0.0.2:61616</connector>',
        "      </connectors>",
    ]


def test_an_element_without_content_is_filled() -> None:
    for form in (b"<diverts/>", b"<diverts />", b"<diverts></diverts>", b"<diverts>\n      </diverts>"):
        data = BROKER.replace(b"      <address-settings>", b"      " + form + b"\n      <address-settings>")
        found = edited(
            data,
            Set("core/diverts/divert[@name='d']/address", "a"),
            Set("core/diverts/divert[@name='d']/forwarding-address", "orders"),
        )
        lines = found.after.decode().splitlines()
        first = lines.index("      <diverts>")
        assert lines[first : first + 6] == [
            "      <diverts>",
            '         <divert name="d">',
            "            <address>a</address>",
            "            <forwarding-address>orders</forwarding-address>",
            "         </divert>",
            "      </diverts>",
        ], form
        assert found.loaded.configuration.diverts[0].name == "d"


def test_an_element_goes_with_its_line_and_comments_stay() -> None:
    went, came = changed(BROKER, Remove("core/addresses/address[@name='orders']"))
    assert len(went) == 5
    assert came == []
    after = edited(BROKER, Remove("core/name")).after
    assert b"        <!-- as in DNS -->" in after, "something else is on the line"


def test_undone_changes_give_the_first_bytes() -> None:
    entry = "core/addresses/address[@name='new']"
    assert edited(BROKER, Add(f"{entry}/anycast"), Remove(entry)).after == BROKER
    assert edited(BROKER, Set("core/name", "b"), Set("core/name", "a")).after == BROKER
    attribute = "core/addresses/address[@name='orders']/anycast/queue/@name"
    assert edited(BROKER, Set(attribute, "x"), Set(attribute, "orders")).after == BROKER


def test_line_ends_byte_order_mark_and_prefixes_stay() -> None:
    lines = [
        '<q:configuration xmlns:q="urn:activemq:core">',
        "  <q:core>",
        "    <q:address-settings>",
        '      <q:address-setting match="#"/>',
        "    </q:address-settings>",
        "  </q:core>",
        "</q:configuration>",
        "",
    ]
    found = edited(b"\xef\xbb\xbf" + "\r\n".join(lines).encode(), Set(f"{SETTING}/max-delivery-attempts", "2"))
    new = [
        '      <q:address-setting match="#">',
        "        <q:max-delivery-attempts>2</q:max-delivery-attempts>",
        "      </q:address-setting>",
    ]
    assert found.after == b"\xef\xbb\xbf" + "\r\n".join([*lines[:3], *new, *lines[4:]]).encode()


def test_an_encoding_without_a_character_gets_a_reference() -> None:
    data = BROKER.replace(b"version='1.0'", b"version='1.0' encoding='ISO-8859-1'").replace(b"first", b"gr\xf6\xdfte")
    found = edited(data, Set("core/name", "ü注"))
    assert found.after == data.replace(b"<name>a", b"<name>\xfc&#27880;")
    assert found.loaded.configuration.name == "ü注"


INCLUDING = b"""\
<configuration xmlns:xi="http://www.w3.org/2001/XInclude">
   <core>
      <name>a</name>
      <xi:include href="settings-${which}.xml"/>
      <xi:include href="acceptors.xml"/>
   </core>
</configuration>
"""
FILES = {
    "/etc/settings-b.xml": b'<address-settings><address-setting match="#"/></address-settings>\n',
    "/etc/acceptors.xml": b"<acceptors/>",
}


def test_a_change_goes_to_the_included_file_that_has_the_element() -> None:
    found = edited(INCLUDING, Set(f"{SETTING}/max-delivery-attempts", "3"), files=FILES)
    assert found.file == "/etc/settings-b.xml"
    assert b"<max-delivery-attempts>3</max-delivery-attempts>" in found.after
    assert found.loaded.configuration.address_settings[0].max_delivery_attempts == 3
    own = edited(INCLUDING, Set("core/persistence-enabled", "true"), files=FILES)
    assert own.file == "/etc/broker.xml"
    assert own.after.count(b"xi:include") == 2


def test_changes_of_two_files_are_refused() -> None:
    changes = (Set("core/name", "b"), Set(f"{SETTING}/max-delivery-attempts", "3"))
    with pytest.raises(ConfigError, match=r"several files: /etc/broker\.xml, /etc/settings-b\.xml"):
        edited(INCLUDING, *changes, files=FILES)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (Set("core/nam", "x"), "/etc/broker.xml:4 core/nam: core has no element 'nam' (did you mean 'name'?)"),
        (Set("core/acceptors", "x"), "/etc/broker.xml:10 core/acceptors: acceptors has elements and no value"),
        (Set("core/name/@x", "x"), "/etc/broker.xml:5 core/name/@x: name has no attribute 'x'"),
        (Remove("core/acceptors/acceptor[@name='artemi']"), "did you mean \"acceptor[@name='artemis']\""),
        (Remove("core/diverts"), "/etc/broker.xml:4 core/diverts: there is no diverts"),
        (Remove("core/addresses/address"), "2 elements are meant, on lines 14, 16"),
        (Remove("core/addresses/address[3]"), "there is no address[3]"),
        (Add("core/acceptors/acceptor[@name='artemis']", "tcp://h:1"), "/etc/broker.xml:11"),
        (Add("core/name", "x"), "exists already"),
        (Set("core/name[2]", "x"), "there is no name[2]"),
        (Set("server[@name='b']/name", "x"), "there is no server[@name='b']"),
        (Set("core//name", "x"), "is no step of a path"),
        (Set("", "x"), "the path is empty"),
        (Set("core/name", "x\x00"), "not well-formed XML"),
        (Set(f"{SETTING}/max-delivery-attempts", "many"), "'many' is no integer"),
    ],
)
def test_refused(change: Change, message: str) -> None:
    with pytest.raises(ConfigError) as caught:
        edited(BROKER, change)
    assert message in str(caught.value)


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"<configuration>", "not well-formed XML: no element found"),
        (b"<!DOCTYPE core><core/>", "a DOCTYPE is not allowed"),
        (BROKER.decode().encode("utf-16"), "UTF-16 cannot be edited"),
        (b"<?xml version='1.0' encoding='cp1252'?><core/>", "cannot be edited"),
    ],
)
def test_documents_that_are_refused(data: bytes, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        edited(data, Set("core/name", "b"))


def test_a_difference_shows_no_password() -> None:
    before = b"<a><cluster-password>one</cluster-password><x>tcp://h:1?keyStorePassword=two</x><y password='three'/>"
    shown = difference(before, b"\n" + before, "a", "b")
    assert "-<a><cluster-password>***</cluster-password>" in difference(before, b"", "a", "b")
    assert not [secret for secret in ("one", "two", "three") if secret in shown]
    other = before.replace(b"one", b"four")
    assert difference(before, other, "a", "b") == "b: only values of passwords or line ends differ"
    assert difference(before, before, "a", "b") == ""


@pytest.mark.parametrize(
    "text", ["core/a[@b='c']/d", "core/a[.='x y']", "core/a[3]/@b", 'core/a[@b="it\'s"]', "core/a.b-c/d"]
)
def test_a_path_is_written_as_it_was_read(text: str) -> None:
    assert str(parse_path(text)) == text
