"""Batches of SESS_SEND frames for the tests of the kernel's sends, records and deliveries."""

from functools import cache
from types import ModuleType
from typing import Any

import pytest
from hypothesis import strategies as st

from fuzz.captures import streams
from support.kernels import NATIVE, needs_native
from understudy import limits
from understudy import properties as typed
from understudy.kernel import names, sends
from understudy.kernel.core import frames
from understudy.kernel.log import runs
from understudy.message import Message
from understudy.properties import Properties
from understudy.wire.core.codec import encode_send

Kernel = Any
#: The twins by their modules: CORE frames, runs of the log, messages; the native ones all lie in one.

PYTHON: tuple[ModuleType, ...] = (frames, runs, sends)
KERNELS = (
    pytest.param(PYTHON, id="python"),
    pytest.param((NATIVE, NATIVE, NATIVE), id="native", marks=needs_native),
)
SEND = 71
LIMIT_BYTES = 4 * 1024 * 1024

# --- input ------------------------------------------------------------------------------------------------------------


def integers(bits: int) -> st.SearchStrategy[int]:
    bound = 1 << (bits - 1)
    return st.integers(-bound, bound - 1) | st.sampled_from((-bound, -1, 0, 1, bound - 1))


texts = st.text(st.characters(exclude_categories=()), max_size=8) | st.sampled_from(
    ("", "_", "é", "\U0001f600", "\ud800", "\udc00\ud800", "x\udfff")
)
# pairs of surrogates come back as the character that they are
texts = texts.map(lambda text: text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "surrogatepass"))
#: Names that matter to the broker, and their neighbours.
marked = st.sampled_from(
    (
        *(names.ROUTING_TYPE, names.DUPLICATE_ID, names.SCHEDULED_DELIVERY, names.GROUP_ID, names.GROUP_SEQUENCE),
        *(names.BRIDGE_DUPLICATE_ID, names.BRIDGE_DUPLICATE_ID + "X"),
        *names.RESERVED_PREFIXES,
        *(prefix[:-1] for prefix in names.RESERVED_PREFIXES),
        *(prefix + "X" for prefix in names.RESERVED_PREFIXES),
        *(name + "X" for name in (names.ROUTING_TYPE, names.DUPLICATE_ID, names.SCHEDULED_DELIVERY, names.GROUP_ID)),
        "_AMQ_",
        "_",
        "\uff5fAMQ_GROUP_ID",
    )
)
VALUES: dict[int, st.SearchStrategy[Any]] = {
    typed.NULL: st.none(),
    typed.BOOLEAN: st.booleans(),
    typed.BYTE: integers(8) | st.sampled_from((0, 1)),
    typed.BYTES: st.binary(max_size=20),
    typed.SHORT: integers(16),
    typed.INT: integers(32),
    typed.LONG: integers(64),
    typed.FLOAT: st.floats(width=32),
    typed.DOUBLE: st.floats(),
    typed.STRING: texts,
    typed.CHAR: st.integers(0, 0xFFFF),
}


@st.composite
def property_maps(draw: st.DrawFn) -> Properties:
    found = Properties()
    for key in draw(st.lists(texts | marked, max_size=4, unique=True)):
        tag = draw(st.sampled_from(sorted(VALUES)))
        found.set_typed(key, tag, draw(VALUES[tag]))
    return found


def typed_properties(*entries: tuple[str, int, Any]) -> Properties:
    found = Properties()
    for key, tag, value in entries:
        found.set_typed(key, tag, value)
    return found


#: Those of ordinary clients, so that neighbours are often alike.
ordinary = st.sampled_from(
    (
        (),
        ((names.ROUTING_TYPE, typed.BYTE, 1),),
        ((names.ROUTING_TYPE, typed.BYTE, 0),),
        ((names.GROUP_ID, typed.STRING, "group"),),
        ((names.GROUP_ID, typed.STRING, "\ud800 é\U0001f600"), ("number", typed.INT, 1)),
        ((names.GROUP_ID, typed.STRING, "group"), (names.GROUP_SEQUENCE, typed.INT, 1)),
        ((names.GROUP_ID, typed.STRING, "group"), (names.GROUP_SEQUENCE, typed.INT, -1)),
        ((names.GROUP_ID, typed.STRING, "group"), (names.GROUP_SEQUENCE, typed.DOUBLE, 1.0)),
        ((names.SCHEDULED_DELIVERY, typed.LONG, 1_000), ("number", typed.INT, 1)),
        ((names.SCHEDULED_DELIVERY, typed.LONG, 1 << 62),),
        ((names.SCHEDULED_DELIVERY, typed.LONG, -1),),
        ((names.SCHEDULED_DELIVERY, typed.INT, 1_000),),
        ((names.DUPLICATE_ID, typed.STRING, "number 1"),),
        ((names.DUPLICATE_ID, typed.STRING, "number 2"), ("number", typed.INT, 1)),
        ((names.DUPLICATE_ID, typed.BYTES, b"bytes ids"),),
        ((names.DUPLICATE_ID, typed.STRING, "\ud800\U0001f600é"),),
        ((names.DUPLICATE_ID, typed.BYTES, bytes(limits.DUPLICATE_ID_BYTES_MAX)),),
        ((names.DUPLICATE_ID, typed.STRING, "é" * (limits.DUPLICATE_ID_BYTES_MAX // 2 + 1)),),
    )
).map(lambda entries: typed_properties(*entries))
addresses = st.sampled_from(("a", "a", "a", "orders.é", None, "", "\ud83d", "\U0001f600", "x" * 300))
messages = st.builds(
    Message,
    st.binary(max_size=40),
    address=addresses | texts,
    type=st.integers(0, 8),
    durable=st.booleans() | st.just(True),
    priority=st.integers(0, 9) | st.just(4),
    expiration=st.just(0) | st.integers(1, 10) | integers(64),
    timestamp=integers(64),
    user_id=st.none() | st.binary(min_size=16, max_size=16),
    properties=ordinary | property_maps(),
    message_id=integers(64),
)


def encode_one(message: Message, channel_id: int, requires_response: bool, correlation_id: int) -> bytes:
    return encode_send(message, channel_id, requires_response, correlation_id)


#: Neighbouring frames, mostly of one channel and with the same request for an answer.
batches = st.lists(
    st.builds(
        encode_one, messages, st.sampled_from((10,) * 9 + (11,)), st.sampled_from((True,) * 9 + (False,)), integers(64)
    ),
    min_size=1,
    max_size=8,
).map(b"".join)
alike_batches = st.builds(lambda message, count: encode_one(message, 10, True, 7) * count, messages, st.integers(1, 40))
starts = st.just(0) | st.integers(0, 60)
limits_bytes = st.just(LIMIT_BYTES) | st.integers(0, 200)
counts_max = st.just(256) | st.integers(0, 3)


@cache
def captured() -> tuple[bytes, ...]:
    """SESS_SEND frames of real clients, each with the bytes that follow it in the capture."""
    found = []
    for stream in streams("to-server"):
        offset = stream.find(b"ARTEMIS") + 7 if stream.startswith(b"ARTEMIS") else 0
        while offset + 13 <= len(stream):
            if stream[offset + 4] == SEND:
                found.append(stream[offset : offset + 2000])
            offset += 4 + int.from_bytes(stream[offset : offset + 4])
    return tuple(found)


@cache
def corpus() -> tuple[bytes, ...]:
    """Batches that the changes begin with."""
    rich = typed_properties(
        *((f"name {tag}", tag, value) for tag, value in ((typed.STRING, "é\ud800"), (typed.BYTES, b"raw"))),
        *((f"name {tag}", tag, 1) for tag in (typed.BYTE, typed.SHORT, typed.INT, typed.LONG, typed.CHAR)),
        *((f"name {tag}", tag, 0.5) for tag in (typed.FLOAT, typed.DOUBLE)),
        ("null", typed.NULL, None),
        ("yes", typed.BOOLEAN, True),
        (names.ROUTING_TYPE, typed.BYTE, 1),
        (names.DUPLICATE_ID, typed.STRING, "text"),
    )
    plain = encode_one(Message(b"body", address="orders"), 10, True, 1)
    full = encode_one(Message(b"body", address="orders", user_id=bytes(16), properties=rich), 10, True, 2)
    group = Properties({names.GROUP_ID: "g"})
    grouped = encode_one(Message(b"", address="orders", properties=group), 10, True, 3)
    return (plain * 3, full * 2, plain + full + grouped, *captured()[:20])


def due_ms(message: Message) -> int:
    """The time of delivery of a message that the ordinary path handles; 0: none."""
    properties = message.properties
    if names.SCHEDULED_DELIVERY not in properties or properties.tag(names.SCHEDULED_DELIVERY) != typed.LONG:
        return 0
    value = properties[names.SCHEDULED_DELIVERY]
    return max(value, 0) if isinstance(value, int) else 0


def duplicate_id_of(message: Message) -> bytes:
    value = message.properties.get(names.DUPLICATE_ID)
    key = value.encode("utf-8", "surrogatepass") if isinstance(value, str) else value
    return key if isinstance(key, bytes) and len(key) <= limits.DUPLICATE_ID_BYTES_MAX else b""


def group_of(message: Message) -> str | None:
    group = message.properties.get(names.GROUP_ID)
    return group if isinstance(group, str) else None
