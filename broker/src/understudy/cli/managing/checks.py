"""``understudy check``: one line and an exit code for monitors, of a node, its pair, a queue, disk, memory and more."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from enum import IntEnum
from functools import wraps
from typing import Any, NamedTuple, TypeVar

import click
from click.core import ParameterSource

from understudy.cli.managing.places import item, node_options, require_active
from understudy.cli.node.status import Place, readiness_of
from understudy.cli.terminal import Commands, echo
from understudy.errors import BrokerError
from understudy.texts import counted

F = TypeVar("F", bound=Callable[..., Any])


class Grade(IntEnum):
    """Outcomes with the exit codes that monitoring plugins have."""

    OK = 0
    WARNING = 1
    CRITICAL = 2
    UNKNOWN = 3


class Found(NamedTuple):
    """The outcome of a check."""

    grade: Grade
    text: str


class _Checks(Commands):
    """A group whose usage errors are UNKNOWN: their usual exit code would tell a monitor that the node is critical."""

    def make_context(
        self, info_name: str | None, args: list[str], parent: click.Context | None = None, **extra: Any
    ) -> click.Context:
        """The context of the group. Raises click.UsageError with the exit code of UNKNOWN."""
        with _unknown_if_misused():
            return super().make_context(info_name, args, parent, **extra)

    def invoke(self, ctx: click.Context) -> Any:
        """Carry out the check. Raises click.UsageError with the exit code of UNKNOWN."""
        with _unknown_if_misused():
            return super().invoke(ctx)


@contextmanager
def _unknown_if_misused() -> Iterator[None]:
    try:
        yield
    except click.UsageError as error:
        error.exit_code = Grade.UNKNOWN  # type: ignore[misc]  # click reads it from the error that it shows
        raise


@click.group(cls=_Checks)
def check() -> None:
    """Check a node for a monitor: one line, and exit code 0 OK, 1 WARNING, 2 CRITICAL or 3 UNKNOWN."""


def _reporting(command: Callable[..., Found]) -> Callable[..., None]:
    """Print the outcome and exit with its code; a node that does not answer, or cannot be asked, is UNKNOWN.

    It stands above the options of the place, because no node may run from an instance directory.
    """

    @wraps(command)
    def reported(**options: Any) -> None:
        try:
            found = command(**options)
        except BrokerError as error:
            found = Found(Grade.UNKNOWN, str(error))
        echo(f"{found.grade.name} - {found.text}")
        raise SystemExit(found.grade)

    return reported


def _graded(value: float, warning: float, critical: float, text: str) -> Found:
    given = click.get_current_context().get_parameter_source("warning") is not ParameterSource.DEFAULT
    if given and warning > critical:
        raise click.UsageError(f"--warning {warning:g} is above --critical {critical:g}: it would never be reached")
    grade = Grade.CRITICAL if value >= critical else Grade.WARNING if value >= warning else Grade.OK
    return Found(grade, text)


def _limits(warning: float, critical: float, unit: str) -> Callable[[F], F]:
    """``--warning`` and ``--critical``."""

    def decorate(command: F) -> F:
        for name, default in (("critical", critical), ("warning", warning)):
            command = click.option(f"--{name}", type=float, default=default, show_default=True, help=unit)(command)
        return command

    return decorate


@check.command()
@_reporting
@node_options
def node(place: Place) -> Found:
    """Whether the node is ready: active, or passive and able to take over.

    \b
    Example: understudy check node --url http://127.0.0.1:8161
    """
    ready = readiness_of(place)
    reason = f": {ready['reason']}" if ready["reason"] else ""
    return Found(Grade.OK if ready["ready"] else Grade.CRITICAL, f"{ready['state']}{reason}")


@check.command()
@_reporting
@node_options
def pair(place: Place) -> Found:
    """Whether another node takes over if the active one fails; CRITICAL if not.

    \b
    Example: understudy check pair --url http://127.0.0.1:8161
    """
    ready = readiness_of(place)
    return Found(Grade.OK if ready["protected"] else Grade.CRITICAL, f"{ready['state']}: {ready['protection']}")


@check.command()
@_reporting
@node_options
@click.argument("name")
@_limits(1_000, 10_000, "Messages of the queue from which the check is of this grade.")
@click.option("--consumers", type=click.IntRange(min=0), default=0, show_default=True, help="CRITICAL with fewer.")
def queue(place: Place, name: str, warning: float, critical: float, consumers: int) -> Found:
    """Messages and consumers of queue NAME.

    \b
    Example: understudy check queue orders --warning 100 --critical 1000 --consumers 1
    """
    require_active(place)
    found = item(place, "queues", name)
    count, served = found["message_count"], found["consumer_count"]
    text = f"{name}: {counted(count, 'message')}, {counted(served, 'consumer')}"
    if served < consumers:
        return Found(Grade.CRITICAL, text)
    return _graded(count, warning, critical, text)


def _attribute(place: Place, name: str) -> Any:
    require_active(place)
    return place.ask("/api/v1/invoke", body={"resource": "broker", "attribute": name})["result"]


@check.command()
@_reporting
@node_options
@_limits(80, 90, "Used percent of the disk from which the check is of this grade.")
def disk(place: Place, warning: float, critical: float) -> Found:
    """Used part of the disk of the store, and the part above which producers are blocked.

    \b
    Example: understudy check disk --warning 70 --critical 85
    """
    used, limit = float(_attribute(place, "DiskStoreUsage")) * 100, _attribute(place, "MaxDiskUsage")
    return _graded(used, warning, critical, f"{used:.1f} % used, producers are blocked from {limit} % on")


@check.command()
@_reporting
@node_options
@_limits(80, 95, "Used percent of global-max-size from which the check is of this grade.")
def memory(place: Place, warning: float, critical: float) -> Found:
    """Used part of the memory for bodies of messages (global-max-size).

    \b
    Example: understudy check memory
    """
    used = int(_attribute(place, "AddressMemoryUsagePercentage"))
    return _graded(used, warning, critical, f"{used} % of global-max-size used")


@check.command()
@_reporting
@node_options
@click.option("--warning", type=int, default=30, show_default=True, help="WARNING with fewer days left.")
@click.option("--critical", type=int, default=7, show_default=True, help="CRITICAL with fewer days left.")
def certificate(place: Place, warning: int, critical: int) -> Found:
    """Days until the certificates of the acceptors end.

    \b
    Example: understudy check certificate --warning 60
    """
    page = place.ask("/api/v1/acceptors?size=500")["items"]
    left = {each["name"]: each["certificate"]["days_until_expiration"] for each in page if each["certificate"]}
    if not left:
        return Found(Grade.OK, "no acceptor has TLS")
    days = min(left.values())
    grade = Grade.CRITICAL if days < critical else Grade.WARNING if days < warning else Grade.OK
    return Found(grade, ", ".join(f"{name}: {_left(each)}" for name, each in left.items()))


def _left(days: int) -> str:
    return f"{counted(days, 'day')} left" if days >= 0 else f"expired {counted(-days, 'day')} ago"


@check.command()
@_reporting
@node_options
@click.option("--members", type=click.IntRange(min=1), default=1, show_default=True, help="CRITICAL with fewer.")
def cluster(place: Place, members: int) -> Found:
    """Members of the cluster, and connections to them that are not established.

    \b
    Example: understudy check cluster --members 3
    """
    found = place.ask("/api/v1/cluster")
    if found["state"] is None:
        return Found(Grade.WARNING, "the node has no cluster-connection")
    down = [each["to"] for each in found["links"] if each["state"] != "JOINED"]
    down += [each["address"] for each in found["unreached"]]
    text = counted(len(found["members"]), "member") + (f", not connected: {', '.join(down)}" if down else "")
    if len(found["members"]) < members:
        return Found(Grade.CRITICAL, text)
    return Found(Grade.WARNING if down else Grade.OK, text)
