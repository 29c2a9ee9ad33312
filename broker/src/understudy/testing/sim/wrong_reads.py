"""Reads of a simulated file system that return flipped bits, while its medium has the right ones."""

from __future__ import annotations

_Bits = dict[str, dict[int, int]]
"""Path to the offset of a byte to the bits of it that are wrong."""


class WrongReads:
    """Wrong bits of one volume: in the cache, or on the way from the disk."""

    def __init__(self) -> None:
        """Every read is right."""
        self._cached: _Bits = {}
        self._on_the_way: _Bits = {}

    def add(self, path: str, offset: int, bit: int, *, cached: bool) -> None:
        """Flip a bit in reads of a file: until the cache of it is dropped, or until ``end``."""
        bits = (self._cached if cached else self._on_the_way).setdefault(path, {})
        bits[offset] = bits.get(offset, 0) ^ (1 << bit)

    def end(self) -> None:
        """Every read is right from now on."""
        self._cached.clear()
        self._on_the_way.clear()

    def apply(self, path: str, offset: int, data: bytes) -> bytes:
        """The bytes that a read returns in the place of ``data``."""
        for kept in (self._cached, self._on_the_way):
            if path in kept:
                changed = bytearray(data)
                for at, bits in kept[path].items():
                    if offset <= at < offset + len(changed):
                        changed[at - offset] ^= bits
                data = bytes(changed)
        return data

    def forget(self, path: str, offset: int, length: int) -> None:
        """Drop the cache of these bytes, or write over it."""
        if path in self._cached:
            bits = self._cached[path]
            for at in [at for at in bits if offset <= at < offset + length]:
                del bits[at]
