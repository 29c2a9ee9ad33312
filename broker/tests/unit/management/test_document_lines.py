"""The lines of document 001 on instances of the preset, in the groups in which the document gives them."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from support.dmr import Configured
from support.document_lines import LINES, Line
from understudy.config.instance_files import FullHa, InstanceOptions, broker_xml

SHARED = (391, 393, 400, 411, 417)
TRANSPORTS = (495, 497, 501, 503, 508, 510, 515, 517, 521, 526, 528, 533)
#: The numbers of the lines that belong together, each group for an instance of its own.
GROUPS = {
    "first policy": (50, 58),
    "replication, live": (122, 135, 349),
    "replication, backup": (128, 149),
    "shared store, live": (291, 299),
    "shared store, backup": (294, 313, 345, 359, 363),
    "colocated, shared store, node one": (*SHARED, *range(434, 450, 2), *TRANSPORTS),
    "colocated, shared store, node two": (*SHARED, *range(452, 468, 2), *TRANSPORTS),
    "colocated, replication, node one": (391, 393, 404, 411, 421, *range(472, 480, 2), *TRANSPORTS),
    "colocated, replication, node two": (391, 393, 406, 411, 423, *range(482, 490, 2), *TRANSPORTS),
    "reviewed": (564, 568),
}
FIRST_OUTPUT = """\
{
    "outcome" => "success",
    "result" => {
        "check-for-live-server" => false,
        "cluster-name" => undefined,
        "group-name" => undefined,
        "initial-replication-sync-timeout" => 30000L
    }
}"""


def lines_of(group: str) -> Iterator[Line]:
    numbered = {line.number: line for line in LINES}
    return (numbered[number] for number in GROUPS[group])


def test_every_line_that_can_be_carried_out_is_in_a_group() -> None:
    runnable = {line.number for line in LINES if not line.has_placeholder}
    assert {number for numbers in GROUPS.values() for number in numbers} == runnable
    assert len(runnable) == 61


@pytest.fixture
def preset(tmp_path: Path) -> Configured:
    options = InstanceOptions("node", host="10.0.0.1", full_ha=FullHa("a password of our own, long"))
    return Configured(tmp_path, broker_xml(options))


@pytest.mark.parametrize("group", GROUPS)
def test_the_lines_of_a_group_are_carried_out_on_a_fresh_instance(preset: Configured, group: str) -> None:
    for line in lines_of(group):
        answer = preset.carry_out(line.parsed())
        assert answer["outcome"] == "success", line
    loaded = preset.loaded
    assert not preset.waiting
    assert ("backup" in [each.configuration.name for each in loaded.servers]) == group.startswith("colocated")


def test_the_output_of_the_first_read_is_that_of_the_document(preset: Configured) -> None:
    *_, add, read = lines_of("first policy")
    preset.carry_out(add.parsed())
    assert preset.printed(str(read.parsed())) == FIRST_OUTPUT
