"""A Celery worker, beat and an application as they are, while the active node of a pair is killed again and again.

The application sends numbered tasks, each with a confirm; one without a confirm is sent again. With ``acks_late`` every
task that was confirmed is carried out, perhaps twice, and the worker and beat go on by themselves.
"""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from celery import Celery  # type: ignore[import-untyped]  # has no types

from support import forked
from support.nodes import Nodes
from support.processes import Pair
from support.replicated import ReplicatedPair, is_protected, roles, wait_until

#: Time from one kill to the next in ten minutes of kills.
ROUND_S = 20
#: Longest time until the worker has carried out a task that was sent after a kill.
GOES_ON_S = 30
#: Kills: those of ten minutes, unless the environment says otherwise.
ROUNDS = int(os.environ.get("CELERY_ROUNDS", "30"))
ACTIVATION_S = 60


class Notes:
    """The file in which tasks note their numbers."""

    def __init__(self, path: Path) -> None:
        self.path = path
        path.touch()

    def lines(self) -> list[str]:
        return self.path.read_text().split()

    def numbers(self) -> set[int]:
        return {int(line) for line in self.lines() if line != "beat"}

    def beats(self) -> int:
        return self.lines().count("beat")


class Application(threading.Thread):
    """Sends tasks until ``ended`` is set. Runs in a thread of its own, as a send waits for a node that is active."""

    def __init__(self, brokers: str) -> None:
        super().__init__(daemon=True)
        self._app = Celery(broker=brokers)
        self._app.conf.update(broker_transport_options={"confirm_publish": True}, task_ignore_result=True)
        self.confirmed = 0
        """Tasks 0 to this one, itself left out, were confirmed."""
        self.errors: list[BaseException] = []
        self.ended = threading.Event()

    def run(self) -> None:
        try:
            while not self.ended.is_set():
                self._app.send_task(
                    "celery_tasks.note", (self.confirmed,), retry=True, retry_policy={"max_retries": None}
                )
                self.confirmed += 1
                time.sleep(0.02)
        except BaseException as error:
            self.errors.append(error)


@contextmanager
def _command(*arguments: str, log: Path, environment: dict[str, str]) -> Iterator[subprocess.Popen[bytes]]:
    with log.open("ab") as out:
        process = forked.Popen(
            [sys.executable, "-m", "celery", "-A", "celery_tasks", *arguments],
            cwd=Path(__file__).parent,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=out,
        )
    try:
        yield process
    finally:
        process.kill()
        process.wait(30)


@pytest.mark.feature("AMQP 0-9-1: a Celery worker and beat over a failover and a failback, no task lost")
@pytest.mark.parametrize("kind", ["shared", "replicated"])
def test_no_task_is_lost_over_a_failover_and_a_failback(
    nodes: Nodes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    _kill_again_and_again(_pair(nodes, kind), tmp_path, monkeypatch, rounds=1, round_s=0)


@pytest.mark.long
@pytest.mark.timeout(ROUND_S * ROUNDS + 300)
@pytest.mark.feature("AMQP 0-9-1: a Celery worker and beat while the active node is killed every 20 s, no task lost")
@pytest.mark.parametrize("kind", ["shared", "replicated"])
def test_no_task_is_lost_while_the_primary_is_killed(
    nodes: Nodes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    _kill_again_and_again(_pair(nodes, kind), tmp_path, monkeypatch, rounds=ROUNDS, round_s=ROUND_S)


def _pair(nodes: Nodes, kind: str) -> Pair | ReplicatedPair:
    return nodes.pair() if kind == "shared" else nodes.replicated(allow_failback=True)


def _kill_again_and_again(
    pair: Pair | ReplicatedPair, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, rounds: int, round_s: float
) -> None:
    """Kill the active node, start it again and wait until it is back, one round after the other.

    Args:
        pair: Not started.
        tmp_path: Directory of notes and logs.
        monkeypatch: Sets the environment of the worker and of beat.
        rounds: Kills.
        round_s: Least time from one kill to the next.
    """
    pair.start()
    notes = Notes(tmp_path / "notes")
    brokers = ";".join(f"amqp://guest:guest@127.0.0.1:{node.port}//" for node in (pair.primary, pair.backup))
    for name, value in (("CELERY_BROKERS", brokers), ("CELERY_NOTES", str(notes.path))):
        monkeypatch.setenv(name, value)
    application = Application(brokers)
    environment = dict(os.environ)
    worker_log, beat_log = tmp_path / "worker.log", tmp_path / "beat.log"
    schedule = str(tmp_path / "schedule")
    longest_s = 0.0
    with (
        _command(
            "worker", "--pool", "threads", "--concurrency", "4", "--loglevel", "info",
            log=worker_log, environment=environment,
        ) as worker,
        _command("beat", "--schedule", schedule, log=beat_log, environment=environment) as beat,
    ):  # fmt: skip
        application.start()

        def told() -> str:
            return "\n".join(log.read_text(errors="replace")[-2000:] for log in (worker_log, beat_log))

        def wait(condition: Any, timeout_s: float = ACTIVATION_S) -> None:
            end = time.monotonic() + timeout_s
            while not condition():
                assert time.monotonic() < end, told()
                assert worker.poll() is None, told()
                assert beat.poll() is None, told()
                assert not application.errors, application.errors
                time.sleep(0.05)

        def wait_for_a_task_sent_now() -> None:
            # the task that is being sent may have reached the node that was killed; the one after it has not
            awaited = application.confirmed + 1
            wait(lambda: awaited in notes.numbers(), GOES_ON_S)

        def wait_for_beat() -> None:
            beats = notes.beats()
            wait(lambda: notes.beats() > beats)

        wait(lambda: len(notes.numbers()) > 10 and notes.beats() > 0)
        for _ in range(rounds):
            began = time.monotonic()
            active, passive = roles(pair)
            active.kill()
            passive.wait_ready("active")
            wait_for_a_task_sent_now()
            longest_s = max(longest_s, time.monotonic() - began)
            wait_for_beat()
            # the primary fails back, unless it has done so too often in a short time
            active.start()
            wait_until(lambda: is_protected(pair), active, passive)
            wait_for_a_task_sent_now()
            time.sleep(max(0.0, began + round_s - time.monotonic()))
        application.ended.set()
        application.join(ACTIVATION_S)
        assert not application.is_alive()
        assert not application.errors
        wait_until(lambda: notes.numbers() >= set(range(application.confirmed)), pair.primary, pair.backup)
    carried_out = [line for line in notes.lines() if line != "beat"]
    print(
        f"{type(pair).__name__}: {rounds} kills, {application.confirmed} tasks confirmed, 0 lost, "
        f"{len(carried_out) - len(set(carried_out))} carried out again, {notes.beats()} of beat, "
        f"longest pause {longest_s:.1f} s"
    )
