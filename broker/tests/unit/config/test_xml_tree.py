"""XML as trees: lines, names, text around comments, encodings, and refused documents."""

from __future__ import annotations

import gc
import weakref

import pytest
from lxml import etree

from understudy.config import xml_tree
from understudy.config.xml_tree import DEPTH_MAX, QualifiedName, XmlElement, parse_xml
from understudy.errors import ConfigError

DOCUMENT = b"""<?xml version="1.0"?>
<!-- before --><a xmlns="urn:one" xmlns:two="urn:two" plain="1" two:other="&lt; &#233;">
  text<!-- a comment --> goes on<?target data?>
  <two:b>x</two:b>tail<![CDATA[ <c> ]]>
  <c xmlns=""
     d="e"/>
</a>
"""


def comparable(element: XmlElement) -> object:
    attributes = {f"{{{name.namespace}}}{name.local}": text for name, text in element.attributes.items()}
    return (*element.name, attributes, element.texts, [comparable(each) for each in element.children])


def by_lxml(element: etree._Element) -> object:
    name = etree.QName(element)
    attributes = {
        f"{{{etree.QName(str(key)).namespace or ''}}}{etree.QName(str(key)).localname}": str(text)
        for key, text in element.attrib.items()
    }
    texts = [element.text or "", *(child.tail or "" for child in element)]
    return name.namespace or "", name.localname, attributes, texts, [by_lxml(each) for each in element]


def test_a_tree_is_the_same_as_by_lxml() -> None:
    parser = etree.XMLParser(remove_comments=True, remove_pis=True)
    assert comparable(parse_xml(DOCUMENT, "a.xml")) == by_lxml(etree.fromstring(DOCUMENT, parser))


def test_a_line_is_that_of_the_start_of_a_tag() -> None:
    assert [each.line for each in parse_xml(DOCUMENT, "a.xml").everything()] == [2, 4, 5]


def test_names_have_their_namespace() -> None:
    root = parse_xml(DOCUMENT, "a.xml")
    assert root.name == QualifiedName("urn:one", "a")
    assert root.get("plain") == "1"
    assert root.get("other") is None
    assert root.attributes[QualifiedName("urn:two", "other")] == "< \u00e9"


@pytest.mark.parametrize("encoding", ["utf-8", "utf-16", "iso-8859-15", "windows-1252", "gb2312", "shift_jis"])
def test_encodings_of_a_declaration(encoding: str) -> None:
    text = "\u4f55" if encoding in ("gb2312", "shift_jis") else "\u00fc"
    data = f'<?xml version="1.0" encoding="{encoding}"?><a>{text}</a>'.encode(encoding)
    assert parse_xml(data, "a.xml").texts == [text]


@pytest.mark.parametrize(
    "data",
    [
        b"<a><b></a>",
        b"<a>&unknown;</a>",
        b"<p:a/>",
        b"<a b='1' b='2'/>",
        b"<a/><b/>",
        b'<?xml version="1.0" encoding="none-such"?><a/>',
        b'<?xml version="1.0" encoding="hex"?><a/>',
        b'<?xml version="1.0" encoding="gb2312"?><a>\xff\xff</a>',
        b"<a>" * (DEPTH_MAX + 1) + b"</a>" * (DEPTH_MAX + 1),
    ],
)
def test_other_documents_are_refused(data: bytes) -> None:
    with pytest.raises(ConfigError, match="not well-formed XML"):
        parse_xml(data, "a.xml")


def test_elements_may_be_deep() -> None:
    assert len(list(parse_xml(b"<a>" * DEPTH_MAX + b"</a>" * DEPTH_MAX, "a.xml").everything())) == DEPTH_MAX


def test_a_doctype_is_refused_before_its_entities_are_read() -> None:
    data = b'<!DOCTYPE a [<!ENTITY x SYSTEM "file:///etc/hostname">]><a>&x;</a>'
    with pytest.raises(ConfigError, match="a DOCTYPE is not allowed"):
        parse_xml(data, "a.xml")


def test_nothing_is_left_for_the_collector(monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[weakref.ref[object]] = []

    class Watched(xml_tree._Parsing):
        def __init__(self, file: str, encoding: str | None) -> None:
            super().__init__(file, encoding)
            made.append(weakref.ref(self))

    monkeypatch.setattr(xml_tree, "_Parsing", Watched)
    gc.disable()
    try:
        parse_xml(DOCUMENT, "a.xml")
        assert [each() for each in made] == [None]
    finally:
        gc.enable()
