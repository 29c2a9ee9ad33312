"""``understudy cli``: the management CLI of a running node."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Final

import click

from understudy.cli.console.lines import lines_of, split_commands
from understudy.cli.console.prompt import converse
from understudy.cli.console.rehearsal import Rehearsal
from understudy.cli.console.session import Answer, Failed, Send, Session, answer_of
from understudy.cli.console.summary import Summary
from understudy.cli.node.status import Place, instance_option, shown_peer, token_file_option, url_option
from understudy.cli.terminal import echo
from understudy.errors import BrokerError, CallTimedOut, Unreachable
from understudy.management.dmr.grammar import Operation
from understudy.management.dmr.operations import IF_NEEDED
from understudy.management.dmr.parameters import READS
from understudy.management.dmr.requests import request_json
from understudy.management.dmr.text import format_value, parse_value
from understudy.management.dmr.values import to_json

_NOTATION: Final = "application/x-dmr-text"
#: Period of the check of a node that reloads.
RELOAD_POLL_S: Final = 0.2


@click.command("cli")
@instance_option
@url_option
@token_file_option
@click.option("--controller", metavar="HOST:PORT", help="The node, as --url http://HOST:PORT.")
@click.option("--command", "one", metavar="LINE", help="Carry out one line.")
@click.option("--commands", "several", metavar="LINE,LINE...", help="Carry out lines with commas between them.")
@click.option(
    "--file",
    type=click.Path(path_type=Path, exists=True, dir_okay=False),
    help="Carry out the lines of a script; a line with # first is a comment, a backslash at the end continues a line.",
)
@click.option("--timeout", default=60.0, show_default=True, help="Longest wait for an answer or a reload, in seconds.")
@click.option("--output-json", "--json", "as_json", is_flag=True, help="Print answers as JSON.")
@click.option("--echo-command", is_flag=True, help="Print each line before it is carried out.")
@click.option("--check", is_flag=True, help="Change nothing: the node validates each line after those before it.")
@click.option(
    "--if-needed",
    is_flag=True,
    help="Count as done: add of a present resource with these values, and remove of a missing one.",
)
@click.option(
    "--summary",
    is_flag=True,
    help="Print one JSON object at the end: answers, printed lines, the configuration before and after.",
)
@click.option("--connect", "-c", is_flag=True, help="For scripts of jboss-cli: the command always connects.")
@click.option("--no-color-output", is_flag=True, help="For scripts of jboss-cli: output has no colours.")
@click.option("--no-output-paging", is_flag=True, help="For scripts of jboss-cli: output is not paged.")
def management_cli(
    instance: Path | None,
    url: str | None,
    token_file: Path | None,
    controller: str | None,
    one: str | None,
    several: str | None,
    file: Path | None,
    timeout: float,
    as_json: bool,
    echo_command: bool,
    check: bool,
    if_needed: bool,
    summary: bool,
    connect: bool,
    no_color_output: bool,
    no_output_paging: bool,
) -> None:
    """Configure a running node by the lines of the management CLI of JBoss EAP and WildFly.

    Without --command, --commands and --file, lines come from standard input; on a terminal there is a prompt with
    history and completion. Changes are kept in etc/broker.d/50-cli.json: `understudy config diff` shows them, and
    docs/operate/management-cli.md lists the resources. A passive node is configured like an active one; of several
    nodes of --url or a context it is the active one, and a note names the other node of the pair after a change.

    \b
    Example: understudy cli --command "/subsystem=messaging-activemq/server=default:read-resource"

    Exit codes: 0 done; 1 a line failed, and those after it were not carried out; 2 a line cannot be read; 3 the node is
    not reachable; 4 it did not come back from a reload in time.
    """
    if sum(each is not None for each in (one, several, file)) > 1:
        raise click.UsageError("give one of --command, --commands and --file")
    if controller is not None:
        if url is not None or instance is not None:
            raise click.UsageError("--controller excludes --url and --instance")
        url = f"http://{controller}"
    place = Place.of(instance, url, token_file)
    plain: Send = partial(_send, place, timeout)
    # a summary is for programs, which carry the lines out at each node
    send = plain if summary else _with_note(plain, place)
    reload: Callable[[Operation], Answer] = partial(_reload, place, timeout)
    if check:
        rehearsal = Rehearsal(plain)
        send, reload = rehearsal.send, rehearsal.reload
    if if_needed:
        send = partial(_if_needed, send)
    if one is not None or several is not None:
        lines: Iterable[str] | None = [one] if one is not None else split_commands(several or "")
    elif file is not None:
        lines = lines_of(file)
    else:
        lines = None if sys.stdin.isatty() else sys.stdin
    script = None if file is None else str(file)
    if summary:
        if lines is None:
            raise click.UsageError("--summary needs --command, --commands, --file or lines of standard input")
        _summarise(Summary(send, reload, rehearsed=check), lines, script)
        return
    session = Session(send, reload, partial(_show, as_json), echo, echo_lines=echo_command)
    try:
        if lines is None:
            converse(session, send, place.url.partition("://")[2])
        else:
            session.run(lines, script)
    except Failed:
        raise SystemExit(1) from None


def _summarise(summary: Summary, lines: Iterable[str], script: str | None) -> None:
    """Carry out lines and print the summary, also if one of them fails."""
    session = Session(summary.send, summary.reload, summary.show, summary.say)
    problem: BrokerError | None = None
    try:
        session.run(lines, script)
    except BrokerError as error:
        problem = error
    echo(json.dumps(summary.finish(None if problem is None else str(problem)), indent=1))
    if isinstance(problem, Failed):
        raise SystemExit(1)
    if problem is not None:
        raise problem


def _if_needed(send: Send, operations: Sequence[Operation], composite: bool) -> Answer:
    """Send operations with the header ``if-needed``."""
    return send(
        [
            each if each.name in READS else replace(each, headers={IF_NEEDED: "true", **each.headers})
            for each in operations
        ],
        composite,
    )


def _send(place: Place, timeout_s: float, operations: Sequence[Operation], composite: bool) -> Answer:
    body = request_json(operations, composite=composite)
    return answer_of(parse_value(place.talk("/management", body, accept=_NOTATION, timeout_s=timeout_s)))


def _with_note(send: Send, place: Place) -> Send:
    """Say after the first change of a node of a pair that the other node has a configuration of its own (ADR 0174)."""
    noted = False

    def carry_out(operations: Sequence[Operation], composite: bool) -> Answer:
        nonlocal noted
        answer = send(operations, composite)
        if not noted and answer["outcome"] == "success" and not READS.issuperset(each.name for each in operations):
            noted = True
            node = place.ask("/api/v1/node")
            if node["peer"] is not None:
                echo(
                    f"note: {node['name']} is changed, and {shown_peer(node['peer'])} is not: each node of a pair has a"
                    " configuration of its own. Carry the lines out there as well, unless they are about one node",
                    err=True,
                )
        return answer

    return carry_out


def _reload(place: Place, timeout_s: float, operation: Operation) -> Answer:
    """Have a node reload, and wait until it answers after its start. Raises CallTimedOut."""
    before = _start_of(place, timeout_s)
    answer = _send(place, timeout_s, [operation], False)
    if answer["outcome"] != "success":
        return answer
    deadline = time.monotonic() + timeout_s
    while time.monotonic() < deadline:
        time.sleep(RELOAD_POLL_S)
        try:
            if _start_of(place, timeout_s) != before:
                return answer
        except (Unreachable, BrokerError):
            continue
    raise CallTimedOut(f"{place.url} did not answer within {timeout_s:g} s after its reload", hint="look at its log")


def _start_of(place: Place, timeout_s: float) -> object:
    return _send(place, timeout_s, [Operation((), "read-attribute", {"name": "start-id"})], False).get("result")


def _show(as_json: bool, answer: Answer) -> None:
    echo(json.dumps(to_json(answer), indent=4) if as_json else format_value(answer))
