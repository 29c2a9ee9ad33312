"""Lines that wait for others: whatever their order, a start always finds a usable configuration (ADR 0181)."""

from __future__ import annotations

import functools
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from hypothesis import given, settings
from hypothesis import strategies as st

from support.dmr import SERVER, Configured
from understudy.config.model import Configuration
from understudy.errors import BrokerError, ConfigError

#: Lines that are usable together; each names something that another one makes, or is named.
LAYOUT = (
    "/interface=public:add(inet-address=127.0.0.1)",
    "/socket-binding-group=sockets:add(default-interface=public, port-offset=10)",
    "/socket-binding-group=sockets/socket-binding=messaging:add(port=5445)",
    f"{SERVER}/remote-acceptor=netty:add(socket-binding=messaging)",
    f"{SERVER}/remote-connector=netty:add(socket-binding=messaging)",
    f"{SERVER}/cluster-connection=my-cluster:write-attribute(name=connector-name, value=netty)",
    f"{SERVER}/ha-policy=replication-master:add(cluster-name=other)",
    f"{SERVER}/cluster-connection=other:add(connector-name=netty, cluster-connection-address=jms)",
    "/path=shared:add(path=/mnt/shared)",
    f"{SERVER}/path=journal-directory:write-attribute(name=relative-to, value=shared)",
)
#: Lines that take something of it away again.
UNDOING = (
    f"{SERVER}/remote-acceptor=netty:remove",
    f"{SERVER}/remote-connector=netty:remove",
    f"{SERVER}/cluster-connection=other:remove",
    f"{SERVER}/ha-policy=replication-master:remove",
    "/socket-binding-group=sockets/socket-binding=messaging:remove",
    "/path=shared:remove",
)


@contextmanager
def configured() -> Iterator[Configured]:
    with tempfile.TemporaryDirectory() as directory:
        yield Configured(Path(directory))


def whole(found: Configured) -> Configuration:
    """The configuration with every change. Raises ConfigError."""
    return found.source.load(overrides=found.overrides).configuration


@settings(max_examples=8, deadline=None)
@given(st.lists(st.sampled_from((*LAYOUT, *UNDOING)), max_size=8))
def test_what_counts_is_usable_after_every_line(lines: list[str]) -> None:
    with configured() as found:
        for line in lines:
            before = found.overrides
            try:
                answer = found.carry_out(line)
            except BrokerError:
                # a refused line changes nothing
                assert found.overrides == before
                continue
            assert found.loaded.configuration.name == "node"
            assert bool(found.waiting) == _is_incomplete(found)
            headers = answer.get("response-headers", {})
            assert isinstance(headers, dict)
            if "warnings" in headers:
                assert found.waiting


def _is_incomplete(found: Configured) -> bool:
    """Whether the reader refuses all changes together, only because a name is missing."""
    try:
        whole(found)
    except ConfigError as error:
        return error.names_missing
    return False


@settings(max_examples=8, deadline=None)
@given(st.permutations(LAYOUT))
def test_every_order_of_the_lines_of_a_layout_gives_the_same_configuration(lines: list[str]) -> None:
    with configured() as found:
        for line in _possible(lines):
            found.carry_out(line)
        assert found.waiting == ()
        assert _shown(found) == _wanted()


@functools.cache
def _wanted() -> tuple[object, ...]:
    """The configuration that the lines make in the order in which they stand."""
    with configured() as found:
        for line in LAYOUT:
            found.carry_out(line)
        assert found.waiting == ()
        return _shown(found)


def _possible(lines: list[str]) -> list[str]:
    """The lines in an order in which a resource is added after the one that it is below."""
    group = "/socket-binding-group=sockets:add(default-interface=public, port-offset=10)"
    binding = "/socket-binding-group=sockets/socket-binding=messaging:add(port=5445)"
    if lines.index(binding) < lines.index(group):
        first, second = lines.index(binding), lines.index(group)
        lines[first], lines[second] = lines[second], lines[first]
    return lines


def _shown(found: Configured) -> tuple[object, ...]:
    loaded = found.loaded.configuration
    return (
        sorted((each.name, each.host, each.port) for each in loaded.acceptors),
        sorted((each.name, each.url) for each in loaded.connectors),
        sorted((each.name, each.connector_ref) for each in loaded.cluster_connections),
        loaded.ha_policy,
        loaded.journal_directory,
        sorted(each.target.path for each in found.overrides),
    )
