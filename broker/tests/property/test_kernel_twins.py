"""The checksums of the native kernel and of its Python twin: same arguments, same results and errors.

Other topics of the kernel have files of their own, ``test_kernel_twins_<topic>.py``, made like this one: Hypothesis
draws the arguments, ``both`` calls the two functions and compares their results or errors.
"""

from __future__ import annotations

from zlib import crc32

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from support.kernels import both, needs_native
from understudy.kernel.log import crc

U32 = st.integers(0, 2**32 - 1)
#: Lengths around what vector instructions handle at a time, and longer than where the interpreter is released.
DATA = st.binary(max_size=600) | st.integers(0, 70_000).map(lambda length: b"\x5a\x01" * (length // 2) + b"\x7f")
VIEWS = [bytes, bytearray, memoryview, lambda data: memoryview(b"\0\1" + data)[2:]]


@needs_native
@given(DATA, U32, st.sampled_from(VIEWS))
@example(b"", 0, memoryview)
@example(b"", 7, bytes)
def test_crc32_is_the_same(data: bytes, seed: int, view: type[bytes]) -> None:
    assert both(crc.crc32, view(data), seed) == crc32(data, seed)


@needs_native
@given(U32, U32, st.integers(0, 2**64 - 1))
def test_crc32_combine_is_the_same(first: int, second: int, second_length: int) -> None:
    both(crc.crc32_combine, first, second, second_length)


@given(DATA, DATA)
@example(b"", b"")
def test_the_crc_of_two_pieces_is_combined_from_those_of_each(first: bytes, second: bytes) -> None:
    assert crc.crc32_combine(crc32(first), crc32(second), len(second)) == crc32(first + second)


@given(st.integers(24, 5_000), U32, U32)
def test_a_digest_is_continued_with_the_crc_of_a_record(length: int, seed: int, digest: int) -> None:
    """The digest of a segment is continued with the crc of each record, which covers the record from byte 4 on and
    begins with a seed.
    """
    rest = bytes(length - 4)
    checked = crc32(rest, seed)
    head = checked.to_bytes(4, "little")
    assert crc.crc32_combine(crc32(head, digest) ^ seed, checked, length - 4) == crc32(head + rest, digest)


@needs_native
@pytest.mark.parametrize(
    "arguments", [(), ("text",), (5,), (None, 1), (b"", 0, 0), (b"", "0"), (memoryview(b"abcd")[::2],)]
)
def test_wrong_arguments_of_crc32_are_refused_alike(arguments: tuple[object, ...]) -> None:
    with pytest.raises((TypeError, BufferError)):
        both(crc.crc32, *arguments)


@needs_native
@pytest.mark.parametrize("arguments", [(1, 2), (-1, 0, 0), (2**32, 0, 0), (0, -1, 0), (0, 0, -1), (0, 0, 2**64)])
def test_wrong_arguments_of_crc32_combine_are_refused_alike(arguments: tuple[int, ...]) -> None:
    with pytest.raises((TypeError, OverflowError)):
        both(crc.crc32_combine, *arguments)
