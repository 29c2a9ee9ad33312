"""Goal: the verdict of the peer benchmark follows from its figures, for each shape; its options have an effect."""

from __future__ import annotations

import re
from pathlib import Path

import click
import pytest

from benchmarks.backlog import Figures, Row, limit
from benchmarks.cases import ALL, AMQP, CASES, SIZES
from benchmarks.celery_tasks import Figures as CeleryFigures
from benchmarks.celery_tasks import Row as CeleryRow
from benchmarks.goals import FLOOR, OURS_AMQP, judge, judge_celery, judge_jms
from benchmarks.jms import BESIDE
from benchmarks.jms import CASES as JMS_CASES
from benchmarks.jms_client import SOURCES as JMS_SOURCES
from benchmarks.load import Outcome
from benchmarks.peers import Chosen, Plan, Target
from benchmarks.report import markdown
from benchmarks.targets import Artemis, Floor, Understudy


def _target(name: str, tmp_path: Path, **per_s: float) -> Target:
    """Figures of pipelined, blocking and so on in the shape ``jms``; the CPU time is what a second allows."""
    target = Target(name, (Understudy if name.startswith("understudy") else Artemis)(tmp_path / name))
    for case, rate in per_s.items():
        outcome = Outcome(1, rate, 1.0, 1e6 / rate, 50.0, int(1e6 / rate), int(2e6 / rate), 1)
        target.samples[f"{case.replace('_', '-')}/jms"] = [outcome]
    return target


def _verdicts(*targets: Target) -> dict[tuple[str, str], bool | None]:
    return {(goal.text, goal.wanted): goal.met for goal in judge(targets, ["plain", "jms"])}


@pytest.mark.parametrize(("rate", "met"), [(40_000, True), (39_999, False)])
def test_a_ratio_is_met_from_its_factor_on(tmp_path: Path, rate: float, met: bool) -> None:
    ours, artemis = _target("understudy", tmp_path, pipelined=rate), _target("artemis", tmp_path, pipelined=10_000)
    assert _verdicts(ours, artemis)["pipelined/jms", "at least 4 times artemis"] is met


def test_the_best_peer_counts(tmp_path: Path) -> None:
    ours = _target("understudy", tmp_path, blocking=300, latency=300)
    slow, fast = (
        _target("artemis", tmp_path, blocking=100, latency=100),
        _target("nats", tmp_path, blocking=250, latency=400),
    )
    assert _verdicts(ours, slow)["blocking/jms", "at least 1.5 times the best peer"] is True
    assert _verdicts(ours, slow, fast)["blocking/jms", "at least 1.5 times the best peer"] is False
    assert _verdicts(ours, slow)["latency/jms p99", "below the best peer's"] is True
    assert _verdicts(ours, slow, fast)["latency/jms p99", "below the best peer's"] is False


@pytest.mark.parametrize(("rate", "met"), [(100, True), (99, False)])
def test_tasks_of_celery_are_not_slower_than_over_rabbitmq(tmp_path: Path, rate: float, met: bool) -> None:
    rows = [
        CeleryRow(name, Understudy(tmp_path / name), {"plain": [CeleryFigures(per_s, 1, 1)]})
        for name, per_s in (("understudy", rate), ("rabbitmq", 100))
    ]
    assert [(each.text, each.met) for each in judge_celery(rows, ["plain", "confirms"])] == [("plain", met)]


def test_clients_of_amqp_have_goals_beside_rabbitmq(tmp_path: Path) -> None:
    ours = _target(OURS_AMQP, tmp_path, pipelined=400, blocking=130, blocking_16=129, latency=500)
    quorum = _target("rabbitmq-quorum", tmp_path, pipelined=100, blocking=100, blocking_16=100, latency=400)
    classic = _target("rabbitmq-classic", tmp_path, pipelined=201, blocking=90, blocking_16=90, latency=450)
    faster = _target("understudy", tmp_path, pipelined=5_000, blocking=5_000)
    verdicts = _verdicts(ours, quorum, classic, faster)
    assert verdicts["AMQP 0-9-1: pipelined/jms", "at least 4 times rabbitmq-quorum"] is True
    assert verdicts["AMQP 0-9-1: pipelined/jms", "at least 2 times rabbitmq-classic"] is False
    assert verdicts["AMQP 0-9-1: blocking/jms", "at least 1.3 times the best of RabbitMQ"] is True
    assert verdicts["AMQP 0-9-1: blocking-16/jms", "at least 1.3 times the best of RabbitMQ"] is False
    assert verdicts["AMQP 0-9-1: latency/jms p99", "below the best peer's"] is True
    assert _verdicts(ours)["AMQP 0-9-1: pipelined/jms", "at least 4 times rabbitmq-quorum"] is None


@pytest.mark.parametrize(
    ("rate", "of_floor", "verdict"),
    [
        (95, 149, (False, "64%", "floor 1.49 x")),
        (95, 150, (False, "63%", "")),
        (150, 149, (True, "101%", "")),
    ],
)
def test_a_ratio_that_the_floor_misses_is_not_reachable(
    tmp_path: Path, rate: float, of_floor: float, verdict: tuple[bool, str, str]
) -> None:
    targets = [
        _target("understudy", tmp_path, blocking=rate),
        _target("artemis", tmp_path, blocking=100),
        _target(FLOOR, tmp_path, blocking=of_floor),
    ]
    (goal,) = (goal for goal in judge(targets, ["jms"]) if goal.text == "blocking/jms")
    assert (goal.met, goal.share, goal.unreachable) == verdict


@pytest.mark.parametrize(
    ("own_us", "floor_us", "verdict"),
    [
        (500, 399, "MISSED"),
        (500, 400, "not reachable on this machine in this run (floor 400 us)"),
        (399, 400, "met"),
    ],
)
def test_a_latency_that_the_floor_misses_is_not_reachable(
    tmp_path: Path, own_us: int, floor_us: int, verdict: str
) -> None:
    times_us = {"understudy": own_us, "artemis": 400, FLOOR: floor_us}
    targets = [_target(name, tmp_path, latency=1e6 / (each + 0.5)) for name, each in times_us.items()]
    text = markdown(targets, Plan(["latency"], []), judge(targets, ["jms"]))
    (line,) = (line for line in text.splitlines() if line.startswith("| latency/jms p50"))
    assert line.split(" | ")[-2:] == [f"{floor_us / own_us:.0%}", f"{verdict} |"]


def test_the_floor_is_no_peer(tmp_path: Path) -> None:
    ours, floor = _target("understudy", tmp_path, blocking=100, latency=100), _target(FLOOR, tmp_path, blocking=300)
    assert _verdicts(ours, floor)["blocking/jms", "at least 1.5 times the best peer"] is None
    assert _verdicts(ours, floor)["latency/jms p50", "below the best peer's"] is None


def test_the_share_of_the_floor_has_a_column_only_with_figures_of_one(tmp_path: Path) -> None:
    ours = _target("understudy", tmp_path, blocking=100)
    floor = _target(FLOOR, tmp_path, blocking=400)
    plan = Plan(["blocking"], [], shapes=["jms"])
    assert "of the floor" not in markdown([ours], plan, judge([ours], ["jms"]))
    assert "| 25% | - |" in markdown([ours, floor], plan, judge([ours, floor], ["jms"]))


def test_the_floor_takes_no_large_messages(tmp_path: Path) -> None:
    target = Target(FLOOR, Floor(tmp_path / FLOOR))
    assert [case for case in SIZES if not target.takes(case)] == ["size-500-kB", "size-5-MB"]
    assert [case for case in ALL if not _target("artemis", tmp_path).takes(case)] == list(AMQP)


def test_the_share_of_cpu(tmp_path: Path) -> None:
    artemis = _target("artemis", tmp_path, pipelined=10_000)
    wanted = "broker CPU per message, pipelined/jms", "at most 1/6 of artemis"
    assert _verdicts(_target("understudy", tmp_path, pipelined=60_100), artemis)[wanted] is True
    assert _verdicts(_target("understudy", tmp_path, pipelined=59_000), artemis)[wanted] is False
    assert _verdicts(_target("understudy", tmp_path, pipelined=59_000))[wanted] is None


def test_the_python_kernel_is_compared_with_the_baseline_in_its_worst_case(tmp_path: Path) -> None:
    ours = _target("understudy", tmp_path, pipelined=9)
    twin = _target("understudy-python", tmp_path, pipelined=300, blocking=99)
    before = _target("understudy-1b1ba5d", tmp_path, pipelined=100, blocking=100)
    (goal,) = (goal for goal in judge([ours, twin, before], ["jms"]) if goal.text.startswith("kernel python"))
    assert (goal.found, goal.met) == ("0.99 (blocking)", False)


def test_rows_of_this_broker() -> None:
    plan = Plan(["pipelined"], ["understudy", "rabbitmq-quorum", "rabbitmq-classic"], kernels=["native", "python"],
                baseline="1b1ba5d2f0")  # fmt: skip
    assert {row: process for row, (process, _) in plan.brokers().items()} == {
        "understudy": "understudy",
        "understudy-python": "understudy-python",
        "rabbitmq-quorum": "rabbitmq",
        "rabbitmq-classic": "rabbitmq",
        "understudy-1b1ba5d": "understudy-1b1ba5d",
    }


def test_names_families_and_defaults() -> None:
    cases = Chosen(tuple(ALL), tuple(CASES))
    assert cases.convert("sizes,pipelined", None, None) == (*SIZES, "pipelined")
    assert cases.convert("", None, None) == tuple(CASES)
    with pytest.raises(click.BadParameter, match="'fast' is none of"):
        cases.convert("fast", None, None)


def test_windows_of_large_messages_are_limited_in_bytes() -> None:
    for _, load in SIZES.values():
        # a consumer's window in CORE is 1 MiB: acknowledgements must come before it is used up
        assert load.ack_batch == 1 or load.ack_batch * load.body_bytes <= 256 * 1024
        assert load.in_flight < load.backlog_max


def test_markdown_has_a_table_for_each_shape(tmp_path: Path) -> None:
    ours = _target("understudy", tmp_path, pipelined=50_000, size_5_MB=10)
    artemis = _target("artemis", tmp_path, pipelined=10_000, size_5_MB=20)
    artemis.failures["blocking/jms"] = "lost one"
    text = markdown([ours, artemis], Plan(["pipelined", "blocking", "size-5-MB"], [], shapes=["jms"]), [])
    assert "| artemis | 10,000 (100.0) 5.00x | failed |" in text
    assert "| size | understudy | artemis |\n|---|---:|---:|\n| 5 MB | 50 (20.5) | 100 (10.2) |" in text
    assert "artemis FAILED, blocking/jms: lost one" in text


@pytest.mark.parametrize(("rate", "met"), [(120, True), (119, False)])
def test_cases_of_the_jms_client_are_judged_beside_the_best_peer(tmp_path: Path, rate: float, met: bool) -> None:
    def row(name: str, per_s: float) -> Row:
        return Row(name, 0, 0, Artemis(tmp_path / name), {"tx-1": [Figures(per_s, 1.0)]})

    ours, artemis, before = row("understudy", rate), row("artemis", 100), row("understudy-1234567", 900)
    (goal,) = judge_jms([ours, artemis, before], ["tx-1", "tx-100"])
    assert (goal.text, goal.met) == ("tx-1", met)
    assert [goal.met for goal in judge_jms([ours, before], ["tx-1"])] == [None]


def test_cases_beside_a_backlog_have_a_case_of_the_jms_client() -> None:
    known = re.findall(r'case "([^"]+)" ->', (JMS_SOURCES / "Cases.java").read_text())
    assert {case.removeprefix(BESIDE) for case in JMS_CASES} == set(known)


@pytest.mark.parametrize("existing", ["", "<address-settings><address-setting match='#'/></address-settings>"])
def test_limits_are_written_into_a_configuration(tmp_path: Path, existing: str) -> None:
    path = tmp_path / "broker.xml"
    path.write_text(f"<configuration><core>{existing}</core></configuration>")
    limit(path, 64, "<address-setting match='paged.#'/>")
    settings = (
        f"{existing.removesuffix('</address-settings>') or '<address-settings>'}<address-setting match='paged.#'/>"
    )
    wanted = {f"{settings}</address-settings>", f"<global-max-size>{64 * 1024 * 1024}</global-max-size>"}
    text = path.read_text()
    assert all(each in text for each in wanted)
    assert text.endswith("</core></configuration>")
