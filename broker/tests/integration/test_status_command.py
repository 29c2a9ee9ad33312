"""Goal: ``status``, ``stop`` and ``queue stat`` tell the truth about a node and end it safely.

Method: the real management server with a fake node in a thread of its own; for ``stop`` on an
instance directory, a process of ours that plays the node.
"""

from __future__ import annotations

import asyncio
import json
import os
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from understudy.cli.main import cli, exit_code_of
from understudy.cli.node.status import started_at_ms
from understudy.errors import BrokerError
from understudy.management.model.cluster import Cluster
from understudy.management.model.node import Activation, Following, Step
from understudy.runtime.management.http import ManagementServer
from understudy.runtime.management.listener import ManagementListener
from understudy.testing.fake_node import FakeNodeView, fake_queue

TOKEN = "a-token-of-some-length"


def invoke(*arguments: str) -> tuple[int, Result]:
    """Exit code as ``main`` would make it, and the result."""
    result = CliRunner(env={"COLUMNS": "200"}).invoke(cli, arguments)
    if isinstance(result.exception, BrokerError):
        return exit_code_of(result.exception), result
    assert result.exception is None or isinstance(result.exception, SystemExit), result.exception
    return result.exit_code, result


@dataclass
class Served:
    """A management server that runs beside the test."""

    view: FakeNodeView
    url: str
    options: list[str]
    instance: Path


@pytest.fixture
def served(tmp_path: Path) -> Iterator[Served]:
    loop = asyncio.new_event_loop()
    end: asyncio.Event = asyncio.Event()

    class View(FakeNodeView):
        def request_stop(self, *, failover: bool) -> None:
            super().request_stop(failover=failover)
            end.set()

    view = View(items={"queues": [fake_queue("orders"), fake_queue("b/ä [bold]\x1b[2J")]})
    server = ManagementServer(view, ManagementListener("127.0.0.1", 0, TOKEN))
    started = threading.Event()

    async def run() -> None:
        await server.start()
        started.set()
        await end.wait()
        await server.stop()

    thread = threading.Thread(target=loop.run_until_complete, args=(run(),))
    thread.start()
    assert started.wait(60)
    url = f"http://127.0.0.1:{server.listener.port}"
    token_file = tmp_path / "etc" / "management.token"
    token_file.parent.mkdir()
    token_file.write_text(TOKEN + "\n")
    (tmp_path / "run").mkdir()
    facts = {"pid": 1, "http_url": url, "token_file": str(token_file), "name": "node-a", "config": "x"}
    (tmp_path / "run" / "node.json").write_text(json.dumps(facts))
    yield Served(view, url, ["--url", url, "--token-file", str(token_file)], tmp_path)
    loop.call_soon_threadsafe(end.set)
    thread.join(10)
    loop.close()


def test_status_of_an_active_node(served: Served) -> None:
    for options in (served.options, ["--instance", str(served.instance)]):
        code, result = invoke("status", *options)
        assert code == 0
        for text in ("node-a", "active", "primary, shared-store", "tcp://0.0.0.0:61616", "2 with 14 messages"):
            assert text in result.output


def test_status_shows_the_step_of_an_activation_that_is_under_way(served: Served) -> None:
    served.view.change(activation=Activation("begin epoch", False, 12, [Step("start the writers", 12)]))
    assert "doing 'begin epoch': start the writers 12 ms" in invoke("status", *served.options)[1].output
    served.view.change(activation=Activation(None, False, 12, [Step("start the writers", 12)]))
    assert "12 ms: start the writers 12 ms" in invoke("status", *served.options)[1].output


def test_status_as_json(served: Served) -> None:
    code, result = invoke("status", *served.options, "--json")
    body = json.loads(result.stdout)
    assert (code, body["ready"], body["ha"]["state"], body["epoch"]) == (0, True, "active", 3)


def test_a_node_that_is_not_ready_is_exit_code_1(served: Served) -> None:
    served.view.change(state="passive", following=Following(False, 2048))
    code, result = invoke("status", *served.options)
    assert code == 1
    assert "passive with a lag of 2048 bytes" in result.output
    assert "lag of 2.0 KiB" in result.output
    served.view.change(following=Following(True, 0))
    assert invoke("status", *served.options)[0] == 0


def test_queues_in_a_table_and_as_json(served: Served) -> None:
    code, result = invoke("queue", "stat", *served.options)
    assert code == 0
    assert "orders" in result.output
    assert "[bold]" in result.output
    assert "\x1b" not in result.output
    queues = json.loads(invoke("queue", "stat", *served.options, "--json")[1].stdout)
    assert [queue["name"] for queue in queues] == ["b/ä [bold]\x1b[2J", "orders"]
    (one,) = json.loads(invoke("queue", "stat", *served.options, "--json", "--name", queues[0]["name"])[1].stdout)
    assert one.items() >= queues[0].items()


def test_a_queue_that_is_not_there_is_exit_code_1(served: Served) -> None:
    code, result = invoke("queue", "stat", *served.options, "--name", "none")
    assert code == 1
    assert "no queue 'none'" in str(result.exception)


def test_a_wrong_token_is_a_configuration_error(served: Served, tmp_path: Path) -> None:
    wrong = tmp_path / "wrong"
    wrong.write_text("something else entirely")
    code, result = invoke("status", "--url", served.url, "--token-file", str(wrong))
    assert code == 2
    assert "token" in str(result.exception)


def test_an_unreachable_node_is_exit_code_3(tmp_path: Path) -> None:
    with socket.socket() as held:
        # taken, and no process listens
        held.bind(("127.0.0.1", 0))
        assert invoke("status", "--url", f"http://127.0.0.1:{held.getsockname()[1]}")[0] == 3
    assert invoke("status", "--instance", str(tmp_path))[0] == 3
    assert invoke("stop", "--instance", str(tmp_path))[0] == 3


def test_without_a_place_the_default_instance_is_asked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    for command in ("status", "stop"):
        code, output = invoke(command)[:2]
        assert code == 3
        assert str(tmp_path / "understudy") in str(output)


@pytest.mark.parametrize("arguments", [["--instance", "x", "--url", "http://y"], ["--url", "file:///etc/passwd"]])
def test_a_place_that_is_none_is_exit_code_2(arguments: list[str]) -> None:
    assert invoke("status", *arguments)[0] == 2


@pytest.mark.parametrize(
    "answer",
    [
        b"garbage\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello",
        b"HTTP/1.1 200 OK\r\nContent-Length: 50\r\n\r\n{",
        b"HTTP/1.1 302 Found\r\nLocation: http://127.0.0.1:1/\r\nContent-Length: 0\r\n\r\n",
        b"HTTP/1.1 500 X\r\nContent-Length: 2\r\n\r\n[]",
        b"",
    ],
)
def test_something_else_that_answers_is_an_error_of_ours(answer: bytes) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def play() -> None:
            connection, _ = listener.accept()
            with connection:
                connection.recv(65536)
                connection.sendall(answer)

        thread = threading.Thread(target=play)
        thread.start()
        code, result = invoke("status", "--url", f"http://127.0.0.1:{listener.getsockname()[1]}")
        thread.join()
    assert code in (1, 3), result.output


def test_stop_over_http_waits_for_the_end(served: Served) -> None:
    code, result = invoke("stop", *served.options, "--failover")
    assert (code, result.output) == (0, "stopped\n")
    assert served.view.stops == [True]


#: Plays a node: writes its pid file as a node does, says so, and ends or not on SIGTERM.
_PROCESS = """
import os, pathlib, signal, sys
signal.signal(signal.SIGTERM, signal.SIG_IGN if sys.argv[2] == "stubborn" else lambda *_: sys.exit(0))
pathlib.Path(sys.argv[1]).write_text(f"{os.getpid()}\\n")
print("ready", flush=True)
while True:
    signal.pause()
"""

Play = Callable[[str], "subprocess.Popen[bytes]"]


@pytest.fixture
def play(tmp_path: Path) -> Iterator[Play]:
    (tmp_path / "run").mkdir()
    started: list[subprocess.Popen[bytes]] = []

    def start(temper: str) -> subprocess.Popen[bytes]:
        process = subprocess.Popen(
            [sys.executable, "-c", _PROCESS, str(tmp_path / "run" / "understudy.pid"), temper], stdout=subprocess.PIPE
        )
        started.append(process)
        assert process.stdout is not None
        assert process.stdout.readline() == b"ready\n"
        return process

    yield start
    for process in started:
        process.kill()
        process.wait()
        assert process.stdout is not None
        process.stdout.close()


def test_stop_of_an_instance_signals_its_process_and_waits(play: Play, tmp_path: Path) -> None:
    process = play("obedient")
    code, result = invoke("stop", "--instance", str(tmp_path))
    assert (code, result.output) == (0, "stopped\n")
    assert process.wait(60) == 0
    assert invoke("stop", "--instance", str(tmp_path))[0] == 3


def test_a_process_that_does_not_end_is_exit_code_4(play: Play, tmp_path: Path) -> None:
    process = play("stubborn")
    code, result = invoke("stop", "--instance", str(tmp_path), "--timeout", "0.2")
    assert code == 4
    assert f"process {process.pid} still runs" in str(result.exception)


def test_a_younger_process_with_the_same_id_is_left_alone(play: Play, tmp_path: Path) -> None:
    process = play("obedient")
    path = tmp_path / "run" / "understudy.pid"
    old = time.time() - 3600
    os.utime(path, (old, old))
    code, result = invoke("stop", "--instance", str(tmp_path))
    assert code == 3
    assert "younger" in str(result.exception)
    assert process.poll() is None


@pytest.mark.parametrize("text", ["", "x", "-1", "0", "1", "99999999999", "²"])
def test_an_invalid_pid_file_signals_no_process(tmp_path: Path, text: str) -> None:
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "understudy.pid").write_text(text)
    assert invoke("stop", "--instance", str(tmp_path))[0] == 2


def test_start_times_are_wall_clock() -> None:
    started = started_at_ms(os.getpid())
    assert started is not None
    assert 0 < time.time() * 1000 - started < 3_600_000
    assert started_at_ms(2**22 + 1) is None


def test_the_cluster_is_shown(served: Served) -> None:
    code, result = invoke("cluster", "show", *served.options)
    assert code == 0
    for text in ("10.0.0.1:61616", "WAITING", "150 ms", "LISTENING", "1 damaged", "BROADCASTING", "ungrouped"):
        assert text in result.output
    code, result = invoke("cluster", "show", *served.options, "--json")
    assert code == 0
    found = json.loads(result.output)
    assert found["members"][0]["own"] is True
    assert found["discovery"][0]["entries"][0]["connectors"] == ["tcp://10.0.0.3:61616"]


def test_a_node_without_a_cluster_says_so(served: Served) -> None:
    served.view.part_of = Cluster()
    code, result = invoke("cluster", "show", *served.options)
    assert (code, result.output) == (0, "the node has no cluster-connection\n")
