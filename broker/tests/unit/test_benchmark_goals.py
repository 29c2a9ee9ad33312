"""Goal: the verdict of the peer benchmark follows from its figures, for each shape; its options mean what they say."""

from __future__ import annotations

from pathlib import Path

import click
import pytest

from benchmarks.cases import ALL, CASES, SIZES
from benchmarks.goals import judge
from benchmarks.load import Outcome
from benchmarks.peers import Chosen, Plan, Target
from benchmarks.report import markdown
from benchmarks.targets import Artemis, Understudy


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
