"""Identifiers."""

from __future__ import annotations

import pytest

from understudy.ids import EPOCH_SHIFT, Xid, first_id_of_epoch, uuid_bytes, uuid_text


def test_ids_of_epochs_never_meet() -> None:
    assert first_id_of_epoch(0) == 1
    for epoch in (0, 1, 2**22 - 2):
        last_possible = first_id_of_epoch(epoch) + 2**EPOCH_SHIFT - 2
        assert last_possible < first_id_of_epoch(epoch + 1)
    assert first_id_of_epoch(2**23 - 1) < 2**63


def test_uuid_both_ways() -> None:
    raw = bytes(range(16))
    text = "00010203-0405-0607-0809-0a0b0c0d0e0f"
    assert uuid_text(raw) == text
    assert uuid_bytes(text) == uuid_bytes(text.upper()) == raw


@pytest.mark.parametrize("text", ["", "x", "0001", "00010203-0405-0607-0809-0a0b0c0d0e0g"])
def test_no_uuid(text: str) -> None:
    with pytest.raises(ValueError):
        uuid_bytes(text)


def test_xids_compare_by_value() -> None:
    assert {Xid(1, b"g", b"b"): 5}[Xid(1, b"g", b"b")] == 5
    assert Xid(1, b"g", b"b") != Xid(1, b"b", b"g")
