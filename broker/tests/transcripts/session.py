"""Transcripts of sessions: a whole node, and a peer that talks to it in CORE packets.

The node is the shipped ``BrokerNode`` on a simulated disk, network and clock; the peer sends one packet when a command
says so, and shows every packet that it gets until the node is idle. Messages are named by their bodies.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any, Final

from transcripts.script import arguments, options
from understudy import message as names
from understudy.config.reading.reader import read_broker_xml
from understudy.errors import XaCode
from understudy.ids import Xid
from understudy.message import Message
from understudy.runtime.management.node_view import LiveNodeView
from understudy.runtime.node.node import BrokerNode
from understudy.security.authorization import NoSecurity
from understudy.testing.sim.environment import Skew
from understudy.testing.sim.loop import SimLoop, SimProcess
from understudy.testing.sim.network import Conditions, SimNetwork
from understudy.testing.sim.storage import CrashPoint, SharedStorage, StorageConditions
from understudy.wire.core import packets
from understudy.wire.core.codec import FrameDecoder, encode

PORT: Final = 61616
SEGMENT_BYTES: Final = 64 * 1024
#: Virtual time that the node has for each command, in seconds. Longer than any of its steps, shorter than its timers.
TURN_S: Final = 0.09

_XML: Final = """\
<configuration xmlns="urn:activemq">
  <core xmlns="urn:activemq:core">
    <name>node</name>
    <security-enabled>false</security-enabled>
    <bindings-directory>/store/bindings</bindings-directory>
    <journal-directory>/store/journal</journal-directory>
    <large-messages-directory>/store/large-messages</large-messages-directory>
    <paging-directory>/store/paging</paging-directory>
    <connection-ttl-override>86400000</connection-ttl-override>
    <message-expiry-scan-period>1000</message-expiry-scan-period>
    <acceptors><acceptor name="core">tcp://0.0.0.0:61616</acceptor></acceptors>
    {elements}
    <diverts>{diverts}</diverts>
    <addresses>{addresses}</addresses>
    <address-settings>{settings}</address-settings>
  </core>
</configuration>
"""


class _Peer(asyncio.Protocol):
    """One connection of the peer."""

    def __init__(self) -> None:
        self.received: list[tuple[int, packets.Packet]] = []
        self.closed = False
        self._decoder = FrameDecoder("client")
        self._transport: asyncio.Transport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport
        transport.write(b"ARTEMIS")

    def data_received(self, data: bytes) -> None:
        self.received += [(frame.channel_id, frame.packet) for frame in self._decoder.receive_data(data)]

    def connection_lost(self, exc: Exception | None) -> None:
        self.closed = True

    def send(self, packet: packets.Packet, channel_id: int) -> None:
        """Write one packet."""
        assert self._transport is not None
        self._transport.write(encode(packet, channel_id))

    def abort(self) -> None:
        """Cut the connection."""
        assert self._transport is not None
        self._transport.abort()


class _Session:
    """One session of the peer."""

    def __init__(self, name: str, connection: str, channel_id: int) -> None:
        self.name = f"{channel_id:08d}-0000-1111-2222-333344445555"
        self.shown = name
        self.connection = connection
        self.channel_id = channel_id
        self.received = 0
        """Packets of the channel that count for a reattachment (artemis-core s. 7.1)."""
        self.waiting: dict[int, str] = {}
        """Correlation id to the name of the command that waits for its answer."""


class SessionDriver:
    """The node and its peer. Implements ``script.Driver``."""

    def __init__(self) -> None:
        self.loop = SimLoop(1)
        SimNetwork(self.loop, Conditions(0.0001, 0.0001, 0.0, 0.0, 0.0)).add_host("node")
        self.loop.network.add_host("peer")
        self._storage = SharedStorage(self.loop, StorageConditions(step_ms_max=0))
        self._peer_process = self.loop.new_process("peer")
        self._process: SimProcess | None = None
        self._node: BrokerNode | None = None
        self._queues: dict[str, dict[str, str]] = {}
        """Address to routing type to its queues, as XML."""
        self._settings: list[str] = []
        self._elements: list[str] = []
        self._diverts: list[str] = []
        self._connections: dict[str, _Peer] = {}
        self._sessions: dict[str, _Session] = {}
        self._ids: dict[str, int] = {}
        """Body to message id, as last received."""
        self._channels = 10
        self._correlation = 0
        self._lines: list[str] = []

    def close(self) -> None:
        """See ``script.Driver``."""
        self.loop.close()

    def command(self, words: list[str]) -> Iterator[str]:
        """See ``script.Driver``."""
        name, *rest = words
        work = getattr(self, "_" + name.replace("-", "_") + "_command", None)
        if work is None:
            raise ValueError(f"no command {name}")
        work(*arguments(rest), **options(rest))
        if self._process is not None or self._connections:
            self._run(TURN_S)
            self._show_received()
        if self.loop.failures:
            raise ValueError(str(self.loop.failures[0]))
        lines, self._lines = self._lines, []
        yield from lines

    def _run(self, duration_s: float) -> None:
        self.loop.run_until(deadline=self.loop.time() + duration_s)

    # --- configuration and life ----------------------------------------------------------------

    def _queue_command(self, name: str, *, address: str = "", routing: str = "anycast", **attributes: str) -> None:
        """``queue NAME [address=A] [routing=multicast] [ATTRIBUTE=VALUE …]``: in the configuration."""
        written = attributes.pop("filter", "")
        inner = f'<filter string="{written}"/>' if written else ""
        shown = "".join(f' {key}="{value}"' for key, value in attributes.items())
        queues = self._queues.setdefault(address or name, {})
        queues[routing] = queues.get(routing, "") + f'<queue name="{name}"{shown}>{inner}</queue>'

    def _setting_command(self, match: str, **elements: str) -> None:
        """``setting MATCH ELEMENT=VALUE …``: an address setting."""
        inner = "".join(f"<{key}>{value}</{key}>" for key, value in elements.items())
        self._settings.append(f'<address-setting match="{match}">{inner}</address-setting>')

    def _divert_command(self, name: str, source: str, target: str, *, exclusive: str = "false") -> None:
        """``divert NAME FROM TO [exclusive=true]``."""
        inner = f"<address>{source}</address><forwarding-address>{target}</forwarding-address>"
        self._diverts.append(f'<divert name="{name}">{inner}<exclusive>{exclusive}</exclusive></divert>')

    def _element_command(self, **elements: str) -> None:
        """``element NAME=VALUE``: of ``core``."""
        self._elements += [f"<{key}>{value}</{key}>" for key, value in elements.items()]

    def _start_command(self) -> None:
        """Start the node on the store."""
        addresses = ""
        for address, queues in self._queues.items():
            inner = "".join(f"<{routing}>{each}</{routing}>" for routing, each in queues.items())
            addresses += f'<address name="{address}">{inner}</address>'
        text = _XML.format(
            addresses=addresses,
            settings="".join(self._settings),
            elements="".join(self._elements),
            diverts="".join(self._diverts),
        )
        configuration = read_broker_xml(text.encode(), file="broker.xml").configuration
        # smaller than the file may ask for: a start reads the segment to its end
        configuration = replace(configuration, journal_file_size_bytes=SEGMENT_BYTES)
        process = self._process = self.loop.new_process("node")
        process.on_death(lambda death: self._storage.process_died(process, death))

        async def run() -> None:
            crash_point = CrashPoint(self.loop.random("crash"))
            environment = self._storage.environment(process, Skew(), crash_point, lambda at_s: None)
            self._node = BrokerNode(configuration, environment, NoSecurity())
            await self._node.start()

        process.create_task(run())
        self._run(1)
        assert self._node is not None
        self._lines.append(f"node: {self._node.state}")

    def _crash_command(self) -> None:
        """Kill the process of the node."""
        assert self._process is not None
        self._process.kill()
        self._process = self._node = None

    def _advance_command(self, seconds: str) -> None:
        """``advance SECONDS``."""
        self._run(float(seconds))

    # --- connections and sessions --------------------------------------------------------------

    def _connect_command(self, name: str) -> None:
        """``connect CONNECTION``."""
        peer = _Peer()

        async def connect() -> None:
            await self.loop.create_connection(lambda: peer, "node", PORT)

        self._peer_process.create_task(connect())
        self._connections[name] = peer

    def _cut_command(self, name: str) -> None:
        """Cut a connection without a word."""
        self._connections.pop(name).abort()

    def _session_command(self, name: str, connection: str, **chosen: str) -> None:
        """``session SESSION CONNECTION [transacted=yes] [xa=yes] [window=BYTES] [started=no]``."""
        session = self._sessions[name] = _Session(name, connection, self._channels)
        self._channels += 1
        transacted = chosen.get("transacted") == "yes" or chosen.get("xa") == "yes"
        create = packets.CreateSession(
            name=session.name,
            session_channel_id=session.channel_id,
            version=136,
            xa=chosen.get("xa") == "yes",
            auto_commit_sends=not transacted,
            auto_commit_acks=not transacted,
            confirmation_window=int(chosen.get("window", "-1")),
            pre_acknowledge=chosen.get("pre_acknowledge") == "yes",
        )
        self._connections[connection].send(create, 1)
        if chosen.get("started") != "no":
            self._send(name, packets.SessionStart())

    def _reattach_command(self, name: str, connection: str, missing: str = "0") -> None:
        """``reattach SESSION CONNECTION [missing=N]``: go on with a session on another connection; the client says that
        it has received all packets of the session but the last N.
        """
        session = self._sessions[name]
        session.connection = connection
        last = session.received - int(missing) - 1
        self._connections[connection].send(packets.ReattachSession(session.name, last), 1)

    def _session_start_command(self, session: str) -> None:
        self._send(session, packets.SessionStart())

    def _session_stop_command(self, session: str) -> None:
        self._send(session, packets.SessionStop())

    def _close_session_command(self, session: str) -> None:
        self._send(session, packets.SessionClose())

    def _send(self, session: str, packet: packets.Packet) -> None:
        found = self._sessions[session]
        self._connections[found.connection].send(packet, found.channel_id)

    def _awaited(self, session: str, what: str) -> int:
        """A new correlation id; its answer is shown with that text."""
        self._correlation += 1
        self._sessions[session].waiting[self._correlation] = what
        return self._correlation

    # --- producers -----------------------------------------------------------------------------

    def _send_command(self, session: str, body: str, address: str, **chosen: str) -> None:
        """``send SESSION BODY ADDRESS [durable=no] [priority=N] [expires=SECONDS] [delay=SECONDS] [duplicate=ID]
        [group=G] [last-value=KEY] [size=BYTES] [PROPERTY=VALUE …]``; ``{now}`` is the body's number.
        """
        now_ms = self._now_ms()
        properties: dict[str, Any] = {}
        if "delay" in chosen:
            properties[names.SCHEDULED_DELIVERY] = now_ms + round(float(chosen.pop("delay")) * 1000)
        for key, name in _PROPERTIES.items():
            if key in chosen:
                properties[name] = chosen.pop(key)
        expires = chosen.pop("expires", "")
        fields = {
            "durable": chosen.pop("durable", "yes") == "yes",
            "priority": int(chosen.pop("priority", "4")),
            "expiration": now_ms + round(float(expires) * 1000) if expires else 0,
        }
        text = body.ljust(int(chosen.pop("size", "0")), ".")
        properties |= {key: int(value) if value.isdecimal() else value for key, value in chosen.items()}
        message = Message(text.encode(), address=address, properties=properties, **fields)  # type: ignore[arg-type]
        self._send(session, packets.SessionSend(message, True, self._awaited(session, f"send {body}"), 1))

    def _want_credits_command(self, session: str, address: str, count: str) -> None:
        """``want-credits SESSION ADDRESS BYTES``: a producer asks for credits."""
        self._send(session, packets.ProducerRequestCredits(int(count), address))

    # --- consumers -----------------------------------------------------------------------------

    def _consume_command(self, session: str, consumer: str, queue: str, **chosen: str) -> None:
        """``consume SESSION CONSUMER QUEUE [credits=BYTES] [filter=TEXT] [browse=yes]``; by default without limit."""
        browse = chosen.get("browse") == "yes"
        self._send(session, packets.CreateConsumer(int(consumer), queue, chosen.get("filter"), browse, True, 0))
        self._send(session, packets.FlowToken(int(consumer), int(chosen.get("credits", "-1"))))

    def _credits_command(self, session: str, consumer: str, count: str) -> None:
        self._send(session, packets.FlowToken(int(consumer), int(count)))

    def _force_command(self, session: str, consumer: str, sequence: str) -> None:
        """``force SESSION CONSUMER N``: ask for a message now, or the answer that there is none."""
        self._send(session, packets.ForceConsumerDelivery(int(consumer), int(sequence)))

    def _ack_command(self, session: str, consumer: str, body: str, only: str = "no") -> None:
        """``ack SESSION CONSUMER BODY [only=yes]``: everything up to a message, or it alone."""
        kind = packets.IndividualAcknowledge if only == "yes" else packets.Acknowledge
        self._send(session, kind(int(consumer), self._ids[body], True))

    def _expire_command(self, session: str, consumer: str, body: str) -> None:
        """``expire SESSION CONSUMER BODY``: the client found the message expired."""
        self._send(session, packets.Expired(int(consumer), self._ids[body]))

    def _close_consumer_command(self, session: str, consumer: str) -> None:
        self._send(session, packets.ConsumerClose(int(consumer)))

    # --- transactions --------------------------------------------------------------------------

    def _commit_command(self, session: str) -> None:
        self._send(session, packets.Commit(self._awaited(session, "commit")))

    def _rollback_command(self, session: str, considered: str = "no") -> None:
        """``rollback SESSION [considered=yes]``: the last message counts as delivered."""
        self._send(session, packets.Rollback(considered == "yes"))

    def _xa_command(self, session: str, verb: str, branch: str = "", **chosen: str) -> None:
        """``xa SESSION VERB [BRANCH] [one_phase=yes] [failed=yes]``; the verbs are below."""
        xid = Xid(1, branch.encode(), b"b")
        made: dict[str, Callable[[], packets.Packet]] = {
            "start": lambda: packets.XaStart(xid),
            "end": lambda: packets.XaEnd(xid, chosen.get("failed") == "yes"),
            "join": lambda: packets.XaJoin(xid),
            "suspend": packets.XaSuspend,
            "resume": lambda: packets.XaResume(xid),
            "prepare": lambda: packets.XaPrepare(xid),
            "commit": lambda: packets.XaCommit(xid, chosen.get("one_phase") == "yes"),
            "rollback": lambda: packets.XaRollback(xid),
            "forget": lambda: packets.XaForget(xid),
            "in-doubt": packets.XaInDoubt,
        }
        self._send(session, made[verb]())

    # --- looking -------------------------------------------------------------------------------

    def _queues_command(self, *wanted: str) -> None:
        """Every queue with its counts, those of the node itself left out."""
        assert self._node is not None
        for facts in LiveNodeView(self._node).rows("queues").items():
            if wanted and facts.name not in wanted:
                continue
            counts = {
                "consumers": facts.consumer_count,
                "in delivery": facts.delivering_count,
                "acknowledged": facts.messages_acknowledged,
                "expired": facts.messages_expired,
                "killed": facts.messages_killed,
                "replaced": facts.messages_replaced,
            }
            shown = "".join(f", {count} {name}" for name, count in counts.items() if count)
            self._lines.append(f"queue {facts.name}: {facts.message_count} messages{shown}")

    def _now_ms(self) -> int:
        assert self._node is not None
        return self._node.environment.clock.wall_ms()

    def _show_received(self) -> None:
        for name, peer in list(self._connections.items()):
            received, peer.received = peer.received, []
            for channel_id, packet in received:
                session = next((each for each in self._sessions.values() if each.channel_id == channel_id), None)
                if session is not None and packet.counts_as_command:
                    session.received += 1
                text = self._shown(session, packet)
                if text:
                    self._lines.append(f"{session.shown if session is not None else name} <- {text}")
            if peer.closed:
                self._lines.append(f"{name} closed by the node")
                del self._connections[name]

    def _shown(self, session: _Session | None, packet: packets.Packet) -> str:
        correlation = getattr(packet, "correlation_id", -1)
        about = session.waiting.pop(correlation, "") if session is not None and correlation is not None else ""
        if isinstance(packet, packets.NullResponse):
            return f"done: {about}" if about else "done"
        if isinstance(packet, packets.ExceptionResponse):
            return f"error {packet.error_code}: {packet.message}" + (f" ({about})" if about else "")
        if isinstance(packet, packets.ReceiveMessage):
            return self._delivery(packet)
        if isinstance(packet, packets.XaResponse):
            code = XaCode(packet.response_code).name if packet.response_code in set(XaCode) else packet.response_code
            return f"XA {code}" + (f": {packet.message}" if packet.message else "")
        if isinstance(packet, packets.XaInDoubtResponse):
            return "in doubt: " + (", ".join(xid.global_transaction_id.decode() for xid in packet.xids) or "none")
        if isinstance(packet, packets.PacketsConfirmed):
            return f"packets up to {packet.command_id} are confirmed"
        if isinstance(packet, packets.ReattachSessionResponse):
            answer = f"reattached, packets up to {packet.last_confirmed_command_id} were received"
            return answer if packet.reattached else "not reattached"
        if isinstance(packet, packets.ProducerCredits):
            return f"{packet.credits} credits for {packet.address}"
        if isinstance(packet, packets.ProducerFailCredits):
            return f"{packet.credits} credits refused for {packet.address}"
        if isinstance(packet, packets.DisconnectConsumer):
            return f"consumer {packet.consumer_id} is closed"
        if isinstance(packet, packets.CreateSessionResponse):
            return "session created"
        if isinstance(packet, packets.QueueQueryResponse):
            return ""
        return type(packet).__name__

    def _delivery(self, packet: packets.ReceiveMessage) -> str:
        message = packet.message
        properties = dict(message.properties.items())
        if names.FORCED_DELIVERY in properties:
            return f"no message (forced delivery {properties[names.FORCED_DELIVERY]!r})"
        body = message.body.decode().rstrip(".")
        self._ids[body] = message.message_id
        hidden = {names.ORIGINAL_MESSAGE_ID, names.DUPLICATE_ID, names.SCHEDULED_DELIVERY, names.ACTUAL_EXPIRY}
        shown = [
            f"{key}={value if isinstance(value, str) else repr(value)}"
            for key, value in sorted(properties.items())
            if key not in hidden
        ]
        shown += [f"{key}" for key in sorted(properties) if key == names.ACTUAL_EXPIRY]
        line = f"{body} to consumer {packet.consumer_id}, address {message.address}, delivery {packet.delivery_count}"
        return f"{line} ({', '.join(shown)})" if shown else line


#: Words of ``send`` that are properties of messages.
_PROPERTIES: Final = {"duplicate": names.DUPLICATE_ID, "group": names.GROUP_ID, "last-value": names.LAST_VALUE}
