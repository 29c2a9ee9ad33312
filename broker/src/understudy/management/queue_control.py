"""The operations of ``queue.<name>`` (Artemis: QueueControl).

Messages are selected by id or by selector; ``null`` or the empty text selects all. The implementation is in
``queue_messages``; this module has the names, parameter types and results.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Generator, Iterable
from dataclasses import dataclass, replace
from typing import Any, Final

from understudy.config.model import Permission
from understudy.errors import ManagementError, ResourceNotFound
from understudy.management import queue_messages as messages
from understudy.management.counter_control import QUEUE_OPERATIONS
from understudy.management.invocation import Control, ManagedNode, Requester
from understudy.management.listing import to_json
from understudy.management.operations import (
    Operation,
    Operations,
    flag,
    integer,
    long,
    operation,
    text,
)
from understudy.management.rows import consumer_json, queue_row
from understudy.management.sending import SENDING_PARAMETERS, send
from understudy.routing.post_office import PostOffice
from understudy.routing.queues.queue import Queue
from understudy.routing.updates import change_queue, pause_queue, resume_queue
from understudy.routing.walk import Act, Wanted, act_on
from understudy.session.consumer import ServerConsumer
from understudy.store.reference import MessageReference

Steps = Generator[None, None, Any]


@dataclass(frozen=True, slots=True)
class QueueControl(Control):
    """One queue, with the permissions of one requester."""

    queue: Queue

    @property
    def office(self) -> PostOffice:
        """The post office of the node."""
        return self.node.services.sessions.post_office

    @property
    def page_size(self) -> int:
        """Maximum number of messages in one list."""
        return self.queue.address.settings.management_browse_page_size

    def wanted(self, selector: str | None) -> Wanted:
        """The predicate of a selector."""
        return messages.wanted_by(self.queue, selector)

    def target(self, name: str) -> Queue:
        """The target queue of a move or copy. Raises QueueNotFound, ManagementError."""
        found = self.office.directory.queue(name)
        if found is self.queue:
            raise ManagementError(f"queue {name!r} is where the messages are")
        return found

    def permit(self, address: str, queue: str | None) -> None:
        """Check that the requester may send messages to an address or queue, which is required for moving or retrying
        messages to it. Raises NotAuthorized.
        """
        self.requester.security.check(Permission.SEND, address, queue)

    # -- reading ------------------------------------------------------------------------------------

    def list_messages(self, selector: str | None) -> Steps:
        """The first messages that match a selector."""
        return messages.page(self.queue, self.wanted(selector), 0, self.page_size)

    def list_messages_as_json(self, selector: str | None) -> Steps:
        """The first messages that match a selector, as JSON."""
        return to_json((yield from self.list_messages(selector)))

    def browse(self, selector: str | None = None) -> Steps:
        """The first messages that match a selector, with the text of text messages."""
        return self.browse_page(1, self.page_size, selector)

    def browse_page(self, page: int, page_size: int, selector: str | None = None) -> Steps:
        """A page of the messages that match a selector. Raises ManagementError."""
        if page < 1 or not 0 < page_size <= self.page_size:
            raise ManagementError(f"page {page} of {page_size}: from 1, with 1 to {self.page_size} messages")
        return self._browse((page - 1) * page_size, page_size, selector)

    def _browse(self, skip: int, limit: int, selector: str | None) -> Steps:
        wanted = self.wanted(selector)
        return (yield from messages.page(self.queue, wanted, skip, limit, messages.show_with_body))

    def count(self, selector: str | None) -> object:
        """Number of waiting messages that match a selector."""
        if not selector or not selector.strip():
            return self.queue.message_count
        return messages.count(self.queue, self.wanted(selector))

    def count_by(self, selector: str | None, property_name: str) -> Steps:
        """Number of matching messages for each value of a property, as JSON."""
        return to_json((yield from messages.count_by(self.queue, self.wanted(selector), property_name)))

    def first_as_json(self) -> str:
        """The message that would be delivered next, in an array."""
        found = messages.first(self.queue)
        # Artemis returns an empty object if there is no message, and its client expects one element
        return to_json([messages.show(self.queue, found) if found is not None else {}])

    def peek_first_as_json(self) -> str:
        """The message that would be delivered next, or ``null``."""
        found = messages.first(self.queue)
        return to_json(None if found is None else messages.show(self.queue, found))

    def first_timestamp(self) -> int | None:
        """Timestamp of the message that would be delivered next; None if there is none."""
        found = messages.first(self.queue)
        message = None if found is None else self.queue.read_waiting(found)
        return None if message is None else message.timestamp

    def first_age(self) -> int | None:
        """Milliseconds since the timestamp of the message that would be delivered next."""
        timestamp = self.first_timestamp()
        return None if timestamp is None else max(self.node.services.clock.wall_ms() - timestamp, 0)

    def delivering(self) -> dict[str, list[MessageReference]]:
        """Messages being delivered, by consumer."""
        return {
            f"{consumer.session.alias}:{consumer.consumer_id}": list(consumer.delivering.values())
            for consumer in self.queue.consumers
            if isinstance(consumer, ServerConsumer)
        }

    def held(self) -> list[MessageReference]:
        """Messages being delivered."""
        return [reference for held in self.delivering().values() for reference in held]

    def waiting_for_their_time(self) -> list[MessageReference]:
        """Scheduled messages."""
        return list(self.office.scheduled.of(self.queue))

    def everything(self, value: Callable[[MessageReference], int]) -> Steps:
        """Sum of a value over all messages: waiting, scheduled and being delivered."""
        elsewhere = sum(map(value, (*self.held(), *self.waiting_for_their_time())))
        return elsewhere + (yield from messages.total(self.queue, value))

    def persistent_bytes(self, reference: MessageReference) -> int:
        """Bytes of a message in the store; of a large one with its file (compressed, if received so)."""
        return messages.stored_bytes(self.queue, reference)

    def list_delivering(self) -> dict[str, object]:
        """Messages being delivered, by consumer."""
        left = self.page_size
        shown: dict[str, object] = {}
        for name, references in self.delivering().items():
            shown[name] = [messages.show(self.queue, reference) for reference in references[:left]]
            left -= min(left, len(references))
        return shown

    def list_delivering_as_json(self) -> str:
        """Messages being delivered, by consumer, as JSON."""
        shown = self.list_delivering()
        return to_json([{"consumerName": name, "elements": elements} for name, elements in shown.items()])

    def count_delivering_by(self, selector: str | None, property_name: str) -> str:
        """Number of messages being delivered that match, for each value of a property, as JSON."""
        wanted = self.wanted(selector)
        counts: Counter[str] = Counter()
        for reference in self.held():
            if wanted(reference):
                message = self.queue.read_waiting(reference)
                value = None if message is None else message.properties.get(property_name)
                counts["null" if value is None else str(value)] += 1
        return to_json(counts)

    def count_delivering(self, selector: str | None) -> int:
        """Number of messages being delivered that match a selector."""
        wanted = self.wanted(selector)
        return sum(wanted(reference) for held in self.delivering().values() for reference in held)

    def scheduled(self) -> list[dict[str, object]]:
        """Scheduled messages, earliest first."""
        found = self.office.scheduled.of(self.queue)[: self.page_size]
        return [messages.show(self.queue, reference) for reference in found]

    def peek_first_scheduled_as_json(self) -> str:
        """The earliest scheduled message, or ``null``."""
        found = self.office.scheduled.of(self.queue)[:1]
        return to_json(messages.show(self.queue, found[0]) if found else None)

    def list_consumers_as_json(self) -> str:
        """The consumers, as JSON."""
        return to_json(
            [consumer_json(consumer) for consumer in self.queue.consumers if isinstance(consumer, ServerConsumer)]
        )

    def groups_as_json(self) -> str:
        """Message groups and their consumers, as JSON."""
        owners = self.queue.groups.owners.items()
        return to_json(
            [
                {
                    "groupID": key,
                    "consumerID": owner.consumer_id,
                    "connectionID": owner.session.connection.connection_id,
                    "sessionID": owner.session.alias,
                    "browseOnly": owner.browse_only,
                    "creationTime": owner.created_ms,
                }
                for key, owner in owners
                if isinstance(owner, ServerConsumer)
            ]
        )

    # -- changing -----------------------------------------------------------------------------------

    def remove(self, selector: str | None) -> Steps:
        """Remove the messages that match; returns their number."""
        return messages.remove(self.office, self.queue, self.wanted(selector))

    def remove_at_most(self, limit: int, selector: str | None) -> Steps:
        """``limit`` has no effect: the flushLimit of Artemis is the number of messages per transaction."""
        return self.remove(selector)

    def remove_all(self) -> Steps:
        """Remove all messages that are not being delivered; returns their number."""
        return self.remove(None)

    def remove_one(self, message_id: int) -> Steps:
        """Remove a message; whether it existed."""
        return _any(messages.remove(self.office, self.queue, messages.of_id(message_id), 1))

    def expire(self, selector: str | None) -> Steps:
        """Expire the messages that match; returns their number."""
        return self._act(self.wanted(selector), messages.expire(self.office, self.queue))

    def expire_one(self, message_id: int) -> Steps:
        """Expire a message; whether it existed."""
        return self._act_on_one(message_id, messages.expire(self.office, self.queue))

    def kill(self, selector: str | None) -> Steps:
        """Send the messages that match to the dead-letter address; returns their number."""
        return self._act(self.wanted(selector), messages.kill(self.office, self.queue))

    def kill_one(self, message_id: int) -> Steps:
        """Send a message to the dead-letter address; whether it existed."""
        return self._act_on_one(message_id, messages.kill(self.office, self.queue))

    def move(self, selector: str | None, target: str, reject_duplicates: bool = False, limit: int = -1) -> Steps:
        """Move the messages that match to another queue; returns their number."""
        act = messages.move(
            self.office, self.queue, self.target(target), self.permit, reject_duplicates=reject_duplicates
        )
        return self._act(self.wanted(selector), act, limit)

    def move_flushing(
        self, flush_limit: int, selector: str | None, target: str, reject_duplicates: bool, limit: int = -1
    ) -> Steps:
        """The form of ``move`` with a flushLimit, which has no effect."""
        return self.move(selector, target, reject_duplicates, limit)

    def move_one(self, message_id: int, target: str, reject_duplicates: bool = False) -> Steps:
        """Move a message to another queue; whether it existed."""
        act = messages.move(
            self.office, self.queue, self.target(target), self.permit, reject_duplicates=reject_duplicates
        )
        return self._act_on_one(message_id, act)

    def copy_one(self, message_id: int, target: str) -> Steps:
        """Copy a message to another queue; whether it existed."""
        found = self.office.directory.queue(target)
        self.permit(found.address.name, found.name)
        return (yield from messages.copy_one(self.office, self.queue, message_id, found))

    def retry(self, selector: str | None = None) -> Steps:
        """Return the messages that match to their origin; returns their number."""
        return self._act(self.wanted(selector), messages.retry(self.office, self.queue, self.permit))

    def retry_one(self, message_id: int) -> Steps:
        """Return a message to its origin; whether it existed."""
        return self._act_on_one(message_id, messages.retry(self.office, self.queue, self.permit))

    def change_priority(self, selector: str | None, priority: int) -> Steps:
        """Change the priority of the messages that match; returns their number."""
        return self._act(self.wanted(selector), self._priority(priority))

    def change_priority_of_one(self, message_id: int, priority: int) -> Steps:
        """Change the priority of a message; whether it existed."""
        return self._act_on_one(message_id, self._priority(priority))

    def _priority(self, priority: int) -> Act:
        if not 0 <= priority <= 9:
            raise ManagementError(f"priority {priority}: 0 to 9")
        return messages.change_priority(self.office, self.queue, priority)

    def _act(self, wanted: Wanted, act: Act, limit: int = -1) -> Steps:
        return act_on(self.queue, wanted, act, limit)

    def _act_on_one(self, message_id: int, act: Act) -> Steps:
        return _any(self._act(messages.of_id(message_id), act, 1))

    def deliver_scheduled(self, selector: str | None) -> None:
        """Deliver the scheduled messages that match now."""
        self._release(self.wanted(selector))

    def deliver_scheduled_one(self, message_id: int) -> None:
        """Deliver a scheduled message now."""
        self._release(messages.of_id(message_id))

    def _release(self, wanted: Wanted) -> None:
        for reference in self.office.scheduled.take(self.queue, wanted, self.queue.scheduled_count):
            self.queue.due(reference)

    def send(self, *arguments: Any) -> Steps:
        """Send a message to this queue only; returns its id."""
        return send(self, f"{self.queue.address.name}::{self.queue.name}", *arguments)

    def pause(self, persist: bool = False) -> None:
        """Pause deliveries; with ``persist`` also after a restart. Raises DiskFull."""
        pause_queue(self.office, self.queue, persist=persist)

    def resume(self) -> None:
        """Resume deliveries."""
        resume_queue(self.office, self.queue)

    def enable(self, enabled: bool) -> None:
        """Route messages to the queue, or not."""
        change_queue(self.office, self.queue, replace(self.queue.configuration, enabled=enabled))

    def reset_group(self, group: str) -> None:
        """Remove the assignment of a message group to a consumer."""
        self.queue.close_group(self.queue.group_key(group))

    def reset_groups(self) -> None:
        """Remove the assignments of all message groups."""
        self.queue.close_groups()


def _any(steps: Generator[None, None, int]) -> Generator[None, None, bool]:
    """Whether at least one message was processed."""
    return (yield from steps) > 0


def _durable(references: Iterable[MessageReference]) -> list[MessageReference]:
    return [reference for reference in references if reference.durable]


def _count_durable(references: Iterable[MessageReference]) -> int:
    return len(_durable(references))


def _bytes(references: Iterable[MessageReference]) -> int:
    return sum(reference.size_bytes for reference in references)


def _counter(name: str) -> Callable[[QueueControl], None]:
    def reset(control: QueueControl) -> None:
        setattr(control.queue, name, 0)

    return reset


def _field(name: str) -> Callable[[QueueControl], object]:
    """A value of the row of the queue."""

    def read(control: QueueControl) -> object:
        value = queue_row(control.queue)[name]
        return None if value == "" else value

    return read


def _attributes() -> list[Operation]:
    """Getters of the values in lists of queues."""
    rows = (
        ("getID", "id", "Id of the queue."),
        ("getName", "name", "Its name."),
        ("getAddress", "address", "Its address."),
        ("getFilter", "filter", "Its selector."),
        ("isDurable", "durable", "Whether it survives a restart."),
        ("isTemporary", "temporary", "Whether it is deleted with its connection."),
        ("isPaused", "paused", "Whether deliveries are paused."),
        ("isPersistedPause", "persistedPause", "Whether the pause survives a restart."),
        ("isPurgeOnNoConsumers", "purgeOnNoConsumers", "Whether it is purged when the last consumer is closed."),
        ("isExclusive", "exclusive", "Whether one consumer at a time gets everything."),
        ("isLastValue", "lastValue", "Whether it keeps only the last message of each key."),
        ("getLastValueKey", "lastValueKey", "Property that is the key of a last-value queue."),
        ("getRingSize", "ringSize", "Maximum number of messages; -1 = no limit."),
        ("isEnabled", "enabled", "Whether messages are routed to it."),
        ("isAutoDelete", "autoDelete", "Whether it is deleted when it is empty and unused."),
        ("isInternalQueue", "internalQueue", "Whether it belongs to the broker."),
        ("getRoutingType", "routingType", "ANYCAST or MULTICAST."),
        ("getMaxConsumers", "maxConsumers", "Maximum number of consumers; -1 = no limit."),
        ("getConsumerCount", "consumerCount", "Consumers without browsers."),
        ("getConsumersBeforeDispatch", "consumersBeforeDispatch", "Consumers required before deliveries begin."),
        ("getDelayBeforeDispatch", "delayBeforeDispatch", "Longest wait for them, milliseconds."),
        ("isGroupRebalance", "groupRebalance", "Whether a new consumer causes groups to be assigned anew."),
        ("isGroupRebalancePauseDispatch", "groupRebalancePauseDispatch", "Whether deliveries pause meanwhile."),
        ("getGroupBuckets", "groupBuckets", "Buckets of message groups; -1 = none."),
        ("getGroupFirstKey", "groupFirstKey", "Property set on the first message of a group."),
        ("getMessageCount", "messageCount", "Messages, scheduled and delivered ones included."),
        ("getDeliveringCount", "deliveringCount", "Messages being delivered."),
        ("getScheduledCount", "scheduledCount", "Scheduled messages."),
        ("getMessagesAdded", "messagesAdded", "Messages added since the activation."),
        ("getMessagesAcknowledged", "messagesAcked", "Messages acknowledged since the activation."),
        ("getMessagesExpired", "messagesExpired", "Messages expired since the activation."),
        ("getMessagesKilled", "messagesKilled", "Messages removed or sent to the dead letters since then."),
    )
    return [operation(name, _field(field), doc) for name, field, doc in rows]


_SELECTOR: Final = text("filter", nullable=True)
_ID: Final = long("messageID")
_TARGET: Final = text("otherQueueName")
_REJECT: Final = flag("rejectDuplicates")
_C = QueueControl

_OPERATIONS: Final = (
    operation("getUser", lambda c: c.queue.configuration.user or None, "User that created it."),
    operation("getMessagesReplaced", lambda c: c.queue.messages_replaced,
              "Messages replaced by newer ones since then."),
    operation("getDeliveringSize", lambda c: _bytes(c.held()), "Bytes of the messages being delivered."),
    operation("getScheduledSize", lambda c: _bytes(c.waiting_for_their_time()),
              "Bytes of the scheduled messages."),
    operation("getDurableDeliveringCount", lambda c: _count_durable(c.held()), "Durable messages being delivered."),
    operation("getDurableDeliveringSize", lambda c: _bytes(_durable(c.held())), "Their bytes."),
    operation("getDurableScheduledCount", lambda c: _count_durable(c.waiting_for_their_time()),
              "Durable scheduled messages."),
    operation("getDurableScheduledSize", lambda c: _bytes(_durable(c.waiting_for_their_time())), "Their bytes."),
    operation("getDurableMessageCount", lambda c: c.everything(lambda each: int(each.durable)), "Durable messages."),
    operation("getPersistentSize", lambda c: c.everything(c.persistent_bytes), "Bytes of its messages."),
    operation("getDurablePersistentSize", lambda c: c.everything(lambda each: c.persistent_bytes(each) * each.durable),
              "Bytes of the durable ones."),
    operation("getAcknowledgeAttempts", lambda c: c.queue.messages_acknowledged, "As getMessagesAcknowledged."),
    operation("isConfigurationManaged", lambda c: c.queue.configuration.configuration_managed, "Made by broker.xml."),
    operation("isRetroactiveResource", lambda c: c.queue.address.retroactive_resource,
              "Whether it serves a retroactive address."),
    operation("getExpiryAddress", lambda c: c.queue.address.settings.expiry_address, "Expiry address."),
    operation("getDeadLetterAddress", lambda c: c.queue.address.settings.dead_letter_address, "Dead-letter address."),
    operation("getFirstMessageAsJSON", _C.first_as_json, "The message that would be delivered next, in an array."),
    operation("peekFirstMessageAsJSON", _C.peek_first_as_json, "The message that would be delivered next, or `null`."),
    operation("getFirstMessageTimestamp", _C.first_timestamp, "Its timestamp."),
    operation("getFirstMessageAge", _C.first_age, "Milliseconds since its timestamp."),
    operation("getGroupCount", lambda c: len(c.queue.groups.owners), "Message groups that have a consumer."),
    operation("listMessages", _C.list_messages, "The first messages (management-browse-page-size).", _SELECTOR),
    operation("listMessagesAsJSON", _C.list_messages_as_json, "The same as JSON text.", _SELECTOR),
    operation("browse", _C.browse, "The first messages with the text of text messages."),
    operation("browse", _C.browse, "The same with a selector.", _SELECTOR),
    operation("browse", _C.browse_page, "A page of them, from 1.", integer("page"), integer("pageSize")),
    operation("browse", _C.browse_page, "The same with a selector.", integer("page"), integer("pageSize"), _SELECTOR),
    operation("countMessages", lambda c: c.queue.message_count, "As getMessageCount."),
    operation("countMessages", _C.count, "Waiting messages that match a selector.", _SELECTOR),
    operation(
        "countMessages", _C.count_by, "The same by value of a property, as JSON.", _SELECTOR, text("groupByProperty")
    ),
    operation("countDeliveringMessages", _C.count_delivering, "Messages being delivered that match.", _SELECTOR),
    operation("countDeliveringMessages", _C.count_delivering_by, "The same by value of a property, as JSON.",
              _SELECTOR, text("groupByProperty")),
    operation("listDeliveringMessages", _C.list_delivering, "Messages being delivered, by consumer."),
    operation("listDeliveringMessagesAsJSON", _C.list_delivering_as_json, "The same as JSON text."),
    operation("listScheduledMessages", _C.scheduled, "Scheduled messages, earliest first."),
    operation("listScheduledMessagesAsJSON", lambda c: to_json(c.scheduled()), "The same as JSON text."),
    operation("peekFirstScheduledMessageAsJSON", _C.peek_first_scheduled_as_json, "The earliest of them, or `null`."),
    operation("listConsumersAsJSON", _C.list_consumers_as_json, "Its consumers, as JSON."),
    operation("listGroupsAsJSON", _C.groups_as_json, "Message groups and their consumers, as JSON."),
    operation("removeMessage", _C.remove_one, "Remove one message; whether it existed.", _ID),
    operation("removeMessages", _C.remove, "Remove the messages that match; returns their number.", _SELECTOR),
    operation("removeMessages", _C.remove_at_most, "The same.", integer("flushLimit"), _SELECTOR),
    operation("removeAllMessages", _C.remove_all, "Remove all messages that are not being delivered; their number."),
    operation("expireMessage", _C.expire_one, "Expire one message.", _ID),
    operation("expireMessages", _C.expire, "Expire the messages that match; returns their number.", _SELECTOR),
    operation("sendMessageToDeadLetterAddress", _C.kill_one, "Send one message to the dead-letter address.", _ID),
    operation("sendMessagesToDeadLetterAddress", _C.kill, "Send matching messages there; their number.", _SELECTOR),
    operation("moveMessage", _C.move_one, "Move one message to another queue.", _ID, _TARGET),
    operation("moveMessage", _C.move_one, "The same.", _ID, _TARGET, _REJECT),
    operation("moveMessages", _C.move, "Move the messages that match; returns their number.", _SELECTOR, _TARGET),
    operation("moveMessages", _C.move, "The same.", _SELECTOR, _TARGET, _REJECT),
    operation("moveMessages", _C.move_flushing, "The same.", integer("flushLimit"), _SELECTOR, _TARGET, _REJECT),
    operation(
        "moveMessages", _C.move_flushing, "The same, at most messageCount; -1 = all.",
        integer("flushLimit"), _SELECTOR, _TARGET, _REJECT, integer("messageCount"),
    ),
    operation("copyMessage", _C.copy_one, "Copy one message to another queue.", _ID, text("targetQueue")),
    operation("retryMessage", _C.retry_one, "Return one message to its original queue or address.", _ID),
    operation("retryMessages", _C.retry, "Return all messages to their origin; returns their number."),
    operation("retryMessages", _C.retry, "The same with a selector.", _SELECTOR),
    operation("changeMessagePriority", _C.change_priority_of_one, "Give one message another priority and a new id.",
              _ID, integer("newPriority")),
    operation("changeMessagesPriority", _C.change_priority, "The same for messages that match; their number.",
              _SELECTOR, integer("newPriority")),
    operation("deliverScheduledMessage", _C.deliver_scheduled_one, "Deliver a scheduled message now.", _ID),
    operation("deliverScheduledMessages", _C.deliver_scheduled, "The same for the messages that match.", _SELECTOR),
    operation("sendMessage", _C.send, "Send a message to this queue only; its id.", *SENDING_PARAMETERS),
    operation("sendMessage", _C.send, "The same, optionally with a JMS message id.", *SENDING_PARAMETERS,
              flag("createMessageId")),
    operation("pause", _C.pause, "Pause deliveries until resumed or the broker restarts."),
    operation("pause", _C.pause, "The same; with persist the pause survives a restart.", flag("persist")),
    operation("resume", _C.resume, "Resume deliveries."),
    operation("enable", lambda control: control.enable(True), "Route messages to it again."),
    operation("disable", lambda control: control.enable(False), "Route no messages to it."),
    operation("resetGroup", _C.reset_group, "Assign a message group to a new consumer.", text("groupID")),
    operation("resetAllGroups", _C.reset_groups, "Assign every message group to a new consumer."),
    operation("flushExecutor", lambda control: None, "No effect: one thread runs everything in order."),
    *QUEUE_OPERATIONS,
    operation("resetMessagesAdded", _counter("messages_added"), "Reset the counter."),
    operation("resetMessagesAcknowledged", _counter("messages_acknowledged"), "Reset the counter."),
    operation("resetMessagesExpired", _counter("messages_expired"), "Reset the counter."),
    operation("resetMessagesKilled", _counter("messages_killed"), "Reset the counter."),
)  # fmt: skip


class QueueControls:
    """Controls of queues, by name."""

    operations = Operations("queue", "A queue, by name.", [*_attributes(), *_OPERATIONS])

    def __call__(self, node: ManagedNode, requester: Requester, name: str) -> QueueControl:
        queue = node.services.sessions.post_office.directory.find_queue(name)
        if queue is None:
            raise ResourceNotFound(f"no queue {name!r}")
        return QueueControl(node, requester, queue)
