"""Goal: only the store used before is taken; an unmounted or foreign one is refused with its reason."""

from __future__ import annotations

import json
import threading
from pathlib import Path

import pytest
from ansible_collections.understudy.broker.plugins.module_utils.mounts import Mount
from ansible_collections.understudy.broker.plugins.module_utils.store import (
    Elsewhere,
    StoreError,
    StoreIdentity,
    asserted_mount_point,
    claim,
    judge,
    note,
    refuse_unmounted,
)

EAST = StoreIdentity("id-1", "orders", "east")


@pytest.fixture
def places(tmp_path: Path) -> tuple[Path, Path]:
    store, instance = tmp_path / "store", tmp_path / "instance"
    store.mkdir()
    (instance / "etc").mkdir(parents=True)
    return store, instance


def write(path: Path, content: str) -> None:
    path.write_text(content)


def test_a_new_store_is_claimed_noted_and_recognised(places: tuple[Path, Path]) -> None:
    store, instance = places
    assert judge(store, instance, EAST) is None
    assert claim(store, EAST) == EAST
    assert note(instance, EAST, write)
    assert not note(instance, EAST, write)
    assert judge(store, instance, StoreIdentity("other", "orders", "east")) == EAST
    assert [path.name for path in store.iterdir()] == ["store.json"]


def test_an_unmounted_store_is_refused(places: tuple[Path, Path]) -> None:
    store, instance = places
    note(instance, EAST, write)
    with pytest.raises(StoreError, match=r"is empty of the store id-1 .*is it mounted\?"):
        judge(store, instance, EAST)


def test_another_store_at_the_same_path_is_refused(places: tuple[Path, Path]) -> None:
    store, instance = places
    note(instance, EAST, write)
    claim(store, StoreIdentity("id-2", "orders", "east"))
    with pytest.raises(StoreError, match="holds the store id-2, but this host used id-1"):
        judge(store, instance, EAST)


def test_the_store_of_another_pair_is_refused(places: tuple[Path, Path]) -> None:
    store, instance = places
    claim(store, StoreIdentity("id-2", "orders", "west"))
    with pytest.raises(StoreError, match="belongs to pair 'west' of cluster 'orders', not to pair 'east'"):
        judge(store, instance, EAST)


def test_data_of_unknown_origin_is_refused(places: tuple[Path, Path]) -> None:
    store, instance = places
    (store / "journal").mkdir()
    assert judge(store, instance, EAST) is None
    (store / "journal/segment").touch()
    with pytest.raises(StoreError, match="holds data in journal"):
        judge(store, instance, EAST)


def test_of_many_who_claim_at_once_one_wins_and_all_agree(places: tuple[Path, Path]) -> None:
    store = places[0]
    found: list[StoreIdentity] = []
    barrier = threading.Barrier(8)

    def contend(number: int) -> None:
        barrier.wait()
        found.append(claim(store, StoreIdentity(f"id-{number}", "orders", "east")))

    threads = [threading.Thread(target=contend, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(found) == 8
    assert len(set(found)) == 1


LOCAL = Mount("/", "ext4", "/dev/vda1")
SHARED = Mount("/srv/orders", "nfs4", "store:/orders")
PATH = Path("/srv/orders/pair")


def test_a_store_that_is_mounted_on_both_hosts_may_be_made() -> None:
    refuse_unmounted(PATH, SHARED, None, "", [Elsewhere("b", SHARED, "")])
    refuse_unmounted(PATH, SHARED, None, "/srv/orders", [])


def test_a_path_that_is_mounted_nowhere_may_be_made() -> None:
    refuse_unmounted(PATH, LOCAL, None, "", [Elsewhere("b", LOCAL, "")])


@pytest.mark.parametrize("store_id", ["", "id-1"])
def test_nothing_is_made_on_a_path_that_another_host_has_mounted(store_id: str) -> None:
    with pytest.raises(StoreError, match=r"holds no store, but b has store:/orders \(nfs4\) on /srv/orders mounted"):
        refuse_unmounted(PATH, LOCAL, None, "", [Elsewhere("a", LOCAL, ""), Elsewhere("b", SHARED, store_id)])


def test_a_local_mount_above_the_path_does_not_stand_for_the_store() -> None:
    with pytest.raises(StoreError, match="mount it here first"):
        refuse_unmounted(PATH, Mount("/srv", "ext4", "/dev/vdb"), None, "", [Elsewhere("b", SHARED, "")])


def test_a_recognised_store_may_be_local_on_one_host() -> None:
    refuse_unmounted(PATH, LOCAL, EAST, "", [Elsewhere("b", SHARED, EAST.store_id)])


def test_two_stores_at_one_path_are_refused() -> None:
    with pytest.raises(StoreError, match="holds the store id-1, but at b the store id-2"):
        refuse_unmounted(PATH, SHARED, EAST, "", [Elsewhere("b", SHARED, "id-2")])


@pytest.mark.parametrize("found", [None, EAST])
def test_a_named_mount_point_must_be_mounted(found: StoreIdentity | None) -> None:
    with pytest.raises(StoreError, match="nothing is mounted on /srv/orders"):
        refuse_unmounted(PATH, LOCAL, found, "/srv/orders", [])


def test_only_a_mount_of_its_own_is_asserted() -> None:
    assert asserted_mount_point(SHARED) == "/srv/orders"
    assert asserted_mount_point(LOCAL) == ""


@pytest.mark.parametrize("result", [{}, {"mount": {}, "store_id": 1}, {"mount": "x", "store_id": ""}])
def test_a_result_of_another_module_is_an_error(result: dict[str, object]) -> None:
    with pytest.raises(StoreError, match="peers: b: give what store_info returned"):
        Elsewhere.from_result("b", result)


@pytest.mark.parametrize(
    "content", ["", "{", json.dumps({"store_id": "x"}), json.dumps({"store_id": 1, "cluster": "c", "pair": "p"})]
)
def test_a_broken_identity_is_none(tmp_path: Path, content: str) -> None:
    path = tmp_path / "store.json"
    path.write_text(content)
    assert StoreIdentity.read(path) is None
