"""Goal: descriptors are counted before they are given away; a lack of them is no lost lock and no broken disk."""

from __future__ import annotations

import errno
import os
import resource
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from understudy.errors import DescriptorsExhausted
from understudy.runtime.base.disk import RealDisk
from understudy.runtime.locks.file_lock import RealFileLock
from understudy.runtime.net.listening import bound_socket
from understudy.runtime.process.descriptors import LIMIT_MIN, LISTENERS_MAX, ConnectionBudget, Descriptors


@contextmanager
def no_descriptor_left() -> Iterator[None]:
    """The process has none beside those that are open; descriptors closed inside can be opened again."""
    limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    taken = [os.open("/dev/null", os.O_RDONLY)]
    resource.setrlimit(resource.RLIMIT_NOFILE, (taken[0] + 64, limits[1]))
    try:
        while True:
            taken.append(os.open("/dev/null", os.O_RDONLY))
    except OSError as error:
        if error.errno != errno.EMFILE:
            raise
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, limits)
        for descriptor in taken:
            os.close(descriptor)


@pytest.mark.parametrize(("limit", "connections"), [(LIMIT_MIN, 28), (1_024, 616), (20_000, 19_180)])
def test_connections_get_the_remaining_descriptors(limit: int, connections: int) -> None:
    descriptors = Descriptors(limit, reserve=0)
    assert descriptors.connections_max == connections
    assert descriptors.connections_max + descriptors.large_messages_max <= limit - 320


def test_listeners_are_above_every_connection_and_not_much_higher() -> None:
    assert Descriptors(1_024, reserve=0).listener_floor(10_000) == 1_024 - LISTENERS_MAX
    assert 10_000 < Descriptors(1_000_000, reserve=0).listener_floor(10_000) < 13_000


def test_the_reserve_opens_files_when_nothing_else_does(tmp_path: Path) -> None:
    descriptors = Descriptors(1_024, reserve=2)
    disk, bare = RealDisk(descriptors), RealDisk()
    path = str(tmp_path / "file")
    bare.open(path, create=True).close()
    with no_descriptor_left():
        assert not descriptors.low
        first, second = disk.open(path), disk.open(path)
        assert descriptors.low
        with pytest.raises(DescriptorsExhausted):
            disk.open(path)
        with pytest.raises(DescriptorsExhausted):
            disk.list(str(tmp_path))
        first.close()
        assert disk.list(str(tmp_path)) == ["file"]
        disk.sync_directory(str(tmp_path))
        second.close()
        descriptors.refill()
        assert not descriptors.low
    descriptors.close()


def test_a_lock_is_proved_without_a_descriptor_and_taken_with_one_of_the_reserve(tmp_path: Path) -> None:
    descriptors = Descriptors(1_024, reserve=1)
    held, other = (RealFileLock(str(tmp_path / name), descriptors) for name in ("held", "other"))
    assert held.try_acquire()
    with no_descriptor_left():
        assert held.verify()
        assert other.try_acquire()
        with pytest.raises(DescriptorsExhausted):
            RealFileLock(str(tmp_path / "third"), descriptors).try_acquire()
    held.release()
    other.release()
    descriptors.close()


def test_a_budget_is_full_when_it_is_used_up_or_the_reserve_is() -> None:
    low = False
    budget = ConnectionBudget(2, lambda: low)
    assert not budget.full
    low = True
    assert budget.full
    low = False
    budget.used = 2
    assert budget.full


def test_a_socket_is_bound_at_a_high_number() -> None:
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    floor = min(soft, 4_096) - 8
    with bound_socket(2, ("127.0.0.1", 0), floor) as bound:
        assert bound.fileno() >= floor
        assert not os.get_inheritable(bound.fileno())
        assert bound.getsockname()[1]
    with bound_socket(2, ("127.0.0.1", 0), soft + 1) as bound:
        assert bound.getsockname()[1], "without a number that high it keeps its own"


@pytest.mark.parametrize(("soft", "hard", "result"), [(400, 800, "800 800"), (100, 200, "ConfigError")])
def test_the_soft_limit_is_raised_to_the_hard_one(soft: int, hard: int, result: str) -> None:
    code = (
        "import resource\nfrom understudy.errors import ConfigError\n"
        "from understudy.runtime.process import descriptors\n"
        f"resource.setrlimit(resource.RLIMIT_NOFILE, ({soft}, {hard}))\n"
        "try:\n    print(descriptors.raise_soft_limit(), resource.getrlimit(resource.RLIMIT_NOFILE)[0])\n"
        "except ConfigError as error:\n    assert 'LimitNOFILE' in str(error)\n    print('ConfigError')\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == result
