"""Numbers of publishes of client sessions of AMQP 0-9-1 in the log (ADR 0195)."""

from __future__ import annotations

import pytest

from support.unit_store import UnitStore
from understudy.store.log.records import AddressRecord
from understudy.store.session_numbers import NO_ADDRESS, NUMBER_ID_BYTES, number_id
from understudy.store.setting_record import SettingKind, SettingRecord
from understudy.store.snapshots.snapshot import apply_part, small_parts
from understudy.store.state import StoreState

UUID = "01234567-89ab-4def-8123-456789abcdef"
OTHER = "01234567-89ab-4def-8123-456789abcde0"


def store_session(store: UnitStore, uuid: str = UUID, incarnation: int = 7) -> None:
    store.store_setting(SettingRecord(SettingKind.CLIENT_SESSION, uuid, {}))
    store.store_setting(SettingRecord(SettingKind.CLIENT_SESSION, f"{uuid}/1", {"incarnation": incarnation}))


def store_numbers(store: UnitStore, *numbers: int, uuid: str = UUID, incarnation: int = 7, tx_id: int = 0) -> None:
    ids = [number_id(uuid, 1, incarnation, number) for number in numbers]
    store.store_duplicate_ids(NO_ADDRESS, ids, tx_id)


def highest(store: UnitStore, uuid: str = UUID, incarnation: int = 7) -> tuple[int, int]:
    """The number of a channel in the active store, and the one that a restart finds."""
    found = store.found().session_numbers.highest(uuid, 1, incarnation)
    return store.state.session_numbers.highest(uuid, 1, incarnation), found


def test_the_highest_number_of_a_channel_is_kept() -> None:
    store = UnitStore.begin()
    store_session(store)
    store_session(store, OTHER)
    store_numbers(store, 1, 2, 3, 2)
    store_numbers(store, 9, uuid=OTHER)
    assert highest(store) == (3, 3)
    assert highest(store, OTHER) == (9, 9)


def test_numbers_of_no_session_are_dropped() -> None:
    store = UnitStore.begin()
    store_numbers(store, 5)
    store_session(store)
    assert highest(store) == (0, 0)
    assert list(store.state.session_numbers.ids()) == []


@pytest.mark.parametrize("match", [UUID, f"{UUID}/1"])
def test_numbers_end_with_their_session_or_channel(match: str) -> None:
    store = UnitStore.begin()
    store_session(store)
    store_numbers(store, 5)
    store.store_setting(SettingRecord(SettingKind.CLIENT_SESSION, match, None))
    assert highest(store) == (0, 0)


def test_another_incarnation_counts_anew() -> None:
    store = UnitStore.begin()
    store_session(store)
    store_numbers(store, 5)
    store_session(store)
    assert highest(store) == (5, 5), "a change of the channel is no other one"
    store_session(store, incarnation=8)
    assert highest(store) == (0, 0)
    store_numbers(store, 1, incarnation=8)
    assert highest(store, incarnation=8) == (1, 1)


def test_a_number_in_a_transaction_counts_with_its_commit() -> None:
    store = UnitStore.begin()
    store_session(store)
    store_numbers(store, 1, tx_id=100)
    assert highest(store) == (0, 0)
    store.store_commit(100)
    assert highest(store) == (1, 1)
    store_numbers(store, 2, tx_id=101)
    store.store_rollback(101)
    assert highest(store) == (1, 1)


def test_numbers_are_in_snapshots() -> None:
    store = UnitStore.begin()
    store_session(store)
    store_numbers(store, 1, 2)
    again = StoreState()
    for kind, payload in small_parts(store.state, {}):
        apply_part(again, kind, payload)
    assert again.session_numbers == store.state.session_numbers
    assert again.settings == store.state.settings


def test_numbers_are_no_duplicate_ids_of_an_address() -> None:
    state = StoreState(id_cache_size=2)
    state.addresses[5] = AddressRecord(5, "a", (1,))
    state.settings[SettingKind.CLIENT_SESSION, UUID] = SettingRecord(SettingKind.CLIENT_SESSION, UUID, {})
    numbers = [number_id(UUID, 1, 7, number) for number in range(1, 6)]
    state.remember_duplicates(5, [b"x", *numbers, b"y"])
    state.remember_packed(5, NUMBER_ID_BYTES, b"".join(number_id(UUID, 2, 7, number) for number in range(1, 6)))
    assert list(state.duplicate_ids[5]) == [b"x", b"y"]
    assert [state.session_numbers.highest(UUID, channel, 7) for channel in (1, 2)] == [5, 5]
