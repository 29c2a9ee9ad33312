"""A user with write access to the directories of a store (docs/operate/security.md, class 15): refused or located."""

from __future__ import annotations

import os
import shutil
import struct
import zlib
from pathlib import Path

import pytest

from support import forked
from support.nodes import Nodes
from support.processes import COMMAND, Node
from understudy.client.sync import connect
from understudy.runtime.base.disk import RealDisk
from understudy.store.log.reading.replay import read_frames
from understudy.store.log.records import HEADER, HEADER_BYTES, RecordType
from understudy.store.log.segment import parse_name, seed_of

COUNT = 50


@pytest.fixture(scope="module")
def written(nodes_of_module: Nodes) -> Path:
    """The store of a node that was killed after it had confirmed ``COUNT`` messages."""
    pair = nodes_of_module.active()
    command = [str(COMMAND), "produce", "--url", f"tcp://127.0.0.1:{pair.primary.port}", "--queue", "q"]
    # the last in a batch of its own, which proves that those before were synced
    for count in (COUNT - 1, 1):
        forked.run([*command, "--count", str(count), "--size", "500"], check=True, capture_output=True)
    pair.primary.kill()
    return pair.store


@pytest.fixture
def node(nodes: Nodes, written: Path) -> Node:
    """An active node with a copy of it."""
    pair = nodes.pair()
    shutil.copytree(written, pair.store)
    pair.primary.start().wait_ready("active")
    return pair.primary


def journal(node: Node) -> Path:
    return node.directory.parent / "store" / "journal"


def restart(node: Node) -> int | None:
    """Exit code of a node that did not start, None for one that did."""
    node.end()
    node.start()
    try:
        node.wait_ready("active")
    except AssertionError:
        assert node.process is not None
        return node.process.poll()
    return None


def consumed(node: Node) -> int:
    """How many messages there were; none is left."""
    found = 0
    with connect(f"tcp://127.0.0.1:{node.port}") as connection, connection.session() as session:
        session.start()
        consumer = session.consumer("q")
        # asks the broker, which says when there is no more
        while (received := consumer.receive_nowait()) is not None:
            consumer.acknowledge(received)
            found += 1
    return found


def test_nothing_in_the_store_is_open_to_others(node: Node) -> None:
    """Directories 0700, files 0600: whatever the umask is."""
    store = node.directory.parent / "store"
    for folder, _, names in os.walk(store):
        if Path(folder) != store:
            assert Path(folder).stat().st_mode & 0o077 == 0, folder
        for name in names:
            assert (Path(folder) / name).stat().st_mode & 0o077 == 0, name


def test_a_store_that_all_users_can_write_is_refused(node: Node) -> None:
    node.kill()
    journal(node).chmod(0o777)
    assert restart(node) == 1
    assert "can be written by all users" in node.tail()
    journal(node).chmod(0o770)
    assert restart(node) is None
    assert "can be written by its group" in node.log.read_text()


def test_a_token_that_all_users_can_read_is_refused(node: Node) -> None:
    node.kill()
    token = node.directory / "etc" / "management.token"
    token.chmod(0o644)
    arguments = [str(COMMAND), "run", "--config", str(node.config), "--instance", str(node.directory)]
    done = forked.run(
        [*arguments, "--http", f"127.0.0.1:{node.http_port}", "--http-token-file", str(token)],
        capture_output=True, text=True, timeout=60,
    )  # fmt: skip
    assert done.returncode == 2
    assert "can be read by all users" in done.stderr


@pytest.mark.parametrize("name", ["segment", "server.lock", "serverlock.1"])
def test_a_link_in_the_place_of_a_file_is_not_followed(node: Node, name: str, tmp_path: Path) -> None:
    node.kill()
    path = next(iter(sorted(journal(node).glob("segment-*.log")))) if name == "segment" else journal(node) / name
    outside = tmp_path / "outside"
    shutil.copy(path, outside)
    before = outside.read_bytes()
    path.unlink()
    path.symlink_to(outside)
    assert restart(node) == 1
    assert path.name in node.tail()
    assert outside.read_bytes() == before


def segment_with_messages(node: Node) -> tuple[Path, list[tuple[int, int]]]:
    """The segment and where its MESSAGE_ADD records are: offset and length."""
    path = sorted(journal(node).glob("segment-*.log"))[0]
    parsed = parse_name(path.name)
    assert parsed is not None
    file = RealDisk().open(str(path), read_only=True)
    try:
        frames = [frame for frame, _ in read_frames(file, seed_of(*parsed[:2]))]
    finally:
        file.close()
    return path, [(frame.offset, frame.length) for frame in frames if frame.kind == RecordType.MESSAGE_ADD]


def reseal(data: bytearray, offset: int, length: int, seed: int) -> None:
    """Give a record the checksum of its present contents, as a program that knows the format would."""
    struct.pack_into("<I", data, offset, zlib.crc32(memoryview(data)[offset + 4 : offset + length], seed))


def test_an_edited_record_is_located(node: Node) -> None:
    """Without a new checksum the node does not start and says where."""
    node.kill()
    path, messages = segment_with_messages(node)
    offset, length = messages[COUNT // 2]
    data = bytearray(path.read_bytes())
    data[offset + length - 20] ^= 1
    path.write_bytes(data)
    assert restart(node) == 1
    assert path.name in node.tail()
    assert f"offset {offset}" in node.tail()


@pytest.mark.parametrize("count", [0xFFFFFFFF, 1_000_000])
def test_hostile_counts_under_a_right_checksum_are_refused(node: Node, count: int) -> None:
    """A record that announces four thousand million queues: located, and no memory taken for them."""
    node.kill()
    path, messages = segment_with_messages(node)
    offset, length = messages[3]
    parsed = parse_name(path.name)
    assert parsed is not None
    data = bytearray(path.read_bytes())
    at = offset + HEADER_BYTES + struct.calcsize("<QQQqqBBH")
    struct.pack_into("<I", data, at, count)
    reseal(data, offset, length, seed_of(*parsed[:2]))
    path.write_bytes(data)
    assert restart(node) == 1
    assert path.name in node.tail()
    assert "journal-corrupt" in node.tail()


@pytest.mark.parametrize("length", [0xFFFFFFFF, 0])
def test_a_hostile_length_of_a_record_is_refused(node: Node, length: int) -> None:
    node.kill()
    path, messages = segment_with_messages(node)
    data = bytearray(path.read_bytes())
    crc, _, *rest = HEADER.unpack_from(data, messages[2][0])
    HEADER.pack_into(data, messages[2][0], crc, length, *rest)
    path.write_bytes(data)
    assert restart(node) == 1
    assert path.name in node.tail()


def test_a_journal_of_the_past_is_another_past_and_never_mixed(node: Node, tmp_path: Path) -> None:
    """The whole directory put back as it was is a backup restored; single old files beside newer ones are refused."""
    node.terminate()
    old = tmp_path / "old"
    shutil.copytree(journal(node), old)
    assert restart(node) is None
    assert consumed(node) == COUNT
    node.terminate()
    newest = sorted(path.name for path in journal(node).glob("segment-*.log"))[-1]
    for path in journal(node).glob("segment-*.log"):
        if path.name != newest:
            path.unlink()
    for path in old.glob("segment-*.log"):
        shutil.copy(path, journal(node) / path.name)
    code = restart(node)
    if code is None:
        # the newest epoch says where the older segments end: acknowledgements in it stay
        assert consumed(node) == 0
    else:
        assert code == 1
        assert "segment-" in node.tail()


def test_two_nodes_of_one_id_do_not_both_serve_one_store(node: Node, tmp_path: Path) -> None:
    """A copied instance that points at the same store waits passively, whatever its node id claims."""
    copy = Node(tmp_path / "copy", "primary", node.port)
    copy.config.parent.mkdir(parents=True)
    copy.config.write_text(node.config.read_text())
    try:
        copy.start().wait_ready("passive")
        assert node.get("/health/ready")[1]["state"] == "active"
    finally:
        copy.end()
