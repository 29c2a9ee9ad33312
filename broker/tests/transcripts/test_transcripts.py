"""Each transcript gives the output that its file says."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from transcripts.amqp091 import Amqp091Driver
from transcripts.ha import HaDriver
from transcripts.management import ManagementDriver
from transcripts.replication import ReplicationDriver
from transcripts.script import Driver, Transcript
from transcripts.session import SessionDriver
from transcripts.store import StoreDriver

HERE = Path(__file__).parent
DRIVERS: dict[str, Callable[[], Driver]] = {
    "amqp091": Amqp091Driver,
    "ha": HaDriver,
    "management": ManagementDriver,
    "replication": ReplicationDriver,
    "session": SessionDriver,
    "store": StoreDriver,
}
FILES = [path for folder in DRIVERS for path in sorted((HERE / folder).glob("*.txt"))]


@pytest.mark.parametrize("path", FILES, ids=lambda path: f"{path.parent.name}/{path.stem}")
def test_transcript(path: Path, rewrite: bool) -> None:
    Transcript(path).check(DRIVERS[path.parent.name], rewrite=rewrite)
