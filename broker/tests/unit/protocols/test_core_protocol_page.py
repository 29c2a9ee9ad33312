"""docs/build/core-protocol.md names the treatment of every packet, and agrees with the tables of the code."""

from __future__ import annotations

import re
from pathlib import Path

from interop.differential import exclusions
from understudy.protocols.core.session import SESSION_PACKETS
from understudy.wire.core import packets
from understudy.wire.core.codes import ErrorCode

PAGE = Path(__file__).parents[4] / "docs" / "build" / "core-protocol.md"
ROW = re.compile(r"^\| (-?\d+) \| (\w+) \| ([CSBN]) \| ([^|]+) \| ([^|]*)\|$", re.MULTILINE)
ROWS = {name: (int(number), direction) for number, name, direction, _, _ in ROW.findall(PAGE.read_text())}
#: Sent by clients on channels 0 and 1.
SETUP = {
    "Ping", "SubscribeTopology", "SubscribeTopologyV2", "CreateSession", "CreateSessionV2", "ReattachSession",
    "CheckForFailover",
}  # fmt: skip


def test_every_packet_has_one_row_with_its_number() -> None:
    known = {packet.__name__: packet.TYPE for packet in packets.PACKET_TYPES.values()}
    assert {name: number for name, (number, _) in ROWS.items()} == known
    assert len(ROW.findall(PAGE.read_text())) == len(known)


def test_every_packet_that_clients_send_in_a_session_is_served() -> None:
    sent = {name for name, (_, direction) in ROWS.items() if direction in "CB"} - SETUP
    assert sent == {packet.__name__ for packet in SESSION_PACKETS}


def test_codes_named_on_the_page_exist() -> None:
    text = "".join(what for _, _, direction, _, what in ROW.findall(PAGE.read_text()) if direction == "C")
    named = {int(number) for number in re.findall(r"\b(1\d\d|2\d\d)\b", text)}
    assert named >= {100, 101, 103, 105, 106, 108, 112, 113, 114, 118, 210, 214, 215, 216}
    assert named <= set(ErrorCode) | {129, 136}


def test_what_differs_from_artemis_is_what_the_programs_leave_out() -> None:
    """Each exclusion is a named constant, used by the modules that keep to it or never drawn, and a row of the page."""
    section = PAGE.read_text().partition("## Where Artemis 2.44 answers otherwise")[2]
    rows = re.findall(r"^\| (?!what \|)([^|]+) \| ([^|]+) \|$", section, re.MULTILINE)
    assert rows == [(each.name, each.reason) for each in exclusions.EVERY]
