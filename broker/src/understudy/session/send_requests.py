"""The sending side of a session: permissions, credits, and registered producers.

Credits (artemis-core s. 6.2) are granted as asked as long as the address is not full, withheld while it is full
and blocks, and refused while it is full and fails. They are counted for the session and address, not
for a producer: that is all the packets say.

Not here: receiving large messages (``large_requests``), what becomes of a message
(``routing.post_office``).
"""

from __future__ import annotations

from functools import partial

from understudy.errors import AddressNotFound, BrokerError, IllegalState, LimitExceeded
from understudy.kernel import Sends
from understudy.limits import PRODUCERS_PER_SESSION_MAX
from understudy.message import Message
from understudy.routing.batch import BatchSends, Taking
from understudy.routing.configuration import split_fqqn
from understudy.routing.post_office import Done, PostOffice, Undecided
from understudy.selector.work import WORK
from understudy.session.callback import RunAnswers, SessionCallback
from understudy.session.credits import PRODUCER_CREDITS_MAX, ProducerCredits
from understudy.session.management import manage
from understudy.session.producer import ServerProducer
from understudy.session.state import SessionState
from understudy.session.transaction import Transaction
from understudy.terms import AddressFullPolicy, Permission


class SendTarget(ProducerCredits):
    """An address this session sends to."""

    __slots__ = ("permitted_until_ms", "wanted_bytes")

    def __init__(self) -> None:
        super().__init__()
        self.permitted_until_ms = 0
        self.wanted_bytes = 0
        """Credits requested while the address was full."""


class SendRequests:
    """The sending side of one session."""

    __slots__ = ("_batch_sends", "_callback", "_office", "_session", "_targets", "producers", "undecided")

    def __init__(
        self, session: SessionState, office: PostOffice, batch_sends: BatchSends, callback: SessionCallback
    ) -> None:
        self._session = session
        self._office = office
        self._batch_sends = batch_sends
        self._callback = callback
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
        session = self._session
        transaction = session.sending_transaction
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
                if name == session.management_address and session.services.management is not None:
                    manage(session, office, self.permit, session.services.management, message, done)
                    return None
                target = self.permit(name)
            target.used_bytes += len(message.encoded)
            credited = target.used_bytes <= target.granted_bytes
            undecided = office.send(message, session.order, done, transaction, credited, may_wait)
            if undecided is not None:
                target.used_bytes -= len(message.encoded)
            return undecided
        except BrokerError as error:
            session.failed(error, done, transaction)
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
        session, office, targets = self._session, self._office, self._targets
        elsewhere = office.directory.elsewhere
        if elsewhere is not None and elsewhere.decisions is not None and sends.grouped(row, sends.count - row):
            return self._send_each(sends, row, answers)
        take = self._batch_sends.take
        transaction = None if session.auto_commit_sends else session.sending_transaction
        answered = answers.answer_run if answers is not None else None
        taking = Taking(sends, session.order, answered, transaction, of_cluster=session.options.of_cluster)
        while row < sends.count:
            target = targets.get(sends.address(row) or "")
            if target is None or target.permitted_until_ms < office.now_ms:
                # the next one is sent alone by ``send``, which checks the permission
                break
            taken, size_bytes = take(taking, row)
            target.used_bytes += size_bytes
            if not taken:
                # sends that are not plain seldom come alone: trying again for each would cost every one of them
                break
            row += taken
        return self._send_each(sends, row, answers) if row < sends.count else row

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

    def route(
        self, message: Message, size_bytes: int, done: Done | None, transaction: Transaction | None
    ) -> Undecided | None:
        """Give a message of a permitted address to the post office. Returns and raises as ``PostOffice.send``."""
        target = self._target(message.address or "")
        target.used_bytes += size_bytes
        credited = target.used_bytes <= target.granted_bytes
        undecided = self._office.send(message, self._session.order, done, transaction, credited, may_wait=True)
        if undecided is not None:
            target.used_bytes -= size_bytes
        return undecided

    def prepared(self, message: Message) -> Message:
        """A message as it is routed, before it is looked at. Raises IllegalState: it is refused."""
        return self._session.admitted(message)

    def drop_when_full(self, name: str | None, done: Done | None) -> bool:
        """Whether a message whose body did not fit on the disk is dropped, and then answered
        (``disk-full-policy``).
        """
        office = self._office
        fqqn = split_fqqn(name or "")
        settings = office.directory.settings.of(fqqn[0] if fqqn is not None else name or "")
        if not office.store.full or settings.disk_full_policy is not AddressFullPolicy.DROP:
            return False
        office.acceptance.answer(self._session.order, done)
        return True

    def addressed(self, message: Message) -> Message:
        """The message with the session's default address. Raises AddressNotFound, ObjectClosed."""
        session = self._session
        session.check_open()
        if session.options.default_address is None:
            raise AddressNotFound("the message names no address and the session has no default one")
        return message.replace(address=session.options.default_address)

    def permit(self, name: str) -> SendTarget:
        """The target of a name, which may be sent to. Raises NotAuthorized, ObjectClosed.

        What sending would make on the way there is asked for by ``ResponseOrder.permit``.
        """
        session = self._session
        session.check_open()
        fqqn = split_fqqn(name)
        address = fqqn[0] if fqqn is not None else name
        if address == session.management_address:
            raise IllegalState(f"{name!r} takes management requests, which are no large messages")
        session.security.check(Permission.SEND, address, fqqn[1] if fqqn is not None else None)
        queue = self._office.directory.queues.get(address)
        if queue is not None and queue.internal:
            raise IllegalState(f"{address!r} is a queue of the broker, which takes no messages of clients")
        target = self._target(name)
        target.permitted_until_ms = self._office.now_ms + session.security.permission_ms
        return target

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
        name = self._session.prefixes.plain(address)
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
            self._callback.producer_credits_refused(address, credit_bytes)
        else:
            target.wanted_bytes = min(target.wanted_bytes + credit_bytes, PRODUCER_CREDITS_MAX)
            self._office.memory.when_room(found, target, lambda: self._grant(address, target, target.wanted_bytes))

    def _target(self, name: str) -> SendTarget:
        target = self._targets.get(name)
        if target is None:
            names = self._session.names
            if len(self._targets) >= PRODUCERS_PER_SESSION_MAX or not names.has_space(len(name)):
                # An anonymous producer to ever new addresses; its cached permissions are dropped.
                self.forget_targets()
            names.hold(len(name))
            target = self._targets[name] = SendTarget()
        return target

    def forget_targets(self) -> None:
        """The session waits for no credits any more."""
        for name, target in self._targets.items():
            self._session.names.release(len(name))
            if target.wanted_bytes:
                self._office.memory.no_longer_waits(target)
        self._targets.clear()

    def _grant(self, address: str, target: SendTarget, credit_bytes: int) -> None:
        target.wanted_bytes = 0
        target.granted_bytes += credit_bytes
        self._callback.producer_credits(address, credit_bytes)

    # -- producers --------------------------------------------------------------------------------

    def create_producer(self, producer_id: int, address: str | None) -> None:
        """Register a producer. Raises LimitExceeded."""
        if producer_id not in self.producers and len(self.producers) >= PRODUCERS_PER_SESSION_MAX:
            raise LimitExceeded(f"{len(self.producers)} producers in a session, limit {PRODUCERS_PER_SESSION_MAX}")
        self._session.names.hold(len(address or ""))
        self.remove_producer(producer_id)
        self.producers[producer_id] = ServerProducer(producer_id, address, self._session.wall_ms())

    def remove_producer(self, producer_id: int) -> None:
        """Forget a producer; one that is not known is as good as forgotten (artemis-core s. 4.3)."""
        producer = self.producers.pop(producer_id, None)
        if producer is not None:
            self._session.names.release(len(producer.address or ""))

    def close(self) -> None:
        """The session has ended."""
        self.producers.clear()
        self.forget_targets()


class PreparedSends(SendRequests):
    """The same where messages are changed first: the acceptor has prefixes, which are cut off, or the validated
    user is written into each.
    """

    __slots__ = ()

    def prepared(self, message: Message) -> Message:
        session = self._session
        if session.prefixes:
            message = session.prefixes.unprefixed(message)
        message = super().prepared(message)
        # requests of management are not consumed from a queue
        if (
            session.services.validated_users
            and not session.options.of_cluster
            and message.address != session.management_address
        ):
            message = session.services.validated_users.apply(message, session.options.validated_user)
        return message

    def send_batch(self, sends: Sends, row: int, answers: RunAnswers | None) -> int:
        self.undecided = None
        return self._send_each(sends, row, answers)

    def addressed(self, message: Message) -> Message:
        return self._session.prefixes.unprefixed(super().addressed(message))
