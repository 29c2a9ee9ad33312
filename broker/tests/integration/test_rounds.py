"""The harness of fault rounds: what its disk loses with the power and how it fails, and short rounds of each kind."""

from __future__ import annotations

import errno
import random
import shutil
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from rounds.__main__ import PAIRS
from rounds.disk import DiskFaults, Fault, build
from rounds.engine import KINDS, Rounds, Row
from rounds.sites import Site
from support import forked

#: Draws syncs that fail and a full disk, each at the active node. Wrong reads have tests of their own.
SEED = 9

pytestmark = pytest.mark.skipif(shutil.which("cc") is None, reason="no C compiler")


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build(tmp_path_factory.mktemp("library"))


class Disk:
    """A directory that a process changes."""

    def __init__(self, library: Path, directory: Path) -> None:
        self.root = directory / "root"
        self.root.mkdir()
        self.faults = DiskFaults(library, directory / "faults", [self.root], logs=True)

    def run(self, code: str) -> str:
        """Run code that is killed at its end."""
        text = f"import os, signal\nos.chdir({str(self.root)!r})\n{code}\nos.kill(os.getpid(), signal.SIGKILL)\n"
        command = [*self.faults.prefix, sys.executable, "-c", text]
        done = forked.run(command, capture_output=True, text=True, timeout=60)
        assert done.returncode == -9, done.stderr
        return done.stdout

    def files(self) -> dict[str, bytes]:
        return {path.name: path.read_bytes() for path in sorted(self.root.iterdir()) if path.is_file()}


@pytest.fixture
def disk(library: Path, tmp_path: Path) -> Disk:
    return Disk(library, tmp_path)


class Stream(random.Random):
    """Keeps nothing that was not synced."""

    def random(self) -> float:
        return 0.99


OPEN = "f = os.open('a', os.O_RDWR | os.O_CREAT, 0o600); d = os.open('.', os.O_RDONLY | os.O_DIRECTORY)\n"


@pytest.mark.parametrize(
    ("code", "left"),
    [
        ("os.pwrite(f, b'one', 0)", {}),
        ("os.pwrite(f, b'one', 0); os.fdatasync(f)", {}),
        ("os.fsync(d); os.pwrite(f, b'one', 0)", {"a": b""}),
        ("os.fsync(d); os.pwrite(f, b'one', 0); os.fdatasync(f); os.pwrite(f, b'two three', 0)", {"a": b"one"}),
        ("os.fsync(d); os.pwritev(f, [b'on', b'e'], 0); os.fsync(f); os.ftruncate(f, 1)", {"a": b"one"}),
        ("os.fsync(d); os.posix_fallocate(f, 0, 3); os.fsync(f); os.pwrite(f, b'x', 1)", {"a": b"\0\0\0"}),
        ("os.fsync(d); os.pwrite(f, b'one', 0); os.fsync(f); os.rename('a', 'b')", {"a": b"one"}),
        ("os.pwrite(f, b'one', 0); os.fsync(f); os.rename('a', 'b'); os.fsync(d)", {"b": b"one"}),
        ("os.fsync(d); os.pwrite(f, b'one', 0); os.fsync(f); os.unlink('a')", {"a": b"one"}),
        ("os.fsync(d); os.unlink('a'); os.fsync(d)", {}),
        ("os.pwrite(f, b'one', 0); os.fsync(f); os.fsync(d); os.link('a', 'b')", {"a": b"one"}),
        # the name of the replaced file returns with its content
        (
            (
                "os.pwrite(f, b'old', 0); os.fsync(f); os.fsync(d);"
                " g = os.open('new', os.O_RDWR | os.O_CREAT, 0o600); os.pwrite(g, b'new', 0); os.fsync(g);"
                " os.rename('new', 'a')"
            ),
            {"a": b"old"},
        ),
    ],
)
def test_a_loss_of_power_takes_everything_that_no_sync_covers(disk: Disk, code: str, left: dict[str, bytes]) -> None:
    disk.run(OPEN + code)
    disk.faults.lose_power(Stream())
    assert disk.files() == left


def test_the_names_of_a_directory_go_with_its_synced_removal(disk: Disk) -> None:
    """No sync of the directory itself covers them."""
    (disk.root / "old" / "inner").mkdir(parents=True)
    (disk.root / "old" / "a").write_bytes(b"one")
    removals = "os.unlink('old/a'); os.rmdir('old/inner'); os.rmdir('old')"
    disk.run(f"d = os.open('.', os.O_RDONLY); {removals}; os.fsync(d)")
    disk.faults.lose_power(Stream())
    assert list(disk.root.iterdir()) == []


def test_a_kill_without_a_loss_of_power_takes_nothing(disk: Disk) -> None:
    disk.run(OPEN + "os.pwrite(f, b'one', 0)")
    disk.faults.begin()
    disk.run(OPEN)
    disk.faults.lose_power(Stream())
    assert disk.files() == {"a": b"one"}


def test_any_sectors_of_unsynced_bytes_may_be_kept(disk: Disk) -> None:
    kept = set()
    for seed in range(12):
        disk.run(OPEN + "os.ftruncate(f, 0); os.fsync(f); os.fsync(d); os.pwrite(f, b'x' * 2048, 0)")
        disk.faults.lose_power(random.Random(seed))
        data = disk.files()["a"].ljust(2048, b"\0")
        sectors = [data[at : at + 512] for at in range(0, 2048, 512)]
        assert set(sectors) <= {b"x" * 512, bytes(512)}
        kept.add(tuple(each[0] for each in sectors))
    assert len(kept) > 3


def test_a_sync_that_failed_covers_nothing_and_neither_does_the_next(disk: Disk) -> None:
    disk.faults.fail(Fault.SYNC, 1000, 1)
    code = (
        "g = os.open('synced', os.O_RDWR | os.O_CREAT, 0o600)\n"
        "os.pwrite(f, b'one', 0)\ntry:\n os.fsync(f)\nexcept OSError as e:\n print(e.errno, flush=True)\n"
    )
    assert disk.run(OPEN + code).split() == [str(errno.EIO)]
    assert disk.faults.heal() == 1
    disk.faults.lose_power(Stream())
    assert disk.files() == {}


@pytest.mark.parametrize(
    ("fault", "code", "number"),
    [
        (Fault.READ, "os.pread(f, 10, 0)", errno.EIO),
        (Fault.WRITE, "os.pwrite(f, b'x', 0)", errno.EIO),
        (Fault.WRITE, "os.posix_fallocate(f, 0, 4096)", errno.EIO),
        (Fault.NO_SPACE, "os.posix_fallocate(f, 0, 4096)", errno.ENOSPC),
        (Fault.NO_SPACE, "os.pwrite(f, b'xyz', 1)", errno.ENOSPC),
        (Fault.NO_SPACE, "os.open('b', os.O_RDWR | os.O_CREAT, 0o600)", errno.ENOSPC),
    ],
)
def test_operations_fail_as_told(disk: Disk, fault: Fault, code: str, number: int) -> None:
    disk.run(OPEN + "os.pwrite(f, b'ab', 0)")
    disk.faults.fail(fault, 1000, 1)
    text = f"try:\n {code}\nexcept OSError as e:\n print(e.errno, flush=True)\n"
    assert disk.run(OPEN + text).split() == [str(number)]
    # the descriptor of a file outside of the roots
    assert disk.run("os.pread(os.open('/etc/hostname', os.O_RDONLY), 1, 0)\nprint('read', flush=True)") == "read\n"


def test_a_flipped_bit_is_on_the_way_only(disk: Disk) -> None:
    disk.run(OPEN + "os.pwrite(f, bytes(100), 0)")
    disk.faults.fail(Fault.FLIP, 1000, 7)
    assert disk.run(OPEN + "print(sum(b.bit_count() for b in os.pread(f, 100, 0)), flush=True)") == "1\n"
    assert disk.files()["a"] == bytes(100)


@pytest.mark.long
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("pair", PAIRS)
def test_rounds_keep_every_promise(pair: str, kind: str, tmp_path: Path) -> None:
    site = Site(pair, tmp_path, power=kind == "power")
    try:
        site.start()
        rows = list(Rounds(site, tmp_path, SEED, faults=2).run(kind, 2))
        failed = [row for row in rows if not row.ok]
        assert failed == [], site.tails()
        assert [row.faults for row in rows] == [2, 2]
        assert all(row.confirmed > 100 for row in rows)
    finally:
        site.end()


def test_a_message_that_is_right_on_a_disk_may_not_be_in_quarantine() -> None:
    row = Row(0, "replicated", "disk", findings={"lost": 2}, quarantined=2, elsewhere=0)
    assert row.ok
    assert not replace(row, elsewhere=1).ok
    assert not replace(row, quarantined=1).ok
    assert not replace(row, findings={"duplicated": 1}).ok
    assert not replace(row, error="no service").ok
