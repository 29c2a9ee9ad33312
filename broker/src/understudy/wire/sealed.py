"""Bytes of a connection between two nodes with codes that only these two can make: the layer under the CORE codec.

After the proof of the cluster password (``cluster.membership.handshake``) each direction is a series of runs::

    u32 length, 16 bytes code, length bytes of the stream

The code covers the number of the run and its bytes, with a key of the connection and of the direction (ADR 0111). It is
that of AES-256-GCM with the number as its nonce, or, for a short run, BLAKE2b. So a run that was changed, repeated,
left out, moved or sent back has a wrong code. No byte of a run reaches the codec before its code is checked. The bytes
are not encrypted: that is TLS.

Not here: the keys (``cluster.membership.credentials``), and when a connection is sealed.
"""

from __future__ import annotations

import hashlib
import struct
from collections.abc import Iterable, Sequence
from hmac import compare_digest
from typing import TYPE_CHECKING, Final

from understudy.errors import ClusterSecurityError
from understudy.limits import SEALED_RUN_BYTES_MAX

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.ciphers.aead import AESGCM

KEY_BYTES: Final = 32
CODE_BYTES: Final = 16
#: Bytes of a run before those of the stream.
RUN_HEAD_BYTES: Final = 4 + CODE_BYTES
#: Pieces of output up to this size are joined into one run; larger ones are sent as they are, without a copy.
_JOINED_BYTES_MAX: Final = 32 * 1024
#: Runs up to this size have a code of BLAKE2b. A lone frame comes after other work has filled the caches of the
#: processor, which costs the code of AES-256-GCM, spread over a large library, a hundred times its time in a loop.
SHORT_RUN_BYTES_MAX: Final = 2 * 1024
_LENGTH: Final = struct.Struct(">I")

Bytes = bytes | memoryview


def _number(run: int) -> bytes:
    """The nonce of a run: its number in its direction. A key is used for one direction of one connection only."""
    return run.to_bytes(12, "big")


class _Codes:
    """Codes of one direction. The keys of both kinds are derived from the key of the direction."""

    def __init__(self, key: bytes) -> None:
        # the package takes 20 ms to load, which a broker without links to other nodes does not spend
        from cryptography.exceptions import InvalidTag
        from cryptography.hazmat.primitives.ciphers.aead import AESGCM

        self._key = key
        self._short = hashlib.blake2b(key=key, digest_size=CODE_BYTES, person=b"short runs")
        self._cipher: AESGCM | None = None
        self._make_cipher = AESGCM
        self._invalid = InvalidTag

    def _long(self) -> AESGCM:
        """The cipher of long runs, made for the first of them: many links between nodes never send one."""
        if self._cipher is None:
            key = hashlib.blake2b(key=self._key, digest_size=KEY_BYTES, person=b"long runs").digest()
            self._cipher = self._make_cipher(key)
        return self._cipher

    def code(self, run: int, data: Bytes) -> bytes:
        """The code of a run."""
        if len(data) <= SHORT_RUN_BYTES_MAX:
            state = self._short.copy()
            state.update(_number(run))
            state.update(data)
            return state.digest()
        # bytes that are authenticated only: a memoryview is taken as it is
        return self._long().encrypt(_number(run), b"", data)

    def fits(self, run: int, code: bytes, data: Bytes) -> bool:
        """Whether a code is that of a run."""
        if len(data) <= SHORT_RUN_BYTES_MAX:
            return compare_digest(code, self.code(run, data))
        try:
            self._long().decrypt(_number(run), code, data)
        except self._invalid:
            return False
        return True


class Sealer:
    """Makes runs of the output of one connection."""

    def __init__(self, key: bytes) -> None:
        """``key``: of this direction of the connection, ``KEY_BYTES`` long."""
        self._codes = _Codes(key)
        self._runs = 0

    def seal(self, pieces: Sequence[Bytes]) -> list[Bytes]:
        """The bytes to write for the next output, in order.

        Args:
            pieces: The output; large pieces are in the result themselves.
        """
        lone = len(pieces) == 1 and 0 < len(pieces[0]) <= SHORT_RUN_BYTES_MAX
        sealed: list[Bytes] = []
        for run in pieces if lone else _runs_of(pieces):
            head = _LENGTH.pack(len(run)) + self._codes.code(self._runs, run)
            self._runs += 1
            if len(run) <= SHORT_RUN_BYTES_MAX:
                sealed.append(head + run)
            else:
                sealed += (head, run)
        return sealed


def _runs_of(pieces: Sequence[Bytes]) -> Iterable[Bytes]:
    small: list[Bytes] = []
    small_bytes = 0
    for piece in pieces:
        size = len(piece)
        if small and small_bytes + size > _JOINED_BYTES_MAX:
            yield small[0] if len(small) == 1 else b"".join(small)
            small, small_bytes = [], 0
        if size > SEALED_RUN_BYTES_MAX:
            view = memoryview(piece)
            for begin in range(0, size, SEALED_RUN_BYTES_MAX):
                yield view[begin : begin + SEALED_RUN_BYTES_MAX]
        elif size:
            small.append(piece)
            small_bytes += size
    if small:
        yield small[0] if len(small) == 1 else b"".join(small)


class Opener:
    """Checks the runs of the input of one connection."""

    def __init__(self, key: bytes, peer: str) -> None:
        """Args:
        key: Key of this direction of the connection, ``KEY_BYTES`` long.
        peer: The other side, for errors.
        """
        self._codes = _Codes(key)
        self._peer = peer
        self._runs = 0
        self._pending = bytearray()
        """Begin of a run."""
        self._failed = False

    def receive(self, data: Bytes) -> Bytes:
        """Bytes of the runs that ``data`` completes; a view of ``data`` if it is that of one run.

        Raises:
            ClusterSecurityError: a code is wrong, or a length is not allowed; the connection must be closed. So does
                every later call.
        """
        if self._failed:
            raise self._error("the connection has failed before")
        view = memoryview(data)
        size = len(view) - RUN_HEAD_BYTES
        if not self._pending and 0 < size <= SEALED_RUN_BYTES_MAX and _LENGTH.unpack_from(view)[0] == size:
            # the frame is one whole run
            return self._open(view)
        opened: list[Bytes] = []
        offset = 0
        while self._pending and offset < len(view):
            offset = self._complete(view, offset, opened)
        while len(view) - offset >= RUN_HEAD_BYTES:
            end = offset + RUN_HEAD_BYTES + self._length(view[offset : offset + 4])
            if end > len(view):
                break
            opened.append(self._open(view[offset:end]))
            offset = end
        if offset < len(view):
            self._pending += view[offset:]
        if len(self._pending) >= 4:
            # a length that is not allowed is not waited for
            self._length(self._pending[:4])
        return opened[0] if len(opened) == 1 else b"".join(opened)

    def _complete(self, view: memoryview, offset: int, opened: list[Bytes]) -> int:
        """Add input to the pending run. Returns the offset of the rest."""
        pending = self._pending
        wanted = RUN_HEAD_BYTES
        if len(pending) >= 4:
            wanted += self._length(pending[:4])
        taken = view[offset : offset + wanted - len(pending)]
        pending += taken
        if len(pending) == wanted and wanted > RUN_HEAD_BYTES:
            self._pending = bytearray()
            opened.append(self._open(memoryview(pending)))
        return offset + len(taken)

    def _length(self, field: Bytes | bytearray) -> int:
        length: int = _LENGTH.unpack(field)[0]
        if not 1 <= length <= SEALED_RUN_BYTES_MAX:
            self._failed = True
            raise self._error(f"a run of {length} bytes, 1 to {SEALED_RUN_BYTES_MAX} are allowed")
        return length

    def _open(self, run: memoryview) -> memoryview:
        payload = run[RUN_HEAD_BYTES:]
        if not self._codes.fits(self._runs, bytes(run[4:RUN_HEAD_BYTES]), payload):
            self._failed = True
            raise self._error("its code is wrong")
        self._runs += 1
        return payload

    def _error(self, problem: str) -> ClusterSecurityError:
        text = f"run {self._runs} of the sealed connection with {self._peer}: {problem}"
        return ClusterSecurityError(text, hint="its bytes were changed, repeated or left out on the way; use TLS there")
