"""Lines of the management CLI: operations, commands, and errors with their columns."""

from __future__ import annotations

import pytest

from support.document_lines import LINES, document
from understudy.management.dmr.grammar import (
    LINE_CHARACTERS_MAX,
    Command,
    LineError,
    Operation,
    format_address,
    parse_address,
    parse_line,
    split_words,
)
from understudy.management.dmr.values import Value

SERVER = (("subsystem", "messaging-activemq"), ("server", "default"))


@pytest.mark.parametrize("line", LINES, ids=lambda line: str(line.number))
def test_a_line_of_the_documents_prints_and_parses_as_the_same_operation(line) -> None:  # type: ignore[no-untyped-def]
    operation = line.parsed()
    assert parse_line(str(operation)) == operation


def test_the_documents_have_67_lines_in_this_order() -> None:
    assert len(LINES) == 67
    assert [line.number for line in LINES] == sorted(line.number for line in LINES)
    assert sum(not line.has_placeholder for line in LINES) == 61


@pytest.mark.skipif(document() is None, reason="the reference documents are not beside this checkout")
def test_the_table_has_every_line_of_the_document() -> None:
    path = document()
    assert path is not None
    found = []
    for number, text in enumerate(path.read_text().splitlines(), 1):
        if text.strip().startswith(("/subsystem=", "/socket-binding-group=")):
            found.append((number, parse_line(text)))
    assert found == [(line.number, line.parsed()) for line in LINES]


@pytest.mark.parametrize(
    ("text", "arguments"),
    [
        ("/a=b:op", {}),
        ("/a=b:op()", {}),
        ("/a=b:op(x=1,y=two words , z=${n:5})", {"x": "1", "y": "two words", "z": "${n:5}"}),
        ("/a=b:op(x, !y)", {"x": True, "y": False}),
        ('/a=b:op(x="a,b)\\"",y=a\\,b)', {"x": 'a,b)"', "y": "a,b"}),
        ("/a=b:op(x=[netty,other])", {"x": ["netty", "other"]}),
        ("/a=b:op(x=[])", {"x": []}),
        ("/a=b:op(x={k=v,l=>[1]})", {"x": {"k": "v", "l": ["1"]}}),
        ('/a=b:op(x=[("k" => "v")])', {"x": [{"k": "v"}]}),
        ("/a=b:op(x=tcp://h:1?a=b)", {"x": "tcp://h:1?a=b"}),
    ],
)
def test_parameters(text: str, arguments: dict[str, Value]) -> None:
    found = parse_line(text)
    assert isinstance(found, Operation)
    assert (found.address, found.name, dict(found.arguments)) == ((("a", "b"),), "op", arguments)


def test_addresses_start_at_the_current_node_unless_they_begin_with_a_slash() -> None:
    policy = (*SERVER, ("ha-policy", "live-only"))
    assert parse_line(":read-resource", SERVER) == Operation(SERVER, "read-resource")
    assert parse_line("ha-policy=live-only:add", SERVER) == Operation(policy, "add")
    assert parse_line("./ha-policy=live-only:add", SERVER) == Operation(policy, "add")
    assert parse_line("/:read-resource", SERVER) == Operation((), "read-resource")
    assert parse_address("../..", policy) == SERVER[:1]
    assert parse_address("../server=backup", SERVER) == (SERVER[0], ("server", "backup"))
    assert parse_address("/", SERVER) == ()


def test_names_with_separators_are_quoted() -> None:
    address = (*SERVER, ("address-setting", "a/b:c=#"))
    text = format_address(address)
    assert text == '/subsystem=messaging-activemq/server=default/address-setting="a/b:c=#"'
    assert parse_address(text) == address
    assert parse_address("/x=a\\/b") == (("x", "a/b"),)


def test_headers() -> None:
    found = parse_line("/a=b:op(x=1){allow-data-move=true; rollback-on-runtime-failure}")
    assert isinstance(found, Operation)
    assert dict(found.headers) == {"allow-data-move": "true", "rollback-on-runtime-failure": "true"}
    assert parse_line(str(found)) == found


@pytest.mark.parametrize(("text", "found"), [("", None), ("  # a comment", None), ("#/a=b:c", None)])
def test_comments_and_empty_lines_are_nothing(text: str, found: None) -> None:
    assert parse_line(text) is found


def test_other_lines_are_commands_with_their_words() -> None:
    assert parse_line('echo "two words" a\\ b') == Command("echo", ("two words", "a b"), '"two words" a\\ b')
    assert parse_line("run-batch --file=x") == Command("run-batch", ("--file=x",), "--file=x")
    assert split_words('a "" b') == ("a", "", "b")


@pytest.mark.parametrize(
    ("text", "column", "message"),
    [
        ("/a=b", 5, "':' and the name of an operation"),
        ("/a:op", 3, "'='"),
        ("/=b:op", 2, "the type of a resource"),
        ("/a=:op", 4, "the name of a resource is empty"),
        ("/a=*:op", 2, "an address with *"),
        ("/a=b:", 6, "the name of an operation"),
        ("/a=b:op(x=1", 12, "',' or ')'"),
        ("/a=b:op(x=1,x=2)", 13, "given twice"),
        ('/a=b:op(x="1)', 11, "a quote is not closed"),
        ("/a=b:op(x=${n)", 11, "an expression is not closed"),
        ("/a=b:op(x=[1)", 14, "',' or ']'"),
        ("/a=b:op(x={k})", 13, "'=' or '=>'"),
        ("/a=b:op) x", 8, "text after the operation"),
        ("/a=b:op{h=1", 12, "';' or '}'"),
        ("..:op", 1, "the root has no parent"),
        ("/a=b:op(x=\\", 11, "nothing follows the backslash"),
    ],
)
def test_an_error_names_the_column(text: str, column: int, message: str) -> None:
    with pytest.raises(LineError) as caught:
        parse_line(text)
    assert caught.value.column == column, str(caught.value)
    assert message in str(caught.value)
    assert str(caught.value).startswith(f"column {column}: ")


def test_lines_and_values_have_limits() -> None:
    with pytest.raises(LineError, match="limit"):
        parse_line("/" + "a" * LINE_CHARACTERS_MAX)
    with pytest.raises(LineError, match="nested more than"):
        parse_line("/a=b:op(x=" + "[" * 40 + "]" * 40 + ")")
