"""Table of the operations of ``queue.<name>`` (Artemis: QueueControl). Not here: their results (``queue_control``)."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Final

from understudy.errors import ResourceNotFound
from understudy.management.doors import artemis
from understudy.management.json_text import to_json
from understudy.management.model.figure import figures
from understudy.management.model.queues import Queue
from understudy.management.operations import counters as counter_control
from understudy.management.operations.invocation import ManagedNode, Requester
from understudy.management.operations.queue import QueueControl
from understudy.management.operations.sending import SENDING_PARAMETERS
from understudy.management.operations.table import Operation, Operations, flag, integer, long, operation, text
from understudy.management.snapshot.routing import QUEUE
from understudy.management.waiting import operations as wait_control
from understudy.store.messages.reference import MessageReference


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


#: Names of getters that do not follow from the name of the value.
_GETTERS: Final = {"id": "getID", "messagesAcked": "getMessagesAcknowledged"}
#: Values in lists of queues without a getter of that kind.
_NOT_READ: Final = frozenset({"user", "autoCreated"})


def _getter(column: artemis.Column) -> Callable[[QueueControl], object]:
    return lambda control: artemis.attribute(column, QUEUE, control.queue)


def _attributes() -> list[Operation]:
    """Getters of the values in lists of queues: each field of the model with a name in Artemis."""
    found = []
    for figure in figures(Queue).values():
        name = figure.artemis
        if name is not None and name not in _NOT_READ:
            getter = _GETTERS.get(name) or ("is" if figure.type is bool else "get") + name[0].upper() + name[1:]
            returns = artemis.attribute_type(Queue, name)
            found.append(operation(getter, _getter(artemis.QUEUES[name]), figure.doc, returns=returns))
    return found


_SELECTOR: Final = text("filter", nullable=True)
_ID: Final = long("messageID")
_TARGET: Final = text("otherQueueName")
_REJECT: Final = flag("rejectDuplicates")
_C = QueueControl

_OPERATIONS: Final = (
    operation("getUser", lambda c: c.queue.configuration.user or None, "User that created it.", returns=str | None),
    operation("getMessagesReplaced", lambda c: c.queue.messages_replaced,
              "Messages replaced by newer ones since then.", returns=int),
    operation("getDeliveringSize", lambda c: _bytes(c.held()), "Bytes of the messages being delivered.", returns=int),
    operation("getScheduledSize", lambda c: _bytes(c.waiting_for_their_time()),
              "Bytes of the scheduled messages.", returns=int),
    operation("getDurableDeliveringCount", lambda c: _count_durable(c.held()), "Durable messages being delivered.",
              returns=int),
    operation("getDurableDeliveringSize", lambda c: _bytes(_durable(c.held())), "Their bytes.", returns=int),
    operation("getDurableScheduledCount", lambda c: _count_durable(c.waiting_for_their_time()),
              "Durable scheduled messages.", returns=int),
    operation("getDurableScheduledSize", lambda c: _bytes(_durable(c.waiting_for_their_time())), "Their bytes.",
              returns=int),
    operation("getDurableMessageCount", lambda c: c.everything(lambda each: int(each.durable)), "Durable messages.",
              returns=int),
    operation("getPersistentSize", lambda c: c.everything(c.persistent_bytes), "Bytes of its messages.", returns=int),
    operation("getDurablePersistentSize", lambda c: c.everything(lambda each: c.persistent_bytes(each) * each.durable),
              "Bytes of the durable ones.", returns=int),
    operation("getAcknowledgeAttempts", lambda c: c.queue.messages_acknowledged, "As getMessagesAcknowledged.",
              returns=int),
    operation("isConfigurationManaged", lambda c: c.queue.configuration.configuration_managed, "Made by broker.xml.",
              returns=bool),
    operation("isRetroactiveResource", lambda c: c.queue.address.retroactive_resource,
              "Whether it serves a retroactive address.", returns=bool),
    operation("getExpiryAddress", lambda c: c.queue.address.settings.expiry_address, "Expiry address.",
              returns=str | None),
    operation("getDeadLetterAddress", lambda c: c.queue.address.settings.dead_letter_address, "Dead-letter address.",
              returns=str | None),
    operation("getFirstMessageAsJSON", _C.first_as_json, "The message that would be delivered next, in an array."),
    operation("peekFirstMessageAsJSON", _C.peek_first_as_json, "The message that would be delivered next, or `null`."),
    operation("getFirstMessageTimestamp", _C.first_timestamp, "Its timestamp."),
    operation("getFirstMessageAge", _C.first_age, "Milliseconds since its timestamp."),
    operation("getGroupCount", lambda c: len(c.queue.groups.owners), "Message groups that have a consumer.",
              returns=int),
    operation("listMessages", _C.list_messages, "The first messages (management-browse-page-size).", _SELECTOR),
    operation("listMessagesAsJSON", _C.list_messages_as_json, "The same as JSON text.", _SELECTOR),
    operation("browse", _C.browse, "The first messages with the text of text messages."),
    operation("browse", _C.browse, "The same with a selector.", _SELECTOR),
    operation("browse", _C.browse_page, "A page of them, from 1.", integer("page"), integer("pageSize")),
    operation("browse", _C.browse_page, "The same with a selector.", integer("page"), integer("pageSize"), _SELECTOR),
    operation("countMessages", lambda c: c.queue.message_count, "As getMessageCount.", returns=int),
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
    operation("listScheduledMessagesAsJSON", lambda c: to_json(c.scheduled()), "The same as JSON text.", returns=str),
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
        "moveMessages", _C.move_flushing, "The same, at most messageCount; 0 or less = all.",
        integer("flushLimit"), _SELECTOR, _TARGET, _REJECT, integer("messageCount"),
    ),
    operation("copyMessage", _C.copy_one, "Copy one message to another queue.", _ID, text("targetQueue")),
    operation("retryMessage", _C.retry_one, "Return one message to its original queue or address.", _ID),
    operation("retryMessage", _C.retry_one,
              "Return one message to its origin, where it is delivered after so many ms, and count the retry in its "
              "property _UNDERSTUDY_RETRIES.", _ID, long("delay")),
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
    operation("enable", lambda control: control.enable(True), "Route messages to it again.", returns=None),
    operation("disable", lambda control: control.enable(False), "Route no messages to it.", returns=None),
    operation("resetGroup", _C.reset_group, "Assign a message group to a new consumer.", text("groupID")),
    operation("resetAllGroups", _C.reset_groups, "Assign every message group to a new consumer."),
    operation("flushExecutor", lambda control: None, "No effect: one thread runs everything in order.", returns=None),
    *counter_control.QUEUE_OPERATIONS,
    *wait_control.OPERATIONS,
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
