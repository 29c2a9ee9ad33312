"""The sending side of a session: permissions, credits, and registered producers.

Credits (artemis-core s. 6.2) are granted as asked as long as the address is not full, withheld while it is full
and blocks, and refused while it is full and fails. They are counted for the session and address, not
for a producer: that is all the packets say.

Not here: receiving large messages (``uploads``), what becomes of a message
(``routing.post_office``).
"""

from __future__ import annotations

from functools import partial
from typing import Final, NamedTuple

from understudy.dataclass import dataclass
from understudy.errors import AddressNotFound, BrokerError, IllegalState, LimitExceeded
from understudy.kernel import Sends
from understudy.limits import PRODUCERS_PER_SESSION_MAX
from understudy.message import REPLY_TO, Message
from understudy.routing.addresses.address import Address
from understudy.routing.addresses.configuration import split_fqqn
from understudy.routing.batch import Answered, taking_of
from understudy.routing.post_office import Done, Undecided
from understudy.routing.queues.queue import Queue
from understudy.selector.work import WORK
from understudy.session.callback import Management, RunAnswers
from understudy.session.state import SessionState
from understudy.session.transaction import Transaction
from understudy.terms import AddressFullPolicy, Permission

#: How JMS clients write the kind of a destination before its name (artemis-core s. 10.1).
_PREFIXES: Final = ("queue://", "topic://", "temp-queue://", "temp-topic://")
#: Most producer credits in one packet, whose field is an i32.
PRODUCER_CREDITS_MAX: Final = (1 << 31) - 1


@dataclass(slots=True)
class ServerProducer:
    """A producer that a client registered (CREATE_PRODUCER), for management.

    Sends name their address themselves; clients do not register producers again after a failover, so a
    send of an unknown producer is as good as any (artemis-core s. 4.3).
    """

    producer_id: int
    address: str | None
    """Address of the producer; None: it is anonymous, and each message names an address."""
    created_ms: int = 0
    """Wall time."""


class SendRoute(NamedTuple):
    """Queues of messages that an exchange has routed, and the answer to their publisher."""

    address: Address
    """The address of the queues whose durability contract holds."""
    queues: tuple[Queue, ...]
    answered: Answered | None
    """Called with the correlation ids of messages that are safe; None: no answer is wanted."""


class SendTarget:
    """An address this session sends to, and its credits. Bytes."""

    __slots__ = ("granted_bytes", "permitted_until_ms", "used_bytes", "wanted_bytes")

    def __init__(self) -> None:
        self.granted_bytes = 0
        self.used_bytes = 0
        self.permitted_until_ms = 0
        self.wanted_bytes = 0
        """Credits requested while the address was full."""


class SendRequests:
    """The sending side of one session."""

    __slots__ = ("_alters", "_batch_sends", "_office", "_state", "_targets", "producers", "undecided")

    def __init__(self, state: SessionState) -> None:
        self._state = state
        self._office = state.office
        self._batch_sends = state.services.resources.batch_sends
        self._alters = bool(state.options.prefixes or state.services.validated_users)
        """Whether messages are changed first: the acceptor has prefixes, which are cut off, or the validated user is
        written into each.
        """
        self._targets: dict[str, SendTarget] = {}
        self.producers: dict[int, ServerProducer] = {}
        self.undecided: Undecided | None = None
        """The decision about its group that the first message waits for which ``send_batch`` did not take."""

    # -- messages ---------------------------------------------------------------------------------

    def send(self, message: Message, done: Done | None = None, *, may_wait: bool = False) -> Undecided | None:
        """Take a message from the client; see the text of ``session.session`` for ``done``.

        Args:
            done: Answers it.
            may_wait: Whether the caller sends it again, and nothing after it before, when the decision about its group
                was made that is the result. Otherwise it may be routed without its group.

        Returns:
            The decision that it waits for; it was not taken. None: it was.
        """
        state = self._state
        transaction = state.sending_transaction
        try:
            message = self.prepared(message)
            name = message.address
            if name is None:
                message = self.addressed(message)
                name = message.address or ""
            target = self._targets.get(name)
            office = self._office
            if target is None or target.permitted_until_ms < office.now_ms:
                # the management address is never permitted to be sent to, so it always comes here
                if name == state.management_address and state.services.management is not None:
                    self._manage(state.services.management, message, done)
                    return None
                target = self.permit(name)
            target.used_bytes += len(message.encoded)
            credited = target.used_bytes <= target.granted_bytes
            undecided = office.send(message, state.order, done, transaction, credited, may_wait)
            if undecided is not None:
                target.used_bytes -= len(message.encoded)
            return undecided
        except BrokerError as error:
            state.failed(error, done, transaction)
            return None

    def send_batch(self, sends: Sends, row: int, answers: RunAnswers | None) -> int:
        """Take messages that came together, in order from ``row`` on: as ``send`` for each of them.

        Args:
            row: The first one.
            answers: Answers each of them; None if no answer is wanted.

        Returns:
            The row after the last one that was taken. Some are left if the filters they had to pass did as much work as
            they may between two turns (``selector.work``): the others go on in the next one. So are those from one on
            that waits for a decision about its group (``undecided``).
        """
        self.undecided = None
        state, office, targets = self._state, self._office, self._targets
        elsewhere = office.directory.elsewhere
        if self._alters or (
            elsewhere is not None and elsewhere.decisions is not None and sends.grouped(row, sends.count - row)
        ):
            return self._send_each(sends, row, answers)
        take = self._batch_sends.take
        transaction = None if state.auto_commit_sends else state.sending_transaction
        answered = answers.answer_run if answers is not None else None
        taking = taking_of((sends, state.order, answered, transaction, state.options.of_cluster))
        while row < sends.count:
            target = targets.get(sends.address(row) or "")
            if target is None or target.permitted_until_ms < office.now_ms:
                # the next message is sent alone by ``send``, which checks the permission
                break
            taken, size_bytes = take(taking, row)
            target.used_bytes += size_bytes
            if not taken:
                # sends that are not plain seldom come alone: trying again for each would cost every one of them
                break
            row += taken
        return self._send_each(sends, row, answers) if row < sends.count else row

    def send_alone(self, sends: Sends, answered: Answered) -> bool:
        """Take one plain message without the open transaction. Returns whether it was taken; a message that needs more,
        or to an address that was not asked for before, is not.

        Args:
            sends: The message.
            answered: Called when it is durable.
        """
        state, office = self._state, self._office
        target, elsewhere = self._targets.get(sends.address(0) or ""), office.directory.elsewhere
        if target is None or target.permitted_until_ms < office.now_ms or self._alters:
            return False
        if elsewhere is not None and elsewhere.decisions is not None and sends.grouped(0, 1):
            return False
        taking = taking_of((sends, state.order, answered, None, state.options.of_cluster))
        taken, size_bytes = self._batch_sends.take(taking, 0)
        target.used_bytes += size_bytes
        return taken > 0

    def permits_plain(self, name: str) -> bool:
        """Whether messages may be sent to a name as they are, which was asked before and needs no further check."""
        target = self._targets.get(name)
        return target is not None and target.permitted_until_ms >= self._office.now_ms and not self._alters

    def send_routed(self, sends: Sends, row: int, route: SendRoute) -> int:
        """Take messages whose queues are known (``permits_plain``), in no transaction.

        Args:
            sends: The messages.
            row: The first one.
            route: Queues, and the answer.

        Returns:
            How many were taken; the next one has to be sent alone.
        """
        taking = taking_of((sends, self._state.order, route.answered, None, False))
        begin = row
        while row < sends.count:
            taken, _ = self._batch_sends.take_routed(taking, row, route.address, route.queues)
            if not taken:
                break
            row += taken
        return row - begin

    def _send_each(self, sends: Sends, row: int, answers: RunAnswers | None) -> int:
        office, before = self._office, WORK.steps
        correlation_ids = sends.correlation_ids
        for index in range(row, sends.count):
            done = partial(answers.answer_run, (correlation_ids[index],)) if answers is not None else None
            self.undecided = self.send(Message.decode(sends.encoded(index)), done, may_wait=True)
            if self.undecided is not None:
                return index
            if before != WORK.steps >= office.send_steps_end:
                return index + 1
        return sends.count

    def _manage(self, management: Management, request: Message, done: Done | None) -> None:
        """Execute a request to the management address, which is never queued. It takes no part in the transaction of
        the session: its effects cannot be rolled back either.

        Args:
            management: Executes the request.
            request: The message.
            done: Called when the effects of the request are durable.

        Raises:
            NotAuthorized: the session may not manage, or not send the reply; nothing was done.
        """
        state, office = self._state, self._office
        state.security.check(Permission.MANAGE, management.address)
        reply_to = _reply_address(request)
        if reply_to is not None:
            self.permit(reply_to)

        def reply(message: Message) -> None:
            if reply_to is None:
                return
            # changes that the reply reports must be durable
            state.order.sequence = max(state.order.sequence, office.store.context.appended)
            try:
                office.send(message.replace(address=reply_to), state.order)
            except BrokerError as error:
                state.callback.operation_failed(error)

        management.handle(request, state.security, state.connection.remote_address, reply)
        office.acceptance.answer(state.order, done, office.store.context.appended)

    def route(
        self, message: Message, size_bytes: int, done: Done | None, transaction: Transaction | None
    ) -> Undecided | None:
        """Give a message of a permitted address to the post office. Returns and raises as ``PostOffice.send``."""
        target = self._target(message.address or "")
        target.used_bytes += size_bytes
        credited = target.used_bytes <= target.granted_bytes
        undecided = self._office.send(message, self._state.order, done, transaction, credited, may_wait=True)
        if undecided is not None:
            target.used_bytes -= size_bytes
        return undecided

    def prepared(self, message: Message) -> Message:
        """A message as it is routed, before it is looked at. Raises IllegalState: it is refused."""
        state = self._state
        if not self._alters:
            return state.admitted(message)
        if state.prefixes:
            message = state.prefixes.unprefixed(message)
        message = state.admitted(message)
        users = state.services.validated_users
        # requests of management are not consumed from a queue
        if users and not state.options.of_cluster and message.address != state.management_address:
            message = users.apply(message, state.options.validated_user)
        return message

    def drop_when_full(self, name: str | None, done: Done | None) -> bool:
        """Whether a message whose body did not fit on the disk is dropped, and then answered
        (``disk-full-policy``).
        """
        office = self._office
        fqqn = split_fqqn(name or "")
        settings = office.directory.settings.of(fqqn[0] if fqqn is not None else name or "")
        if not office.store.full or settings.disk_full_policy is not AddressFullPolicy.DROP:
            return False
        office.acceptance.answer(self._state.order, done)
        return True

    def addressed(self, message: Message) -> Message:
        """The message with the session's default address. Raises AddressNotFound, ObjectClosed."""
        state = self._state
        state.check_open()
        if state.options.default_address is None:
            raise AddressNotFound("the message names no address and the session has no default one")
        message = message.replace(address=state.options.default_address)
        return state.prefixes.unprefixed(message) if self._alters else message

    def permit(self, name: str) -> SendTarget:
        """The target of a name, which may be sent to. Raises NotAuthorized, ObjectClosed.

        What sending would make on the way there is asked for by ``ResponseOrder.permit``.
        """
        state = self._state
        state.check_open()
        fqqn = split_fqqn(name)
        address = fqqn[0] if fqqn is not None else name
        if address == state.management_address:
            raise IllegalState(f"{name!r} takes management requests, which are no large messages")
        state.security.check(Permission.SEND, address, fqqn[1] if fqqn is not None else None)
        queue = self._office.directory.queues.get(address)
        if queue is not None and queue.internal:
            raise IllegalState(f"{address!r} is a queue of the broker, which takes no messages of clients")
        target = self._target(name)
        target.permitted_until_ms = self._office.now_ms + state.security.permission_ms
        return target

    def check(self, name: str) -> None:
        """Check that messages may be sent to a name, of which the answer is kept. Raises as ``permit``."""
        target = self._targets.get(name)
        if target is None or target.permitted_until_ms < self._office.now_ms:
            self.permit(name)

    def forget_permissions(self) -> None:
        """Ask for permission before the next message to each address: permissions have changed."""
        for target in self._targets.values():
            target.permitted_until_ms = 0

    # -- credits ----------------------------------------------------------------------------------

    def request_credits(self, address: str, credit_bytes: int) -> None:
        """Answered by ``producer_credits`` at once or when the address is not full any more, or by
        ``producer_credits_refused`` under the FAIL policy (artemis-core s. 6.2).
        """
        credit_bytes = min(max(credit_bytes, 0), PRODUCER_CREDITS_MAX)
        name = self._state.prefixes.plain(address)
        fqqn = split_fqqn(name)
        found = self._office.directory.find_address(fqqn[0] if fqqn is not None else name)
        policy = self._office.memory.blocks_producers(found) if found is not None else None
        target = self._target(name)
        if found is None or policy is None:
            if target.wanted_bytes:
                # the address is not full any more and waiting requests are not answered yet: this answers both
                self._office.memory.no_longer_waits(target)
                credit_bytes = min(target.wanted_bytes + credit_bytes, PRODUCER_CREDITS_MAX)
            self._grant(address, target, credit_bytes)
        elif policy is AddressFullPolicy.FAIL:
            self._state.callback.producer_credits_refused(address, credit_bytes)
        else:
            target.wanted_bytes = min(target.wanted_bytes + credit_bytes, PRODUCER_CREDITS_MAX)
            self._office.memory.when_room(found, target, lambda: self._grant(address, target, target.wanted_bytes))

    def _target(self, name: str) -> SendTarget:
        target = self._targets.get(name)
        if target is None:
            names = self._state.names
            if len(self._targets) >= PRODUCERS_PER_SESSION_MAX or not names.has_space(len(name)):
                # An anonymous producer to ever new addresses; its cached permissions are dropped.
                self.forget_targets()
            names.hold(len(name))
            target = self._targets[name] = SendTarget()
        return target

    def forget_targets(self) -> None:
        """The session waits for no credits any more."""
        for name, target in self._targets.items():
            self._state.names.release(len(name))
            if target.wanted_bytes:
                self._office.memory.no_longer_waits(target)
        self._targets.clear()

    def _grant(self, address: str, target: SendTarget, credit_bytes: int) -> None:
        target.wanted_bytes = 0
        target.granted_bytes += credit_bytes
        self._state.callback.producer_credits(address, credit_bytes)

    # -- producers --------------------------------------------------------------------------------

    def create_producer(self, producer_id: int, address: str | None) -> None:
        """Register a producer. Raises LimitExceeded."""
        if producer_id not in self.producers and len(self.producers) >= PRODUCERS_PER_SESSION_MAX:
            raise LimitExceeded(f"{len(self.producers)} producers in a session, limit {PRODUCERS_PER_SESSION_MAX}")
        self._state.names.hold(len(address or ""))
        self.remove_producer(producer_id)
        self.producers[producer_id] = ServerProducer(producer_id, address, self._state.wall_ms())

    def remove_producer(self, producer_id: int) -> None:
        """Forget a producer; one that is not known is as good as forgotten (artemis-core s. 4.3)."""
        producer = self.producers.pop(producer_id, None)
        if producer is not None:
            self._state.names.release(len(producer.address or ""))

    def close(self) -> None:
        """Called when the session has ended."""
        self.producers.clear()
        self.forget_targets()


def _reply_address(request: Message) -> str | None:
    address = request.properties.get(REPLY_TO)
    if not isinstance(address, str):
        return None
    for prefix in _PREFIXES:
        if address.startswith(prefix):
            return address.removeprefix(prefix)
    return address
