"""Attributes and operations of one queue (QueueControl in Artemis).

Messages are selected by id or by selector; ``null`` or the empty text selects all. The implementation is in
``queue_messages``; names and parameter types are in ``queue_operations``.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Generator
from dataclasses import replace
from typing import Any, TypeVar

from understudy.dataclass import dataclass
from understudy.errors import ManagementError
from understudy.management.doors.artemis import consumer_json
from understudy.management.json_text import to_json
from understudy.management.model.clients import Consumer
from understudy.management.operations import queue_messages as messages
from understudy.management.operations.invocation import Control
from understudy.management.operations.sending import send
from understudy.management.snapshot.clients import CONSUMER
from understudy.management.snapshot.rows import Rows
from understudy.routing.addresses.updates import change_queue, pause_queue, resume_queue
from understudy.routing.post_office import PostOffice
from understudy.routing.queues.queue import Queue
from understudy.routing.queues.waiting_messages import Act, Wanted, act_on
from understudy.session.consumer import ServerConsumer
from understudy.store.messages.reference import MessageReference
from understudy.terms import Permission

T = TypeVar("T")
Steps = Generator[None, None, T]
"""A result that is found in slices."""


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

    def list_messages(self, selector: str | None) -> Steps[list[messages.Shown]]:
        """The first messages that match a selector."""
        return messages.page(self.queue, self.wanted(selector), 0, self.page_size, messages.show)

    def list_messages_as_json(self, selector: str | None) -> Steps[str]:
        """The first messages that match a selector, as JSON."""
        return to_json((yield from self.list_messages(selector)))

    def browse(self, selector: str | None = None) -> Steps[list[messages.Shown]]:
        """The first messages that match a selector, with the text of text messages."""
        return self.browse_page(1, self.page_size, selector)

    def browse_page(self, page: int, page_size: int, selector: str | None = None) -> Steps[list[messages.Shown]]:
        """A page of the messages that match a selector. Raises ManagementError."""
        if page < 1 or not 0 < page_size <= self.page_size:
            raise ManagementError(f"page {page} of {page_size}: from 1, with 1 to {self.page_size} messages")
        return self._browse((page - 1) * page_size, page_size, selector)

    def _browse(self, skip: int, limit: int, selector: str | None) -> Steps[list[messages.Shown]]:
        wanted = self.wanted(selector)
        return (yield from messages.page(self.queue, wanted, skip, limit, messages.show_with_body))

    def count(self, selector: str | None) -> int | Steps[int]:
        """Number of waiting messages that match a selector."""
        if not selector or not selector.strip():
            return self.queue.message_count
        return messages.count(self.queue, self.wanted(selector))

    def count_by(self, selector: str | None, property_name: str) -> Steps[str]:
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
        """Number of messages that are being delivered."""
        return [reference for held in self.delivering().values() for reference in held]

    def waiting_for_their_time(self) -> list[MessageReference]:
        """Number of scheduled messages."""
        return list(self.office.scheduled.of(self.queue))

    def everything(self, value: Callable[[MessageReference], int]) -> Steps[int]:
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
        found = [each for each in self.queue.consumers if isinstance(each, ServerConsumer)]
        return to_json(list(map(consumer_json, Rows(Consumer, found, CONSUMER).items())))

    def groups_as_json(self) -> str:
        """Message groups of the queue and their consumers, as JSON."""
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

    def remove(self, selector: str | None) -> Steps[int]:
        """Remove the messages that match; returns their number."""
        return messages.remove(self.office, self.queue, self.wanted(selector))

    def remove_at_most(self, limit: int, selector: str | None) -> Steps[int]:
        """``limit`` has no effect: the flushLimit of Artemis is the number of messages per transaction."""
        return self.remove(selector)

    def remove_all(self) -> Steps[int]:
        """Remove all messages that are not being delivered; returns their number."""
        return self.remove(None)

    def remove_one(self, message_id: int) -> Steps[bool]:
        """Remove a message. Returns whether it existed."""
        return _any(messages.remove(self.office, self.queue, messages.of_id(message_id), 1))

    def expire(self, selector: str | None) -> Steps[int]:
        """Expire the messages that match; returns their number."""
        return self._act(self.wanted(selector), messages.expire(self.office, self.queue))

    def expire_one(self, message_id: int) -> Steps[bool]:
        """Expire a message. Returns whether it existed."""
        return self._act_on_one(message_id, messages.expire(self.office, self.queue))

    def kill(self, selector: str | None) -> Steps[int]:
        """Send the messages that match to the dead-letter address; returns their number."""
        return self._act(self.wanted(selector), messages.kill(self.office, self.queue))

    def kill_one(self, message_id: int) -> Steps[bool]:
        """Send a message to the dead-letter address; whether it existed."""
        return self._act_on_one(message_id, messages.kill(self.office, self.queue))

    def move(self, selector: str | None, target: str, reject_duplicates: bool = False, limit: int = -1) -> Steps[int]:
        """Move the messages that match to another queue; returns their number."""
        act = messages.move(
            self.office, self.queue, self.target(target), self.permit, reject_duplicates=reject_duplicates
        )
        return self._act(self.wanted(selector), act, limit)

    def move_flushing(
        self, flush_limit: int, selector: str | None, target: str, reject_duplicates: bool, limit: int = -1
    ) -> Steps[int]:
        """The form of ``move`` with a flushLimit, which has no effect; a limit of 0 means no limit, as in Artemis."""
        return self.move(selector, target, reject_duplicates, limit if limit > 0 else -1)

    def move_one(self, message_id: int, target: str, reject_duplicates: bool = False) -> Steps[bool]:
        """Move a message to another queue; whether it existed."""
        act = messages.move(
            self.office, self.queue, self.target(target), self.permit, reject_duplicates=reject_duplicates
        )
        return self._act_on_one(message_id, act)

    def copy_one(self, message_id: int, target: str) -> Steps[bool]:
        """Copy a message to another queue; whether it existed."""
        found = self.office.directory.queue(target)
        self.permit(found.address.name, found.name)
        return (yield from messages.copy_one(self.office, self.queue, message_id, found))

    def retry(self, selector: str | None = None) -> Steps[int]:
        """Return the messages that match to their origin; returns their number."""
        return self._act(self.wanted(selector), messages.retry(self.office, self.queue, self.permit))

    def retry_one(self, message_id: int, delay_ms: int | None = None) -> Steps[bool]:
        """Return a message to its origin; whether it existed. With a delay it is delivered later, and counted.

        Raises:
            ManagementError: the delay is negative.
        """
        if delay_ms is not None and delay_ms < 0:
            raise ManagementError(f"delay {delay_ms}: 0 ms or more")
        return self._act_on_one(message_id, messages.retry(self.office, self.queue, self.permit, delay_ms))

    def change_priority(self, selector: str | None, priority: int) -> Steps[int]:
        """Change the priority of the messages that match; returns their number."""
        return self._act(self.wanted(selector), self._priority(priority))

    def change_priority_of_one(self, message_id: int, priority: int) -> Steps[bool]:
        """Change the priority of a message; whether it existed."""
        return self._act_on_one(message_id, self._priority(priority))

    def _priority(self, priority: int) -> Act:
        if not 0 <= priority <= 9:
            raise ManagementError(f"priority {priority}: 0 to 9")
        return messages.change_priority(self.office, self.queue, priority)

    def _act(self, wanted: Wanted, act: Act, limit: int = -1) -> Steps[int]:
        return act_on(self.queue, wanted, act, limit)

    def _act_on_one(self, message_id: int, act: Act) -> Steps[bool]:
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

    def send(self, *arguments: Any) -> Steps[str]:
        """Send a message to this queue only; returns its id."""
        return send(self, f"{self.queue.address.name}::{self.queue.name}", *arguments)

    def pause(self, persist: bool = False) -> None:
        """Pause deliveries; with ``persist`` also after a restart. Raises DiskFull."""
        pause_queue(self.office, self.queue, persist=persist)

    def resume(self) -> None:
        """Resume the deliveries of the queue."""
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
