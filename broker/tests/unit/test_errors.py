"""The error tree: unique codes, places in messages, and the tree drawn in the docstring."""

from __future__ import annotations

import re

import pytest

from understudy import errors
from understudy.errors import BrokerError, all_error_types

TYPES = [cls for cls in all_error_types() if cls.__module__ == errors.__name__]


def test_codes_are_unique_and_stable_text() -> None:
    codes = [cls.__dict__.get("code") for cls in TYPES]
    assert None not in codes, "every class has a code of its own"
    assert len(set(codes)) == len(codes)
    assert all(re.fullmatch(r"[a-z]+(-[a-z]+)*", str(code)) for code in codes)


def test_the_docstring_draws_the_tree() -> None:
    drawn = set(re.findall(r"\b[A-Z][A-Za-z]+\b", (errors.__doc__ or "").partition("Each class")[0]))
    assert {cls.__name__ for cls in TYPES} <= drawn


def test_the_docstring_is_right_about_bases() -> None:
    by_name = {cls.__name__: cls for cls in TYPES}
    path: list[tuple[int, type[BrokerError]]] = []
    for line in (errors.__doc__ or "").partition("Each class")[0].splitlines():
        found = re.match(r"( +)([A-Z][A-Za-z]+(?: \| [A-Z][A-Za-z]+)*)", line)
        if not found:
            continue
        depth = len(found[1])
        path = [(at, cls) for at, cls in path if at < depth]
        for name in found[2].split(" | "):
            cls = by_name[name]
            assert cls.__bases__ == ((path[-1][1],) if path else (Exception,)), name
        path.append((depth, cls))


def test_hints_and_defaults() -> None:
    assert str(BrokerError()) == "error"
    assert str(errors.QueueNotFound()) == "queue-not-found"
    error = errors.DiskFull("/data: 3 bytes free", hint="free space")
    assert str(error) == "/data: 3 bytes free (free space)"
    assert error.hint == "free space"


def test_retryable_is_inherited_and_taken_back() -> None:
    assert not BrokerError.retryable
    assert errors.ConnectionLost.retryable
    assert not errors.IncompatibleVersion.retryable
    assert not errors.SendOutcomeUnknown.retryable
    assert not errors.CommitOutcomeUnknown.retryable


@pytest.mark.parametrize(
    ("error", "text"),
    [
        (errors.ConfigError("no such value"), "no such value"),
        (errors.ConfigError("bad", path="core/acceptors"), "core/acceptors: bad"),
        (errors.ConfigError("bad", path="core", file="broker.xml", line=7), "broker.xml:7 core: bad"),
        (errors.ConfigError("bad", file="broker.xml"), "broker.xml: bad"),
        (errors.JournalCorrupt("crc", file="1.log", offset=96), "1.log at offset 96: crc"),
    ],
)
def test_messages_name_the_place(error: BrokerError, text: str) -> None:
    assert str(error) == text


def test_what_errors_carry() -> None:
    corrupt = errors.JournalCorrupt("crc", file="1.log", offset=96)
    assert (corrupt.file, corrupt.offset) == ("1.log", 96)
    config = errors.ConfigError("bad", path="core", file="broker.xml", line=7, hint="h")
    assert (config.path, config.file, config.line, config.hint) == ("core", "broker.xml", 7, "h")
    assert errors.NotActive("passive", go_to="b:61616").go_to == "b:61616"
    assert errors.UnsupportedPacket("type -16", packet_type=-16).packet_type == -16


def test_limits_and_unknown_packets_are_the_peer_s_fault() -> None:
    assert issubclass(errors.LimitExceeded, errors.RemoteProtocolError)
    assert issubclass(errors.UnsupportedPacket, errors.RemoteProtocolError)
    assert not issubclass(errors.LocalProtocolError, errors.RemoteProtocolError)
