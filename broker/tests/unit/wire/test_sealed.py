"""Sealed bytes of a connection: every split is read, and every change, repetition, gap and reflection is refused."""

from __future__ import annotations

import random

import pytest

from understudy.errors import BrokerError, ClusterSecurityError
from understudy.limits import SEALED_RUN_BYTES_MAX
from understudy.wire.core import packets
from understudy.wire.core.codec import FrameDecoder, encode
from understudy.wire.sealed import CODE_BYTES, RUN_HEAD_BYTES, SHORT_RUN_BYTES_MAX, Opener, Sealer

KEY, OTHER = b"k" * 32, b"o" * 32
PIECES = [b"one", b"", b"two" * 10, b"x" * 40_000, b"three"]


def runs(*outputs: list[bytes], key: bytes = KEY) -> list[bytes]:
    """The outputs as they are written, one after the other."""
    sealer = Sealer(key)
    return [b"".join(map(bytes, sealer.seal(output))) for output in outputs]


def opened(*parts: bytes, key: bytes = KEY) -> bytes:
    opener = Opener(key, "peer:1")
    return b"".join(bytes(opener.receive(part)) for part in parts)


@pytest.mark.parametrize("seed", range(20))
def test_any_split_of_the_bytes_is_read(seed: int) -> None:
    rng = random.Random(seed)
    plain = [rng.randbytes(rng.choice((1, 10, 300, 70_000, SEALED_RUN_BYTES_MAX + 1))) for _ in range(8)]
    data = b"".join(runs(*([each] for each in plain)))
    cuts = sorted(rng.sample(range(len(data)), k=rng.choice((1, 3, 50))))
    parts = [data[begin:end] for begin, end in zip([0, *cuts], [*cuts, len(data)], strict=True)]
    assert opened(*parts) == b"".join(plain)


def test_bytes_that_come_one_by_one_are_read() -> None:
    (data,) = runs(PIECES[:3])
    assert opened(*(data[at : at + 1] for at in range(len(data)))) == b"".join(PIECES[:3])


def test_small_pieces_share_a_run_and_large_ones_are_not_copied() -> None:
    large = b"l" * 100_000
    sealed = Sealer(KEY).seal([b"a", b"b", large, b"c"])
    assert [len(bytes(each)) for each in sealed] == [RUN_HEAD_BYTES + 2, RUN_HEAD_BYTES, 100_000, RUN_HEAD_BYTES + 1]
    assert sealed[2] is large
    (run,) = runs([b"x"])
    assert isinstance(Opener(KEY, "p").receive(run), memoryview), "a view of the input"


def test_every_flipped_bit_is_noticed_and_nothing_of_the_run_is_passed_on() -> None:
    first, second = runs([b"first"], [b"second"])
    for at in range(len(second)):
        for bit in range(8):
            changed = bytearray(second)
            changed[at] ^= 1 << bit
            opener = Opener(KEY, "peer:1")
            assert bytes(opener.receive(first)) == b"first"
            with pytest.raises(ClusterSecurityError, match="peer:1"):
                # a longer length waits for bytes that follow
                for part in (bytes(changed), bytes(SEALED_RUN_BYTES_MAX)):
                    assert opener.receive(part) == b""


@pytest.mark.parametrize("size", [SHORT_RUN_BYTES_MAX, SHORT_RUN_BYTES_MAX + 1], ids=["short", "long"])
def test_a_run_of_either_kind_is_read_and_every_change_of_it_is_noticed(size: int) -> None:
    plain = random.Random(size).randbytes(size)
    first, second = runs([b"first"], [plain])
    assert opened(first, second) == b"first" + plain
    for at in (4, RUN_HEAD_BYTES - 1, RUN_HEAD_BYTES, len(second) - 1):
        changed = bytearray(second)
        changed[at] ^= 1
        with pytest.raises(ClusterSecurityError, match="its code is wrong"):
            opened(first, bytes(changed))
    for parts in ((second,), (first, second, second), (second, first)):
        with pytest.raises(ClusterSecurityError, match="its code is wrong"):
            opened(*parts)


def test_a_code_of_one_kind_is_none_of_the_other() -> None:
    """A run that is made longer or shorter than the limit has another code, whatever its bytes are."""
    (short,) = runs([bytes(SHORT_RUN_BYTES_MAX)])
    (long,) = runs([bytes(SHORT_RUN_BYTES_MAX + 1)])
    code = slice(RUN_HEAD_BYTES - CODE_BYTES, RUN_HEAD_BYTES)
    for run, other in ((short, long), (long, short)):
        with pytest.raises(ClusterSecurityError, match="its code is wrong"):
            opened(run[: code.start] + other[code] + run[code.stop :])


def test_repeated_reordered_and_dropped_runs_are_refused() -> None:
    one, two, three = runs([b"one"], [b"two"], [b"three"])
    for parts in ((one, one), (two, one, three), (one, three), (two,), (one, two, two)):
        with pytest.raises(ClusterSecurityError, match="its code is wrong"):
            opened(*parts)


def test_bytes_of_the_other_direction_and_of_another_connection_are_refused() -> None:
    (data,) = runs([b"bytes"], key=OTHER)
    with pytest.raises(ClusterSecurityError):
        opened(data)


@pytest.mark.parametrize("length", [0, SEALED_RUN_BYTES_MAX + 1, 0xFFFF_FFFF])
@pytest.mark.parametrize("split", [4, 2])
def test_a_length_that_is_not_allowed_is_refused_before_memory_is_taken(length: int, split: int) -> None:
    opener = Opener(KEY, "peer:1")
    data = length.to_bytes(4, "big")
    with pytest.raises(ClusterSecurityError, match="are allowed"):
        for part in (data[:split], data[split:]):
            opener.receive(part)


def test_after_an_error_nothing_is_read_any_more() -> None:
    opener = Opener(KEY, "peer:1")
    good, other = runs([b"good"])[0], runs([b"bad"], key=OTHER)[0]
    with pytest.raises(ClusterSecurityError):
        opener.receive(other)
    with pytest.raises(ClusterSecurityError, match="has failed before"):
        opener.receive(good)


# --- under the codec -------------------------------------------------------------------------------


@pytest.mark.parametrize("split", [0, 1, 5, 12, 13, 20, 60])
@pytest.mark.parametrize("last", [packets.ClusterProof(b"p"), packets.ClusterAccept(b"p")])
def test_the_codec_ends_a_read_at_the_last_packet_before_sealed_bytes(last: packets.Packet, split: int) -> None:
    """Sealed bytes that came with it are opened, those that come later too."""
    decoder = FrameDecoder("client")
    pings = [packets.Ping(number) for number in range(3)]
    (sealed,) = runs([encode(each, 0) for each in pings])
    frames = decoder.receive_data(encode(pings[0], 0) + encode(last, 3) + sealed[:split])
    assert [each.packet for each in frames] == [pings[0], last]
    decoder.open_with(Opener(KEY, "peer:1"))
    frames = decoder.receive_data(b"") if decoder.backlog else []
    frames += decoder.receive_data(sealed[split:])
    assert [each.packet for each in frames] == pings


def test_without_an_opener_the_codec_goes_on_with_plain_frames() -> None:
    decoder = FrameDecoder("client")
    frames = decoder.receive_data(encode(packets.ClusterAccept(b"p"), 3) + encode(packets.Ping(1), 0))
    assert len(frames) == 1
    assert decoder.backlog
    (frame,) = decoder.receive_data(b"")
    assert frame.packet == packets.Ping(1)


def test_plain_frames_on_a_sealed_connection_are_refused() -> None:
    decoder = FrameDecoder("client")
    decoder.receive_data(encode(packets.ClusterAccept(b"p"), 3))
    decoder.open_with(Opener(KEY, "peer:1"))
    with pytest.raises(BrokerError):
        decoder.receive_data(encode(packets.Ping(1), 0) * 100)
