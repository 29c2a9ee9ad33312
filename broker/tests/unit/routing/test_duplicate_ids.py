"""The circular cache of duplicate ids."""

from __future__ import annotations

import pytest

from understudy.errors import LimitExceeded
from understudy.limits import DUPLICATE_ID_BYTES_MAX
from understudy.routing.lifecycle.duplicate_ids import DuplicateIdCache, duplicate_id_bytes, forwarded_id_bytes


def test_the_oldest_is_forgotten_first() -> None:
    cache = DuplicateIdCache(3)
    for number in range(5):
        cache.add(bytes([number]), number)
    assert len(cache) == 3
    assert b"\x01" not in cache
    assert cache.sequence_of(b"\x01") is None
    assert cache.sequence_of(b"\x04") == 4


def test_restored_ids_are_durable_and_trimmed_to_the_newest() -> None:
    cache = DuplicateIdCache(2, [b"a", b"b", b"c"])
    assert b"a" not in cache
    assert cache.sequence_of(b"c") == 0
    cache.add(b"d", 9)
    assert b"b" not in cache
    assert b"c" in cache


def test_a_cache_of_no_size_remembers_nothing() -> None:
    cache = DuplicateIdCache(0)
    cache.add(b"a", 1)
    assert b"a" not in cache
    assert DuplicateIdCache(0, [b"a"]).sequence_of(b"a") is None


@pytest.mark.parametrize("capacity", [0, 1, 3, 5, 100])
def test_ids_remembered_together_are_those_remembered_one_by_one(capacity: int) -> None:
    ids = [bytes([number]) for number in range(5)]
    together, single = DuplicateIdCache(capacity, [b"x", b"y"]), DuplicateIdCache(capacity, [b"x", b"y"])
    assert together.unseen([*ids, b"y", b"z"]) == (5 if capacity else 7)
    assert together.unseen([b"p", b"q", b"p"]) == 2
    assert together.take([*ids, b"y", b"z"], 10) == (5 if capacity else 7)
    for number, duplicate_id in enumerate(ids):
        single.add(duplicate_id, 10 + number)
    assert list(together) == list(single)
    assert [together.sequence_of(each) for each in ids] == [single.sequence_of(each) for each in ids]
    assert together.sequence_of(b"x") == single.sequence_of(b"x")


def test_clear_forgets_all() -> None:
    cache = DuplicateIdCache(2, [b"a"])
    cache.clear()
    assert len(cache) == 0
    assert b"a" not in cache


def test_strings_and_bytes_are_keys_and_the_length_is_limited() -> None:
    assert duplicate_id_bytes("é") == "é".encode()
    assert duplicate_id_bytes(b"\x00\xff") == b"\x00\xff"
    with pytest.raises(LimitExceeded, match="limit"):
        duplicate_id_bytes("x" * (DUPLICATE_ID_BYTES_MAX + 1))


def test_the_id_of_a_bridge_is_never_that_of_a_producer() -> None:
    assert forwarded_id_bytes(b"x" * 24) not in (b"x" * 24, duplicate_id_bytes(b"x" * 24))
    with pytest.raises(LimitExceeded, match="limit"):
        forwarded_id_bytes("x" * (DUPLICATE_ID_BYTES_MAX + 1))
    with pytest.raises(LimitExceeded, match="limit"):
        forwarded_id_bytes("x" * DUPLICATE_ID_BYTES_MAX)


@pytest.mark.parametrize("together", [False, True])
def test_ids_of_clients_displace_no_id_of_a_bridge(together: bool) -> None:
    cache = DuplicateIdCache(2)
    forwarded = [forwarded_id_bytes(bytes([number])) for number in range(3)]
    clients = [b"a", b"b", b"c"]
    mixed = [each for pair in zip(forwarded, clients, strict=True) for each in pair]
    if together:
        assert cache.take(mixed, 1) == 6
    else:
        for sequence, each in enumerate(mixed, 1):
            cache.add(each, sequence)
    assert list(cache) == [b"b", b"c", *forwarded[1:]]
    assert (cache.sequence_of(forwarded[1]), cache.sequence_of(b"c")) == (3, 6)
    cache.resize(1)
    assert list(cache) == [b"c", forwarded[2]]
    assert list(DuplicateIdCache(2, mixed)) == [b"b", b"c", *forwarded[1:]]
