"""Modules that ``understudy run`` loads before it opens its acceptors: importing is most of the time of a start."""

from __future__ import annotations

import json
import subprocess
import sys

#: Loaded when they are used: management over HTTP and its description, the clients, the offline tools, Spark, and what
#: the standard library has for HTTP and mail.
LATER = (
    "aiohttp",
    "asyncssh",
    "email.message",
    "http.client",
    "lxml",
    "msgspec",
    "multiprocessing",
    "pyspark",
    "rich",
    "unittest",
    "urllib.request",
    "understudy.client",
    "understudy.ledger",
    "understudy.management.doors.openapi",
    "understudy.management.model",
    "understudy.management.reference",
    "understudy.runtime.management.http",
    "understudy.spark",
    "understudy.testing",
    "understudy.tools",
)


def test_a_start_loads_no_module_that_it_does_not_need() -> None:
    program = "import json, sys, understudy.cli.main, understudy.cli.node.run; print(json.dumps(sorted(sys.modules)))"
    result = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    loaded = json.loads(result.stdout)
    assert "understudy.runtime.process.server" in loaded
    assert [name for name in loaded if any(name == each or name.startswith(f"{each}.") for each in LATER)] == []


#: Packages of the extras and of the tests: not on a host that runs a broker.
EXTRAS = ("hypothesis", "kazoo", "pyarrow", "pyspark", "pytest")


def test_the_help_of_every_command_needs_no_extra() -> None:
    program = (
        f"import sys; sys.modules.update(dict.fromkeys({EXTRAS!r}))\n"
        "import click\n"
        "from understudy.cli.main import cli\n"
        "def walk(command, path):\n"
        "    with click.Context(command, info_name=path) as context:\n"
        "        command.get_help(context)\n"
        "        for name in getattr(command, 'list_commands', lambda context: [])(context):\n"
        "            walk(command.get_command(context, name), f'{path} {name}')\n"
        "walk(cli, 'understudy')\n"
    )
    result = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stderr
