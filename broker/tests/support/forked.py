"""``understudy`` commands as real processes that are forked instead of executed.

Most of the processor time of a short test with real processes is the import of the same modules by each of them. Here
one process, the template, imports them once and forks for each command: the child gets the arguments, directory,
standard streams and limits of descriptors of its command and runs ``understudy.cli.main``. It is a process as any
other, with a pid, signals and an exit code; ``Popen`` and ``run`` have the interface of ``subprocess``.

Executed as usual are other programs, and commands with an environment, a session or a function before the execution of
their own: ``python -m`` and the variables of a process are read when modules are imported.
"""

from __future__ import annotations

import atexit
import gc
import importlib
import json
import os
import resource
import select
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

COMMAND: Final = Path(sys.executable).with_name("understudy")
#: Modules that nodes, clients and commands load when they run.
_PRELOADED: Final = (
    "cryptography.hazmat.primitives.ciphers.aead",
    "encodings.idna",
    "encodings.utf_16_be",
    "understudy.cli.console.command",
    "understudy.cli.data.checks.compare",
    "understudy.cli.data.checks.verify",
    "understudy.cli.data.commands",
    "understudy.cli.data.compact",
    "understudy.cli.data.export_file",
    "understudy.cli.data.exported_settings",
    "understudy.cli.data.prune",
    "understudy.cli.data.replay",
    "understudy.cli.data.salvage",
    "understudy.cli.data.store_copies.backup",
    "understudy.cli.data.store_copies.restore",
    "understudy.cli.data.transfer",
    "understudy.cli.messages.browse",
    "understudy.cli.messages.consume",
    "understudy.cli.messages.produce",
    "understudy.cli.messages.queue",
    "understudy.cli.messages.reader",
    "understudy.cli.messages.sending",
    "understudy.cli.node.create",
    "understudy.cli.node.handing_over",
    "understudy.cli.node.run",
    "understudy.cli.node.status",
    "understudy.cli.node.witness",
    "understudy.client.aio",
    "understudy.management.operations.declared",
    "understudy.management.snapshot.access",
    "understudy.management.snapshot.collections",
    "understudy.runtime.locks.witness_process",
    "understudy.runtime.locks.witness_server",
    "understudy.runtime.management.cluster_view",
    "understudy.runtime.management.heartbeat",
    "understudy.runtime.management.http",
    "understudy.runtime.management.node_requests",
    "understudy.runtime.management.node_values",
    "understudy.runtime.management.node_view",
    "understudy.runtime.node.promotions",
    "understudy.runtime.process.server",
    "understudy.tools.store_copy",
)
_MESSAGE_BYTES_MAX: Final = 1024 * 1024
#: Cluster user and password of the nodes of most tests. A node computes a key of them, which is expensive on purpose:
#: the template does so once, and its children have the key.
_CLUSTER: Final = ("cluster", "a-secret-of-this-test")
#: Values of ``restore_signals``, ``gid``, ``gids``, ``uid`` and ``umask`` of ``subprocess.Popen`` by default.
_USUAL: Final = (True, None, None, None, -1)


class Template:
    """The process from which commands are forked; it starts with the first command and ends with the tests."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._socket: socket.socket | None = None
        self._environment: dict[str, str] = {}
        self._process: subprocess.Popen[bytes] | None = None

    def fits(self) -> bool:
        """Whether a child has the environment that the tests have at present."""
        with self._lock:
            if self._socket is None:
                self._start()
            return _environment() == self._environment

    def fork(self, words: list[str], directory: str, streams: list[int]) -> int:
        """Start a command with these descriptors as its standard streams; return the process id."""
        request = {"words": words, "directory": directory, "open_files": resource.getrlimit(resource.RLIMIT_NOFILE)}
        pid: int = self._ask(request, streams)["pid"]
        return pid

    def end(self) -> None:
        """End the process, whose processor time then counts as time of the tests."""
        assert self._socket is not None
        assert self._process is not None
        self._socket.close()
        self._socket = None
        self._process.wait()

    def exit_code(self, pid: int) -> int | None:
        """Exit code of a command as ``subprocess`` gives it; None while it runs, and after the end of the tests."""
        if self._socket is None:
            return None
        found: int | None = self._ask({"pid": pid}, [])["status"]
        return found

    def _ask(self, request: dict[str, Any], descriptors: list[int]) -> dict[str, Any]:
        with self._lock:
            assert self._socket is not None
            socket.send_fds(self._socket, [json.dumps(request).encode()], descriptors)
            answer = self._socket.recv(_MESSAGE_BYTES_MAX)
        assert answer, "the template process has ended"
        found: dict[str, Any] = json.loads(answer)
        return found

    def _start(self) -> None:
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._environment = _environment()
        self._process = subprocess.Popen(
            [sys.executable, __file__, str(theirs.fileno())],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            pass_fds=[theirs.fileno()],
        )
        theirs.close()
        self._socket = ours
        atexit.register(self.end)


def _environment() -> dict[str, str]:
    """Environment of the tests without the variable that pytest changes for each test."""
    return {name: value for name, value in os.environ.items() if name != "PYTEST_CURRENT_TEST"}


_template = Template()


class Popen(subprocess.Popen[Any]):
    """A process as of ``subprocess.Popen``; those of ``understudy`` are forked."""

    _forked = False

    def _execute_child(self, args: Any, executable: Any, *rest: Any) -> None:
        preexec_fn, _close_fds, pass_fds, directory, environment, _info, _flags, shell = rest[:8]
        pipes, others = rest[8:14], rest[14:]
        words = [os.fsdecode(each) for each in args] if isinstance(args, list | tuple) else [""]
        plain = not (preexec_fn or pass_fds or environment is not None or shell or executable) and others[:5] == _USUAL
        if words[0] != str(COMMAND) or not plain or any(each not in (False, -1) for each in others[5:]):
            super()._execute_child(args, executable, *rest)  # type: ignore[misc]  # private, so it has no type
            return
        if not _template.fits():
            super()._execute_child(args, executable, *rest)  # type: ignore[misc]  # private, as above
            return
        for_child = (pipes[0], pipes[3], pipes[5])
        self.pid = _template.fork(
            words,
            os.fspath(directory) if directory is not None else os.getcwd(),
            [each if each != -1 else number for number, each in enumerate(for_child)],
        )
        self._forked = self._child_created = True
        self._close_pipe_fds(*pipes)  # type: ignore[attr-defined]  # private, as above

    def _internal_poll(self, *arguments: Any, **options: Any) -> int | None:
        if not self._forked:
            found: int | None = super()._internal_poll(*arguments, **options)  # type: ignore[misc]  # private, as above
            return found
        if self.returncode is None:
            self.returncode = _template.exit_code(self.pid)
        return self.returncode

    def _wait(self, timeout: float | None) -> int:
        if not self._forked:
            found: int = super()._wait(timeout)  # type: ignore[misc]  # private, as above
            return found
        if self.returncode is None:
            # a child stays until its exit code was asked for, by this thread or by another one
            with suppress(ProcessLookupError):
                ended = os.pidfd_open(self.pid)
                try:
                    waiting = select.poll()
                    waiting.register(ended, select.POLLIN)
                    if not waiting.poll(None if timeout is None else 1000 * timeout):
                        assert timeout is not None
                        raise subprocess.TimeoutExpired(self.args, timeout)
                finally:
                    os.close(ended)
            self.returncode = _template.exit_code(self.pid)
        return self.returncode


def run(
    arguments: Sequence[Any],
    *,
    input: Any = None,  # noqa: A002  # the name that ``subprocess`` gives it
    capture_output: bool = False,
    timeout: float | None = None,
    check: bool = False,
    **options: Any,
) -> subprocess.CompletedProcess[Any]:
    """Run a command to its end; as ``subprocess.run``."""
    if input is not None:
        options["stdin"] = subprocess.PIPE
    if capture_output:
        options["stdout"] = options["stderr"] = subprocess.PIPE
    with Popen(arguments, **options) as process:
        try:
            output, errors = process.communicate(input, timeout)
        except BaseException:
            process.kill()
            raise
    done = subprocess.CompletedProcess(process.args, process.returncode, output, errors)
    if check:
        done.check_returncode()
    return done


# --- in the template process -----------------------------------------------------------------------


def serve(requests: socket.socket) -> list[str]:
    """Answer requests until the tests end; in a child, return the words of its command."""
    ended: dict[int, int] = {}
    while True:
        data, descriptors, _, _ = socket.recv_fds(requests, _MESSAGE_BYTES_MAX, 3)
        if not data:
            os._exit(0)
        request = json.loads(data)
        if "words" in request:
            child = os.fork()
            if not child:
                requests.close()
                become(request, descriptors)
                words: list[str] = request["words"]
                return words
            for each in descriptors:
                os.close(each)
            ended.pop(child, None)
            answer: dict[str, Any] = {"pid": child}
        else:
            answer = {"status": exit_code(request["pid"], ended)}
        requests.send(json.dumps(answer).encode())


def exit_code(pid: int, ended: dict[int, int]) -> int | None:
    """Exit code of a child; None while it runs.

    Args:
        pid: Process id of the child.
        ended: Exit codes of children that were asked for before.
    """
    if pid not in ended:
        found, status = os.waitpid(pid, os.WNOHANG)
        if not found:
            return None
        ended[pid] = os.waitstatus_to_exitcode(status)
    return ended[pid]


def become(request: dict[str, Any], descriptors: list[int]) -> None:
    """Give a child the streams, directory and limits of its command, and nothing of the template."""
    for number, each in enumerate(descriptors):
        os.dup2(each, number, inheritable=True)
    os.closerange(3, max(descriptors) + 1)
    os.chdir(request["directory"])
    resource.setrlimit(resource.RLIMIT_NOFILE, request["open_files"])
    signal.signal(signal.SIGINT, signal.default_int_handler)
    sys.argv = request["words"]


def template() -> None:
    """Load the modules, fork, and run the command of a child."""
    requests = socket.socket(fileno=int(sys.argv[1]))
    sys.path[0] = str(COMMAND.parent)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    gc.disable()
    main = importlib.import_module("understudy.cli.main").main
    for name in _PRELOADED:
        importlib.import_module(name)
    entropy = importlib.import_module("understudy.runtime.base.environment").SystemEntropy()
    importlib.import_module("understudy.cluster.membership.credentials").ClusterCredentials(
        *_CLUSTER, entropy
    ).derive_key()
    gc.enable()
    gc.freeze()
    serve(requests)
    sys.exit(main())


if __name__ == "__main__":
    template()
