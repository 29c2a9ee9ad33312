"""Copies of one store that go different ways, with the models that say what each holds."""

from __future__ import annotations

import copy
import random
from dataclasses import dataclass
from pathlib import Path

from tests.support.store import DIRECTORY, StoreHarness
from tests.support.store_model import Model

from understudy.store.log.reading.follower import Follower

Key = tuple[int, int]


@dataclass
class Fork:
    """Two rigs whose logs are the same up to ``sequence``."""

    left: StoreHarness
    right: StoreHarness
    sequence: int
    operations: int
    """Number of operations that both models have in common."""


def act(rig: StoreHarness, operations: int) -> None:
    """Carry out ``operations`` random operations, all durable afterwards."""
    for _ in range(operations):
        rig.operate()
        assert rig.store is not None
        rig.store.flush()
        rig.time.advance(1)
    rig.settle()


def restart(rig: StoreHarness) -> None:
    """The node dies with everything durable, and activates again."""
    rig.die(power_loss=False)
    follower = Follower(rig.disk("reader"), DIRECTORY, id_cache_size=rig.model.id_cache_size)
    follower.finish()
    sequence = follower.state.sequence
    rig.model.crash(sequence)
    rig.time.advance(7)
    rig.activate("again")
    rig.resume_from(rig.model.contents())


def fork(rig: StoreHarness, stream: random.Random) -> Fork:
    """The node is dead; its store now exists twice. No node is active."""
    rig.die(power_loss=False)
    other = StoreHarness(stream, id_cache_size=rig.model.id_cache_size)
    disk = other.disk("copy")
    for path in rig.volume.paths():
        file = disk.open(path, create=True)
        file.write(0, (rig.volume.content(path),))
        file.sync()
        file.close()
    disk.sync_directory(DIRECTORY)
    other.model = copy.deepcopy(rig.model)
    other.bodies = dict(rig.bodies)
    other.time.advance(100_000)
    follower = Follower(rig.disk("reader"), DIRECTORY, id_cache_size=rig.model.id_cache_size)
    follower.finish()
    return Fork(rig, other, follower.state.sequence, len(rig.model.operations))


def go_on(rig: StoreHarness, operations: int) -> None:
    """Activate after a fork, and act."""
    follower = Follower(rig.disk("reader"), DIRECTORY, id_cache_size=rig.model.id_cache_size)
    follower.finish()
    rig.model.crash(follower.state.sequence)
    rig.activate("on")
    rig.resume_from(rig.model.contents())
    act(rig, operations)


def write_out(rig: StoreHarness, directory: Path) -> Path:
    """The store as it is visible now, in a real directory."""
    directory.mkdir()
    for path in rig.volume.paths():
        target = directory / path.removeprefix(DIRECTORY + "/")
        target.parent.mkdir(exist_ok=True)
        target.write_bytes(rig.volume.content(path))
    return directory


# --- the naive comparator: everything replayed again and again -------------------------------------------


def live(model: Model) -> set[Key]:
    """Queue id and message id of everything in a queue at the end."""
    contents = model.contents()
    return {(queue, message) for queue, held in contents["messages"].items() for message in held}


def ever_live(model: Model) -> set[Key]:
    """The same of every moment."""
    seen: set[Key] = set()
    for count in range(len(model.operations) + 1):
        part = Model(model.id_cache_size, model.operations[:count])
        seen |= live(part)
    return seen


def added(model: Model, operations: int) -> set[int]:
    """Messages added by the first so many operations."""
    return {arguments[1] for _, name, arguments in model.operations[:operations] if name == "message"}


def only_here(here: StoreHarness, there: StoreHarness, operations: int) -> set[Key]:
    """Messages that live here and were never in a queue there: ids in common mean the same message only if
    the message is from before the fork.
    """
    common = added(here.model, operations)
    had = ever_live(there.model)
    return {key for key in live(here.model) if key[1] not in common or key not in had}


def settled_there(here: StoreHarness, there: StoreHarness, operations: int) -> set[Key]:
    """Messages that live here, and were in their queue there, and are no more."""
    return live(here.model) - only_here(here, there, operations) - live(there.model)
