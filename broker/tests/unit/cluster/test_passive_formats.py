"""Goal: an active node knows the lowest format version that the nodes which follow its log read (ADR 0088)."""

from __future__ import annotations

import pytest

from understudy.cluster.membership.passive_formats import PassiveFormats
from understudy.store.log_format import ReadableFormat
from understudy.wire.buffer import Reader, Writer
from understudy.wire.core import packets


def test_the_lowest_version_counts_until_its_node_is_gone() -> None:
    formats = PassiveFormats()
    assert formats.lowest() is None
    formats.follows("a", "node a", 3)
    formats.follows("b", "node b", 1)
    formats.follows("c", "node c", 2)
    assert formats.lowest() == ReadableFormat(1, "node b")
    # it was updated, and announces itself again on the same connection
    formats.follows("b", "node b", 3)
    assert formats.lowest() == ReadableFormat(2, "node c")
    formats.left("c")
    formats.left("unknown")
    assert formats.lowest() == ReadableFormat(3, "node a")


@pytest.mark.parametrize(("written", "read", "refused"), [(1, 1, False), (1, 2, False), (2, 1, True), (2, 2, False)])
def test_a_node_that_cannot_read_the_log_is_refused_with_both_versions(written: int, read: int, refused: bool) -> None:
    formats = PassiveFormats()
    formats.log_version = lambda: written
    refusal = formats.refusal(read)
    assert (refusal is not None) is refused
    if refusal is not None:
        assert "has format version 2" in refusal
        assert "reads up to 1: update it" in refusal


def test_the_statement_of_a_backup_survives_encoding() -> None:
    packet = packets.QuorumVote(packets.STORE_FORMAT, packets.StoreFormat(7))
    writer = Writer()
    packet.write_body(writer, 135)
    assert packets.QuorumVote.read_body(Reader(writer.getvalue()), 135) == packet
