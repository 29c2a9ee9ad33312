"""``understudy status`` and ``stop``: look at a node and end it.

Both speak the management API of one node. ``stop`` on an instance directory needs no API:
it signals the process, after making sure that the process is the one that wrote the pid file.
"""

from __future__ import annotations

import http.client
import json
import os
import select
import signal
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final, cast

import click

from understudy.cli.managing.contexts import current_context
from understudy.cli.node.defaults import default_directory
from understudy.cli.tables import View, view_options
from understudy.cli.terminal import echo
from understudy.errors import BrokerError, CallTimedOut, ConfigError, Unreachable
from understudy.runtime.base.management_client import ANSWER_TIMEOUT_MS, ManagementAddress
from understudy.texts import counted, masked_url, reason_of
from understudy.units import format_bytes, format_duration_ms

#: Largest file of an instance directory read. Bytes.
FILE_BYTES_MAX: Final = 64 * 1024
#: A process may seem to have started this much after it wrote its pid file: the kernel tells
#: start times in hundredths since a boot time in whole seconds.
START_TOLERANCE_MS: Final = 2_000
#: Period of the check of a node that is being stopped over HTTP.
STOP_POLL_MS: Final = 100


class Place(ManagementAddress):
    """The address of the node that the options of a command name."""

    __slots__ = ()

    @classmethod
    def of(cls, instance: Path | None, url: str | None, token_file: Path | None, server: str | None = None) -> Place:
        """The place that the options name; of several nodes the active one, else the first that answers.

        Args and errors are those of ``all_of``.
        """
        return serving(cls.all_of(instance, url, token_file, server))

    @classmethod
    def only(cls, instance: Path | None, url: str | None, token_file: Path | None, server: str | None = None) -> Place:
        """The place of a command that is about one particular node.

        Raises:
            ConfigError: the context or ``--url`` names several nodes.
        """
        found = cls.all_of(instance, url, token_file, server)
        if len(found) > 1:
            urls = ", ".join(each.url for each in found)
            raise ConfigError(f"{urls}: the command is about one node", hint="name it with --url or --instance")
        return found[0]

    @classmethod
    def all_of(
        cls, instance: Path | None, url: str | None, token_file: Path | None, server: str | None = None
    ) -> list[Place]:
        """All places that the options name; without them those of the context, or the default instance.

        Args:
            instance: The instance directory.
            url: URLs separated by commas.
            token_file: File with the token; None: that of the instance or of the context.
            server: One of the servers of the instance; None: that of ``core``.

        Raises:
            ConfigError: both were given, or a file cannot be read.
            Unreachable: the instance is not running.
        """
        if instance is not None and url is not None:
            raise ConfigError("give either --instance or --url")
        if server is not None and url is not None:
            raise ConfigError("--server names a server of an instance: a --url is that of one server")
        if url is not None:
            token = _token(token_file)
            return [cls.at(each, token) for each in url.split(",")]
        chosen = current_context(os.environ) if instance is None else None
        if chosen is not None and chosen["nodes"]:
            return cls._of_context(chosen, token_file, server)
        return [cls.of_instance(default_directory(os.environ) if instance is None else instance, token_file, server)]

    @classmethod
    def at(cls, url: str, token: str, ca: str | None = None) -> Place:
        """The place of a URL. Raises ConfigError: it is no http or https URL."""
        if urllib.parse.urlsplit(url).scheme not in ("http", "https"):
            raise ConfigError(f"{masked_url(url)!r} is no http or https URL")
        return cls(url.rstrip("/"), token, ca)

    @classmethod
    def of_instance(cls, instance: Path, token_file: Path | None, server: str | None = None) -> Place:
        """The place of a running instance. Raises ConfigError, Unreachable."""
        path = instance / "run" / "node.json"
        with _description(instance, path) as node:
            url, named = _url_of(node, server, path), node["token_file"]
        if url is None:
            raise ConfigError("the node runs without management", file=str(path))
        return cls.at(url, _token(token_file or (Path(named) if named else None)))

    @classmethod
    def _of_context(cls, chosen: Mapping[str, Any], token_file: Path | None, server: str | None) -> list[Place]:
        """The nodes of a context; instances that do not run are left out unless no node is left."""
        found, missing = list[Place](), list[Unreachable]()
        for node in chosen["nodes"]:
            try:
                found.append(cls.of_context_node(node, chosen, token_file, server))
            except Unreachable as error:
                missing.append(error)
        if not found:
            raise missing[0]
        return found

    @classmethod
    def of_context_node(
        cls, node: Mapping[str, Any], chosen: Mapping[str, Any], token_file: Path | None, server: str | None = None
    ) -> Place:
        """The place of one node of a context. Raises ConfigError; Unreachable: it is an instance that does not run."""
        if "management" in node:
            token = _token(token_file) or node.get("token", "")
            return cls.at(node["management"], token, chosen.get("ca"))
        return cls.of_instance(Path(node["instance"]), token_file, server)

    @classmethod
    def reachable(cls, instance: Path, token_file: Path | None) -> Place:
        """A server of the process of an instance that answers. Raises Unreachable: none does."""
        with _description(instance, instance / "run" / "node.json") as node:
            names = list(node["servers"])
        for name in names:
            try:
                place = cls.of(instance, None, token_file, name)
                place.ask("/health/live")
            except (Unreachable, ConfigError):
                continue
            return place
        raise Unreachable(f"no server of {instance} answers")


def serving(places: Sequence[Place]) -> Place:
    """The place of the active node; without one the first that answers. The only one of a list is not asked.

    Raises:
        Unreachable: none answers; the error names each.
    """
    if len(places) == 1:
        return places[0]
    first: Place | None = None
    errors = list[str]()
    for each in places:
        try:
            state = readiness_of(each)["state"]
        except BrokerError as error:
            errors.append(str(error))
            continue
        if state == "active":
            return each
        first = first or each
    if first is None:
        raise Unreachable("; ".join(errors))
    return first


def _token(file: Path | None) -> str:
    """The token in a file; empty without one. Raises ConfigError: it does not exist or cannot be read."""
    if file is None:
        return ""
    try:
        return _read_file(file).strip()
    except FileNotFoundError:
        raise ConfigError("does not exist", file=str(file)) from None


@contextmanager
def _description(instance: Path, path: Path) -> Iterator[dict[str, Any]]:
    """The description of the process of an instance; an error of its use is one of the file.

    Raises:
        Unreachable: no process has described itself.
        ConfigError: the file is no description.
    """
    try:
        yield json.loads(_read_file(path))
    except FileNotFoundError:
        raise Unreachable(f"no node runs from {instance}: {path} does not exist") from None
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise ConfigError("is no description of a running node", file=str(path)) from error


def _url_of(node: dict[str, Any], server: str | None, path: Path) -> str | None:
    """URL of the management of a server in the description of a process."""
    if server is None:
        return cast(str | None, node["http_url"])
    servers = cast(dict[str, str | None], node["servers"])
    if server not in servers:
        raise ConfigError(f"has no server {server!r}", file=str(path), hint=f"it has {', '.join(servers)}")
    return servers[server]


def _read_file(path: Path) -> str:
    try:
        with path.open(encoding="utf-8") as file:
            return file.read(FILE_BYTES_MAX)
    except FileNotFoundError:
        raise
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"cannot be read: {reason_of(error)}", file=str(path)) from error


instance_option = click.option(
    "--instance",
    type=click.Path(path_type=Path, file_okay=False),
    help="The node's instance directory; default without --url: that of `understudy run`.",
)
server_option = click.option(
    "--server", help="One of several servers of the instance, by its name; default: that of core in broker.xml."
)
url_option = click.option(
    "--url",
    help="The node's management URL, such as http://127.0.0.1:8161; of several, separated by commas, the active node"
    " is asked.",
)
token_file_option = click.option(
    "--token-file", type=click.Path(path_type=Path, dir_okay=False), help="File with the management token."
)


@click.command()
@instance_option
@server_option
@url_option
@token_file_option
@view_options(watch=True)
def status(instance: Path | None, server: str | None, url: str | None, token_file: Path | None, view: View) -> None:
    """Show the state of a node.

    \b
    Example: understudy status --url http://127.0.0.1:8161 --watch

    Exit codes: 0 active, or passive and ready to take over; 1 not ready; 3 not reachable.
    """
    place = Place.of(instance, url, token_file, server)

    def show() -> bool:
        node = place.ask("/api/v1/node")
        ready = readiness_of(place)
        if view.as_json:
            view.value(node | {"ready": ready["ready"], "reason": ready["reason"]})
        else:
            view.figures(node_figures(node, ready), title=f"{node['name']} ({node['version']})")
        return bool(ready["ready"])

    if not view.repeat(show):
        raise SystemExit(1)


def readiness_of(place: Place) -> dict[str, Any]:
    """The body of /health/ready, which comes with status 503 when the node is not."""
    request = urllib.request.Request(place.url + "/health/ready")
    try:
        with place.opener().open(request, timeout=ANSWER_TIMEOUT_MS / 1000) as response:
            body = response.read(FILE_BYTES_MAX)
    except urllib.error.HTTPError as error:
        with error:
            body = error.read(FILE_BYTES_MAX)
    except (OSError, http.client.HTTPException) as error:
        raise Unreachable(f"{place.url} does not answer: {reason_of(getattr(error, 'reason', error))}") from error
    try:
        found = json.loads(body)
        return {
            "ready": bool(found["ready"]),
            "state": str(found["state"]),
            "reason": found["reason"],
            # a node of an earlier version does not say it
            "protected": bool(found.get("protected", False)),
            "protection": str(found.get("protection", "unknown: the version of the node does not say it")),
            "overrides": int(found.get("overrides", 0)),
            "pending_count": int(found.get("pending_count", 0)),
        }
    except (ValueError, KeyError, TypeError) as error:
        raise BrokerError(f"{place.url}/health/ready did not answer as a node does") from error


def node_figures(node: dict[str, Any], ready: dict[str, Any]) -> dict[str, str]:
    """The figures of a node that ``status`` prints, by their names.

    Args:
        node: Answer of ``/api/v1/node``.
        ready: Answer of ``readiness_of``.
    """
    ha, store, following, peer = node["ha"], node["store"], node["following"], node["peer"]
    queues = node["queues"]
    figures = {
        "state": _state_text(ha),
        "ready": ("yes" if ready["ready"] else "no") + (f": {ready['reason']}" if ready["reason"] else ""),
        "protection": ready["protection"],
        "configured as": ", ".join(dict.fromkeys((ha["role"], ha["policy"]))),
        "node id": node["node_id"] or "unknown",
        "epoch": "none" if node["epoch"] is None else str(node["epoch"]),
        "waiting because": ha.get("waiting_because"),
        "lock manager": _manager_text(ha.get("without_lock_manager")),
        "promoted": _promotion_text(node.get("promotion")),
        "earlier data": _earlier_text(node.get("earlier_data")),
        "peer": "none known" if peer is None else f"{peer['role']} at {shown_peer(peer)}",
        "activation": _activation_text(node.get("activation")),
        "following": None
        if following is None
        else ("caught up" if following["caught_up"] else f"lag of {format_bytes(following['lag_bytes'])}"),
        "store": None
        if store is None
        else f"{format_bytes(store['bytes'])} in {counted(store['segments'], 'segment')} at {store['directory']}"
        + (" — FULL" if store["full"] else ""),
        "scrub": _scrub_text(node.get("scrub"), ha),
        "acceptors": ", ".join(acceptor["url"] for acceptor in node["acceptors"]) or "none",
        "certificates": ", ".join(
            _certificate_text(acceptor) for acceptor in node["acceptors"] if acceptor.get("certificate")
        )
        or None,
        "configuration": _configuration_text(node),
        "kernel": f"{node['kernel']['active']} ({node['kernel']['reason']})",
        "connections": f"{node['connections']:,} with {counted(node['sessions'], 'session')}",
        "queues": f"{len(queues):,} with {counted(sum(queue['message_count'] for queue in queues), 'message')}",
        "up": f"{format_duration_ms(node['uptime_ms'])}, process {node['pid']}",
    }
    return {name: value for name, value in figures.items() if value is not None}


def _state_text(ha: Mapping[str, Any]) -> str:
    """The state of a node, with that of its machine where it says more."""
    state, machine = str(ha["state"]), str(ha["machine_state"]).lower().replace("_", " ")
    return state if machine == state else f"{state} ({machine})"


def shown_peer(peer: Mapping[str, Any]) -> str:
    """Name and address of the other node of a pair; only the address if it has stated no name."""
    name, connector = peer.get("name"), str(peer["connector"])
    return connector if name is None else f"{name} ({connector})"


def _earlier_text(earlier: dict[str, Any] | None) -> str | None:
    """Data that was moved away; None if the active node has all of it."""
    if earlier is None or not earlier["records"]:
        return None
    return (
        f"{counted(earlier['records'], 'record')} with {counted(earlier['messages'], 'message')} from epoch"
        f" {earlier['epoch']}, sequence {earlier['sequence']} on are only in {earlier['directory']}"
    )


def _promotion_text(promotion: dict[str, Any] | None) -> str | None:
    """The newest promotion; None if there was none."""
    if promotion is None:
        return None
    numbers = f"activation sequence {promotion['before']} became {promotion['sequence']}"
    known = promotion["newest_known"]
    return f"{numbers}; newest known then: {'unknown' if known is None else known}"


def _manager_text(without: dict[str, Any] | None) -> str | None:
    """Shown while the pair runs on the promise of its replica."""
    if without is None:
        return None
    since = f"without its lock manager {without['manager']} since {without['for_ms'] / 1000:.0f} s"
    return f"{since}, on the promise of the replica: {without['reason']}"


def _scrub_text(scrub: dict[str, Any] | None, ha: dict[str, Any]) -> str | None:
    """The comparison of the files of the store with their checksums; None if there is none and none is missing."""
    if scrub is None:
        passive = ha["state"] == "passive" and ha["policy"] == "shared-store"
        return "by the active node, which has the same files" if passive else None
    age_ms = scrub["age_ms"]
    last = "no complete pass yet" if age_ms is None else f"last complete pass {age_ms / 3_600_000:.1f} h ago"
    now = f"; a pass is under way, {format_bytes(scrub['pass_bytes'])} read" if scrub["running"] else ""
    return f"{last}{now}; {counted(scrub['damaged'], 'damaged file')} found, {scrub['repaired']} repaired"


def _certificate_text(acceptor: dict[str, Any]) -> str:
    certificate = acceptor["certificate"]
    days = certificate["days_until_expiration"]
    validity = f"expires in {counted(days, 'day')}" if days >= 0 else "EXPIRED"
    return f"{acceptor['name']}: {certificate['subject']}, {validity}"


def _configuration_text(node: dict[str, Any]) -> str | None:
    """Changes of the management CLI, and changed elements that the node does not use yet."""
    return configuration_text(node.get("overrides", 0), ", ".join(node.get("pending", [])))


def configuration_text(overrides: int, pending: str) -> str | None:
    """Changes of the management CLI, and the elements that wait for a restart in words; None without both."""
    texts = [f"changes of the management CLI override broker.xml ({overrides})"] if overrides else []
    if pending:
        texts.append(f"used after a restart or reload: {pending}")
    return "; ".join(texts) or None


def _activation_text(activation: dict[str, Any] | None) -> str | None:
    """The step under way and the steps that took a millisecond or more; None if there is no activation."""
    if activation is None:
        return None
    steps = ", ".join(f"{step['name']} {step['took_ms']} ms" for step in activation["steps"] if step["took_ms"])
    if activation["step"] is None:
        begun = f"{activation['took_ms']} ms"
    else:
        begun = f"{'undoing' if activation['undoing'] else 'doing'} {activation['step']!r}"
    return f"{begun}: {steps}" if steps else begun


@click.command()
@instance_option
@server_option
@url_option
@token_file_option
@click.option("--failover", is_flag=True, help="Let the peer take over (asked over HTTP).")
@click.option(
    "--timeout", "timeout_s", type=click.FloatRange(0.1, 3600), default=60, show_default=True, help="Seconds."
)
def stop(
    instance: Path | None,
    server: str | None,
    url: str | None,
    token_file: Path | None,
    failover: bool,
    timeout_s: float,
) -> None:
    """Stop a node cleanly and wait for its end.

    With --instance the process gets SIGTERM and stops all its servers; with --url, with --server, or with --failover,
    the node is asked over HTTP. Exit codes: 0 stopped, 3 it was not running, 4 still running after --timeout.

    \b
    Example: understudy stop --instance /srv/broker --failover
    """
    deadline = time.monotonic() + timeout_s
    if instance is None and url is None:
        instance = default_directory(os.environ)
    if instance is None or url is not None or server is not None:
        place = Place.only(instance, url, token_file, server)
        place.ask("/api/v1/node/stop", body={"failover": failover})
        _wait_silent(place, deadline)
    else:
        if failover and len(Place.of(instance, None, token_file).ask("/api/v1/servers")["servers"]) > 1:
            raise ConfigError("the instance has several servers: --server says which one fails over")
        _stop_process(instance, Place.of(instance, None, token_file) if failover else None, deadline)
    echo("stopped")


def _wait_silent(place: Place, deadline: float) -> None:
    """Wait until there is no answer any more."""
    while True:
        try:
            place.ask("/health/live")
        except Unreachable:
            return
        if time.monotonic() > deadline:
            raise CallTimedOut(f"{place.url} still answers")
        time.sleep(STOP_POLL_MS / 1000)


def _stop_process(instance: Path, place: Place | None, deadline: float) -> None:
    """End the process of an instance. Its descriptor, not its number, is signalled and waited
    for, so that a number that the kernel has given to another process is never hit.
    """
    path = instance / "run" / "understudy.pid"
    try:
        text = _read_file(path).strip()
        written_ms = path.stat().st_mtime_ns // 1_000_000
    except FileNotFoundError:
        raise Unreachable(f"no node runs from {instance}: {path} does not exist") from None
    if not (text.isascii() and text.isdecimal()) or not 1 < int(text) < 2**31:
        raise ConfigError(f"{text[:20]!r} is no process id", file=str(path))
    pid = int(text)
    try:
        descriptor = os.pidfd_open(pid)
    except ProcessLookupError:
        raise Unreachable(f"process {pid} of {path} has ended") from None
    except OSError as error:
        raise BrokerError(f"process {pid}: {error.strerror}") from error
    try:
        started_ms = started_at_ms(pid)
        if started_ms is None or started_ms > written_ms + START_TOLERANCE_MS:
            raise Unreachable(f"process {pid} is younger than {path}: the node has ended, another program has its id")
        if place is not None:
            place.ask("/api/v1/node/stop", body={"failover": True})
        else:
            signal.pidfd_send_signal(descriptor, signal.SIGTERM)
        wait_s = max(0.0, deadline - time.monotonic())
        if not select.select([descriptor], [], [], wait_s)[0]:
            raise CallTimedOut(f"process {pid} still runs")
    except ProcessLookupError:
        return
    except PermissionError as error:
        raise BrokerError(f"process {pid} may not be signalled: {error.strerror}") from error
    finally:
        os.close(descriptor)


def started_at_ms(pid: int) -> int | None:
    """Wall time in ms at which a process started; None when it has ended."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        boot = next(line for line in Path("/proc/stat").read_text().splitlines() if line.startswith("btime "))
    except (FileNotFoundError, ProcessLookupError):
        return None
    ticks = int(fields[19])
    return int(boot.split()[1]) * 1000 + ticks * 1000 // os.sysconf("SC_CLK_TCK")
