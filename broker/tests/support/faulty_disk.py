"""A real disk that fails or dawdles when told to, and a whole node on it in the test's own process."""

from __future__ import annotations

import asyncio
import dataclasses
import errno
import os
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import NamedTuple

from support.processes import Node
from understudy.config.reading.reader import read_broker_xml
from understudy.errors import DiskFailed
from understudy.runtime.base.disk import RealDisk, RealFile
from understudy.runtime.base.environment import SystemClock, SystemEntropy, system_environment
from understudy.runtime.node.node import BrokerNode
from understudy.security.authorization import NO_USERS, security_policy
from understudy.store.log.segment import NEW_SUFFIX


class Call(NamedTuple):
    """An operation on a file of ``FaultyDisk``."""

    operation: str
    """``read``, ``write`` or ``sync``."""
    path: str
    """Name of the file once it is complete."""
    failed: bool
    on_loop: bool
    """Whether the main thread called the operation."""


class FaultyDisk(RealDisk):
    """A real disk with faults on the paths for which ``hits`` returns True."""

    def __init__(self) -> None:
        super().__init__()
        self.hits: Callable[[str], bool] = lambda path: False
        self.fails: frozenset[str] = frozenset()
        """Operations that fail, of ``read``, ``write`` and ``sync``."""
        self.hangs: frozenset[str] = frozenset()
        """These wait for ``answers`` first."""
        self.answers = threading.Event()
        self.hung = threading.Event()
        """Something waits, or has waited."""
        self.read_delay_s = 0.0
        self.watches: Callable[[str], bool] = lambda path: False
        self.calls: list[Call] = []
        """Operations on files that are watched, in the order in which they ended."""

    def open(self, path: str, *, create: bool = False, read_only: bool = False) -> RealFile:
        file = super().open(path, create=create, read_only=read_only)
        faulty = FaultyFile(path, os.dup(file.descriptor))
        faulty.disk = self
        file.close()
        return faulty

    def within(self, directory: str) -> AbstractContextManager[RealDisk]:
        # every file is opened here
        return nullcontext(self)

    def meet(self, operation: str, path: str) -> None:
        """An operation begins."""
        hit = self.hits(path)
        if hit and operation in self.hangs:
            self.hung.set()
            assert self.answers.wait(60), "the test never let the disk answer"
        failed = hit and operation in self.fails
        if self.watches(path):
            on_loop = threading.current_thread() is threading.main_thread()
            self.calls.append(Call(operation, path.removesuffix(NEW_SUFFIX), failed, on_loop))
        if failed:
            raise DiskFailed(f"cannot {operation} {path}: {os.strerror(errno.EIO)}")
        if hit and operation == "read":
            time.sleep(self.read_delay_s)


class FaultyFile(RealFile):
    """A file of ``FaultyDisk``."""

    disk: FaultyDisk

    def read(self, offset: int, length: int) -> bytes:
        self.disk.meet("read", self.path)
        return super().read(offset, length)

    def write(self, offset: int, buffers: Sequence[bytes]) -> None:
        self.disk.meet("write", self.path)
        super().write(offset, buffers)

    def sync(self) -> None:
        self.disk.meet("sync", self.path)
        super().sync()


async def start_node(member: Node, disk: RealDisk, wanted: str = "active") -> BrokerNode:
    """A node of a pair in this process and loop, once it is in the wanted state."""
    config = member.config
    loaded = read_broker_xml(config.read_bytes(), file=str(config), base_directory=str(member.directory))
    security = security_policy(loaded.configuration, SystemEntropy(), SystemClock(), NO_USERS)
    environment = dataclasses.replace(system_environment(asyncio.get_running_loop()), disk=disk)
    node = BrokerNode(loaded.configuration, environment, security)
    await node.start()
    assert await node.wait_for(wanted, "stopped") == wanted
    return node
