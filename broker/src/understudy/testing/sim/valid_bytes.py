"""The bytes of a file of a store that readers use. Bytes after the records of a segment are of no consequence, and
may differ between two copies: zeros, bytes of an earlier use of the file, parts of a batch that was never synced.
"""

from __future__ import annotations

from understudy.store.log.reading.replay import read_frame
from understudy.store.log.segment import HEADER_BLOCK_BYTES, parse_name, seed_of


def valid_bytes(path: str, content: bytes) -> bytes:
    """Header and records of a segment; all bytes of another file, without zeros at its end."""
    parsed = parse_name(path.rpartition("/")[2])
    if parsed is None:
        return content.rstrip(b"\0")
    end, seed = HEADER_BLOCK_BYTES, seed_of(*parsed[:2])
    while (found := read_frame(content, end, end, seed)) is not None:
        end += found.length
    return content[:end]
