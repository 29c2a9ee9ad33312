"""Goal: every operation and every message of the copy survives encoding and decoding, and damaged bytes give an error
of the protocol, never another one.

Method: Hypothesis builds values of all classes from the types of their fields; a class without encoding fails the test
that collects them from the module. Encoded bytes are changed at random and decoded.
"""

from __future__ import annotations

import inspect
from dataclasses import fields, is_dataclass, replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from understudy.errors import RemoteProtocolError
from understudy.ids import NodeId, uuid_text
from understudy.limits import COPY_PIECE_BYTES_MAX
from understudy.store.log import operations as module
from understudy.store.log.chain import EpochStart
from understudy.store.log.format_version import FORMAT_VERSION, FORMAT_VERSION_FIRST
from understudy.store.log.open_files import OpenBody, OpenFile, OpenFiles, OpenSegment
from understudy.store.log.operations import (
    Append,
    BodyEnd,
    CreateSegment,
    FinishBodies,
    SealSegment,
    SyncFile,
    TidyUp,
    WriteBody,
)
from understudy.store.log.records import SealRecord, SegmentEnd
from understudy.store.log.segment import SegmentHeader
from understudy.store.replication import copy_messages, operation_codec
from understudy.store.replication.copy_messages import (
    AskBytes,
    CommonFiles,
    CopyIdentity,
    Directory,
    EpochHistory,
    FilesPart,
    FinalState,
    InventoryFile,
    InventoryPart,
    PassEnd,
    StatedFile,
    decode_message,
    encode_message,
)

PART = st.text(st.characters(codec="utf-8", exclude_characters="/\0"), min_size=1, max_size=12).filter(
    lambda text: text not in (".", "..")
)
NAMES = st.one_of(PART, st.tuples(PART, PART).map("/".join), st.just("caf\udce9"))
VERSIONS = st.integers(FORMAT_VERSION_FIRST, FORMAT_VERSION)
U32 = st.integers(0, (1 << 32) - 1)
U64 = st.integers(0, (1 << 64) - 1)
I64 = st.integers(-(1 << 63), (1 << 63) - 1)
SIZES = st.integers(0, (1 << 63) - 1)
NUMBERS = st.integers(0, 10**12 - 1)
EPOCHS = st.integers(0, 10**10 - 1)
DATA = st.binary(max_size=200)
NODE_IDS = st.binary(min_size=16, max_size=16).map(lambda raw: NodeId(uuid_text(raw)))
PARTS = st.lists(st.binary(min_size=1, max_size=50), max_size=4).map(tuple)
DIRECTORIES = st.sampled_from(Directory)

OF_NAME: dict[str, st.SearchStrategy[Any]] = {
    "name": NAMES,
    "target": NAMES,
    "data": DATA,
    "parts": PARTS,
    "offset": U32,
    "length": st.integers(0, 1 << 20),
    "allocated_bytes": U32,
    "epoch": EPOCHS,
    "retain": st.booleans(),
    "sync": st.booleans(),
    "cut": st.booleans(),
    "size_bytes": st.integers(0, 1 << 33),
    "now_ms": SIZES,
    "directory": DIRECTORIES,
    "sent_bytes": SIZES,
    "code": NAMES,
    "reason": NAMES,
    "cut_at": I64,
    "create": st.booleans(),
    "hash": st.binary(min_size=16, max_size=16),
    "number": U64,
    "found": st.booleans(),
}
ENDS = st.lists(st.builds(SegmentEnd, NUMBERS, EPOCHS, U32), max_size=3).map(tuple)
BODY_ENDS = st.lists(st.builds(BodyEnd, NAMES, SIZES, PARTS, st.booleans()), max_size=3).map(tuple)
HEADERS = st.builds(SegmentHeader, NODE_IDS, EPOCHS, NUMBERS, I64, U32, st.booleans(), VERSIONS)
SEALS = st.builds(SealRecord, st.booleans(), U32, U32, U64, U64, I64, I64, U64, U64, st.just(()))
OPEN = st.builds(
    OpenFiles,
    st.lists(st.builds(OpenSegment, NAMES, U32, U32, U32, U32, U32), max_size=2).map(tuple),
    st.lists(st.builds(OpenFile, NAMES), max_size=2).map(tuple),
    st.lists(st.builds(OpenBody, NAMES, SIZES, U32), max_size=2).map(tuple),
)
STATED_FILES = st.lists(st.builds(StatedFile, DIRECTORIES, NAMES, SIZES)).map(tuple)
OF_CLASS: dict[type, st.SearchStrategy[Any]] = {
    Append: st.builds(
        lambda name, offset, parts, last: Append(name, offset, parts, sum(map(len, parts)), last),
        NAMES, U32, PARTS, U64,
    ),
    CreateSegment: st.builds(CreateSegment, HEADERS, DATA),
    SealSegment: st.builds(SealSegment, NAMES, SEALS, U64, st.lists(U32).map(lambda found: bytes(4 * len(found)))),
    TidyUp: st.builds(TidyUp, EPOCHS, st.lists(NAMES, max_size=3).map(tuple), ENDS, st.booleans()),
    FinishBodies: st.builds(FinishBodies, BODY_ENDS, st.just("")),
    InventoryPart: st.builds(
        InventoryPart,
        st.lists(st.builds(InventoryFile, DIRECTORIES, NAMES, SIZES, st.binary(min_size=16, max_size=16))).map(tuple),
        st.booleans(),
        st.booleans(),
    ),
    EpochHistory: st.builds(EpochHistory, st.lists(st.builds(EpochStart, U64, U64, I64, U64)).map(tuple)),
    PassEnd: st.builds(PassEnd, st.integers(1, 1 << 31), SIZES),
    FilesPart: st.builds(FilesPart, STATED_FILES),
    CommonFiles: st.builds(CommonFiles, STATED_FILES),
    AskBytes: st.builds(AskBytes, U64, DIRECTORIES, NAMES, SIZES, st.integers(1, COPY_PIECE_BYTES_MAX)),
    FinalState: st.builds(FinalState, OPEN, OPEN, U64, st.builds(CopyIdentity, NODE_IDS, U64, I64, NAMES, I64)),
}  # fmt: skip


def operation_classes() -> set[type]:
    """The classes of operations that the module defines: an ``Append`` and dataclasses, without parts of others."""
    found = {each for _, each in inspect.getmembers(module, inspect.isclass) if each.__module__ == module.__name__}
    return found - {BodyEnd}


def values_of(made: type) -> st.SearchStrategy[Any]:
    if made in OF_CLASS:
        return OF_CLASS[made]
    assert is_dataclass(made)
    return st.builds(made, **{field.name: OF_NAME[field.name] for field in fields(made)})


OPERATIONS = st.one_of([values_of(each) for each in sorted(operation_classes(), key=lambda each: each.__name__)])
MESSAGES = st.one_of([values_of(each) for each in sorted(copy_messages.ENCODED, key=lambda each: each.__name__)])


def plain(operation: Any) -> Any:
    """The operation with the parts of its bytes joined, which is all that matters about them."""
    if isinstance(operation, Append):
        return operation._replace(parts=(b"".join(operation.parts),))
    if isinstance(operation, (WriteBody, BodyEnd)):
        return replace(operation, parts=(b"".join(operation.parts),))
    if isinstance(operation, FinishBodies):
        return replace(operation, ends=tuple(plain(end) for end in operation.ends))
    return operation


def test_every_operation_has_an_encoding() -> None:
    assert operation_classes() == set(operation_codec.ENCODED)


@settings(max_examples=60)
@given(st.lists(OPERATIONS, max_size=4))
def test_operations_survive_encoding(operations: list[Any]) -> None:
    data = b"".join(operation_codec.encode(operations))
    found = operation_codec.decode(data)
    assert [plain(each) for each in found] == [plain(each) for each in operations]
    assert list(map(type, found)) == list(map(type, operations))


@settings(max_examples=60)
@given(values_of(Append), st.booleans(), st.data())
def test_a_batch_is_encoded_as_other_operations_are(append: Any, synced: bool, data: Any) -> None:
    """The calls for batches alone give the same bytes and values as those for any operation, and take nothing else."""
    batch = (append, SyncFile(append.name)) if synced else (append,)
    encoded = b"".join(operation_codec.encode(batch))
    # a list is not taken for a batch
    assert encoded == b"".join(operation_codec.encode(list(batch))) or not synced
    assert operation_codec._decode_batch(encoded) == operation_codec._decode_any(encoded)
    changed = bytearray(encoded)
    for _ in range(data.draw(st.integers(0, 3))):
        changed[data.draw(st.integers(0, len(changed) - 1))] = data.draw(st.integers(0, 255))
    for mutated in (bytes(changed), bytes(changed[: data.draw(st.integers(5, len(changed)))]), bytes(changed) + b"x"):
        found = operation_codec._decode_batch(mutated)
        if found is not None:
            assert found == operation_codec._decode_any(mutated)


def test_an_earlier_version_reads_everything_but_segments_of_a_later_format() -> None:
    node_id = NodeId("11111111-2222-4333-8444-555555555555")
    for version, encoding in ((FORMAT_VERSION_FIRST, 1), (2, 2), (FORMAT_VERSION, 2)):
        created = CreateSegment(SegmentHeader(node_id, 1, 1, 0, 1, False, version))
        data = b"".join(operation_codec.encode([SyncFile("a"), created]))
        assert data[0] == encoding
        assert operation_codec.decode(data) == [SyncFile("a"), created]
    with pytest.raises(RemoteProtocolError, match="version 3 of the encoding, only 1 to 2 are known"):
        operation_codec.decode(b"\3" + data[1:])


@pytest.mark.parametrize("made", sorted(copy_messages.ENCODED, key=lambda each: each.__name__))
def test_messages_survive_encoding(made: type) -> None:
    @settings(max_examples=25)
    @given(values_of(made))
    def check(message: Any) -> None:
        assert decode_message(memoryview(b"".join(encode_message(message)))) == message

    check()


@settings(max_examples=60)
@given(st.lists(OPERATIONS, min_size=1, max_size=3), MESSAGES, st.data())
def test_changed_bytes_are_values_or_errors_of_the_protocol(operations: list[Any], message: Any, data: Any) -> None:
    for original, decode in (
        (b"".join(operation_codec.encode(operations)), operation_codec.decode),
        (b"".join(encode_message(message)), decode_message),
    ):
        changed = bytearray(original)
        for _ in range(data.draw(st.integers(1, 4))):
            if changed:
                at = data.draw(st.integers(0, len(changed) - 1))
                changed[at] = data.draw(st.integers(0, 255))
        end = data.draw(st.integers(0, len(changed)))
        for mutated in (bytes(changed), bytes(changed[:end]), bytes(changed[end:])):
            try:
                decode(mutated)  # type: ignore[operator]
            except RemoteProtocolError:
                continue
