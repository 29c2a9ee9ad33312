#!/usr/bin/env python3
"""Run a command whose calls of ``ansible-playbook --syntax-check`` are forked instead of executed.

    .ci/forked_playbooks.py COMMAND [ARGUMENT ...]

ansible-lint checks the syntax of every playbook in a process of its own, and most of its processor time is the import
of ansible by each of them. Here the command finds an ``ansible-playbook`` first in its PATH that hands its arguments,
directory, environment and standard streams to a template, which has imported ansible and forks. There is a template for
each environment, as ansible reads its configuration when it is imported. Other calls execute the program as usual.
Exit code: that of the command.
"""

from __future__ import annotations

import json
import os
import select
import shutil
import socket
import subprocess
import sys
import tempfile
from contextlib import suppress
from pathlib import Path
from typing import Any, NoReturn

#: The client, which is started for each call, so it imports little. Arguments: its socket, and the real program.
CLIENT = """\
#!{python} -IS
import json, os, socket, sys
if "--syntax-check" not in sys.argv:
    os.execv({program!r}, [{program!r}, *sys.argv[1:]])
call = {{"arguments": sys.argv[1:], "directory": os.getcwd(), "environment": dict(os.environ)}}
with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as server:
    server.connect({address!r})
    socket.send_fds(server, [b"call"], [0, 1, 2])
    server.sendall(json.dumps(call).encode())
    server.shutdown(socket.SHUT_WR)
    outcome = server.recv(1)
sys.exit(outcome[0] if outcome else 250)
"""


def read_call(connection: socket.socket) -> tuple[dict[str, Any], list[int]]:
    """Call of a client, and the file descriptors of its standard streams."""
    _, streams, _, _ = socket.recv_fds(connection, len(b"call"), 3)
    with connection.makefile("rb") as lines:
        call: dict[str, Any] = json.loads(lines.read())
    return call, streams


def environment_key(environment: dict[str, str]) -> str:
    """What differs between environments that ansible reads when it is imported."""
    return json.dumps(sorted(each for each in environment.items() if each[0].startswith(("ANSIBLE_", "PYTHON"))))


def run_child(connection: socket.socket, call: dict[str, Any], streams: list[int]) -> NoReturn:
    """Run a playbook command as the process that its client asked for, and send its exit code."""
    from ansible.cli.playbook import PlaybookCLI  # the template has imported it

    code = 250
    try:
        for number, stream in enumerate(streams):
            os.dup2(stream, number)
        os.chdir(call["directory"])
        os.environ.clear()
        os.environ.update(call["environment"])
        sys.argv = ["ansible-playbook", *call["arguments"]]
        PlaybookCLI.cli_executor(sys.argv)
    except SystemExit as end:
        code = end.code if isinstance(end.code, int) else 0 if end.code is None else 1
    finally:
        with suppress(OSError, ValueError):
            sys.stdout.flush()
            sys.stderr.flush()
        with suppress(OSError):
            connection.sendall(bytes([code]))
        os._exit(code)


def serve_template(calls: socket.socket, environment: dict[str, str]) -> NoReturn:
    """Import ansible in this environment, and fork for each call that comes."""
    os.environ.clear()
    os.environ.update(environment)
    import ansible.cli.playbook  # noqa: F401 - what children of the template have then

    while True:
        text, descriptors, _, _ = socket.recv_fds(calls, 4 << 20, 4)
        if not text:
            wait_for_children()
            os._exit(0)
        if os.fork() == 0:
            run_child(socket.socket(fileno=descriptors[0]), json.loads(text), descriptors[1:])
        for descriptor in descriptors:
            os.close(descriptor)


def wait_for_children() -> None:
    """Wait for all, so that their processor time counts as that of the command."""
    with suppress(ChildProcessError):
        while True:
            os.wait()


def serve(listener: socket.socket, ends: int) -> NoReturn:
    """Hand calls to the templates of their environments, made with the first call of each, until ``ends`` is closed."""
    templates: dict[str, socket.socket] = {}
    while True:
        ready, _, _ = select.select([listener, ends], [], [])
        if ends in ready:
            for template in templates.values():
                template.close()
            wait_for_children()
            os._exit(0)
        connection, _ = listener.accept()
        call, streams = read_call(connection)
        key = environment_key(call["environment"])
        if key not in templates:
            templates[key], other = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
            if os.fork() == 0:
                # an end of a call's own connection that stays open here would keep its client waiting
                for own in (connection, listener, *templates.values()):
                    own.close()
                for stream in (*streams, ends):
                    os.close(stream)
                serve_template(other, call["environment"])
            other.close()
        socket.send_fds(templates[key], [json.dumps(call).encode()], [connection.fileno(), *streams])
        connection.close()
        for stream in streams:
            os.close(stream)


def main(command: list[str]) -> int:
    if not command or command == ["--help"]:
        print(__doc__)
        return 0 if command else 2
    program = Path(sys.executable).with_name("ansible-playbook")
    scratch = Path(tempfile.mkdtemp(prefix="playbooks-"))
    try:
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as listener:
            listener.bind(str(scratch / "socket"))
            listener.listen(16)
            ends, end = os.pipe()
            server = os.fork()
            if server == 0:
                try:
                    os.close(end)
                    serve(listener, ends)
                finally:  # what follows is the work of the process that began
                    os._exit(1)
        client = scratch / "bin" / "ansible-playbook"
        client.parent.mkdir()
        text = CLIENT.format(python=sys.executable, program=str(program), address=str(scratch / "socket"))
        client.write_text(text)
        client.chmod(0o755)
        path = f"{client.parent}{os.pathsep}{os.environ.get('PATH', os.defpath)}"
        try:
            return subprocess.run(command, env=os.environ | {"PATH": path}, check=False).returncode
        finally:
            os.close(end)
            os.waitpid(server, 0)
    finally:
        shutil.rmtree(scratch)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
