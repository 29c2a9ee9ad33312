"""Files that are nearly right: every mutation loads or is a ConfigError, and nothing else.

Goal: no file, however broken, ends the start with anything but a message for the operator.
Method: mutations of the file Artemis creates, as bytes and as a tree.
"""

from __future__ import annotations

import contextlib
import copy
from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st
from lxml import etree

from understudy.config.model import Configuration
from understudy.config.reading.reader import read_broker_xml
from understudy.config.schema.schema import PLACES
from understudy.errors import ConfigError

STOCK = (Path(__file__).parents[1] / "unit" / "config" / "stock_broker.xml").read_bytes()
TREE = etree.fromstring(STOCK, etree.XMLParser(remove_comments=True))
COUNT = sum(1 for _ in TREE.iter())
NAMESPACE = "{urn:activemq:core}"

TEXTS = st.one_of(
    st.sampled_from(
        ["", " ", "-1", "0", "true", "${x}", "${", "${a:b}", "tcp://", "#", "::", "10M", "é" * 5000, "a.#.b"]
    ),
    st.text(st.characters(blacklist_categories=("Cs", "Cc")), max_size=20),
    st.integers().map(str),
)
NAMES = st.one_of(st.sampled_from(sorted(PLACES)), st.sampled_from(["surprise", "queue-", "namE"]))
PLACE = st.integers(0, COUNT - 1)
MUTATIONS = st.one_of(
    st.tuples(st.just("text"), PLACE, TEXTS),
    st.tuples(st.just("rename"), PLACE, NAMES),
    st.tuples(st.just("remove"), PLACE, st.none()),
    st.tuples(st.just("repeat"), PLACE, st.none()),
    st.tuples(st.just("move"), PLACE, PLACE),
    st.tuples(st.just("attribute"), PLACE, st.tuples(st.sampled_from(["name", "match", "type", "roles", "x"]), TEXTS)),
    st.tuples(st.just("strip"), PLACE, st.none()),
    st.tuples(st.just("insert"), PLACE, NAMES),
)


def loads_or_complains(data: bytes) -> None:
    with contextlib.suppress(ConfigError):
        loaded = read_broker_xml(data, file="broker.xml", base_directory="/srv/node", properties={"x": "y"})
        assert isinstance(loaded.configuration, Configuration)
        for warning in loaded.warnings:
            assert warning.line > 0
            assert warning.path.startswith("core")


def mutate(root: etree._Element, kind: str, place: int, argument: object) -> None:
    elements = list(root.iter())
    element = elements[place % len(elements)]
    parent = element.getparent()
    if kind == "text":
        element.text = str(argument)
    elif kind == "rename":
        element.tag = NAMESPACE + str(argument)
    elif kind == "insert":
        element.append(etree.Element(NAMESPACE + str(argument)))
    elif kind == "strip":
        for key in list(element.attrib):
            del element.attrib[key]
    elif kind == "attribute":
        assert isinstance(argument, tuple)
        element.set(argument[0], argument[1])
    elif parent is not None and kind == "remove":
        parent.remove(element)
    elif parent is not None and kind == "repeat":
        parent.append(copy.deepcopy(element))
    elif parent is not None and kind == "move":
        assert isinstance(argument, int)
        target = elements[argument % len(elements)]
        if element not in list(target.iterancestors()) and target is not element:
            target.append(element)


@given(st.lists(MUTATIONS, min_size=1, max_size=4))
def test_a_mutated_tree_loads_or_is_a_config_error(mutations: list[tuple[str, int, object]]) -> None:
    root = copy.deepcopy(TREE)
    for kind, place, argument in mutations:
        mutate(root, kind, place, argument)
    loads_or_complains(etree.tostring(root))


@given(
    st.lists(st.tuples(st.integers(0, len(STOCK)), st.integers(0, 40), st.binary(max_size=12)), min_size=1, max_size=3)
)
def test_mutated_bytes_load_or_are_a_config_error(edits: list[tuple[int, int, bytes]]) -> None:
    data = STOCK
    for start, length, replacement in edits:
        data = data[:start] + replacement + data[start + length :]
    loads_or_complains(data)


@given(st.binary(max_size=200))
def test_any_bytes_load_or_are_a_config_error(data: bytes) -> None:
    loads_or_complains(data)
