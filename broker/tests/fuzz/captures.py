"""Real conversations, recorded by ``python -m fuzz.record`` and kept in ``corpus/``.

One file is one direction of one connection: ``<client>-<number>.to-server`` or ``.to-client``, cut
at the end of a frame so that it stays small. The recorded programs, and the way to record again, are in
``corpus/README.md``.
"""

from __future__ import annotations

from functools import cache
from pathlib import Path

CORPUS = Path(__file__).with_name("corpus")


@cache
def streams(direction: str) -> tuple[bytes, ...]:
    """Every stream of a direction, ``to-server`` or ``to-client``."""
    return tuple(path.read_bytes() for path in sorted(CORPUS.glob(f"*.{direction}")))
