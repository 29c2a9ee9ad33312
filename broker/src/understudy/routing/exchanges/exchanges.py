"""The exchanges of a node: declared, bound, stored, and the graph that leads from an exchange to queues.

An exchange or binding is durable if everything that it joins is: then the log has a SETTING record of it, and so has
every snapshot (ADR 0185). Names have the prefix of their virtual host. Permissions are checked by sessions.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import asdict

from understudy.errors import LimitExceeded, StoreError
from understudy.limits import BINDING_ARGUMENTS_BYTES_MAX, BINDINGS_MAX, BINDINGS_OF_EXCHANGE_MAX, EXCHANGES_MAX
from understudy.message import Message
from understudy.routing.addresses.address import Address
from understudy.routing.addresses.configuration import check_name
from understudy.routing.addresses.directory import Directory
from understudy.routing.exchanges.carrier import Carrier
from understudy.routing.exchanges.errors import ExchangeInUse, ExchangeMismatch, ExchangeNotFound
from understudy.routing.exchanges.exchange import (
    HEADERS,
    PREDECLARED,
    BindingListener,
    Exchange,
    ExchangeBinding,
    ExchangeConfiguration,
)
from understudy.routing.queues.consumer import Consumer
from understudy.routing.queues.queue import Queue
from understudy.store.messages.message_store import MessageStore
from understudy.store.setting_record import SettingKind, SettingRecord
from understudy.store.state import StoreState
from understudy.terms import RoutingType


class Exchanges:
    """Exchanges and bindings of one active node. Implements ``RoutingListener``."""

    def __init__(self, directory: Directory, store: MessageStore) -> None:
        self._directory = directory
        self._store = store
        self.carrier: Carrier
        """Set by the broker before it restores bindings."""
        self.listener: BindingListener | None = None
        """Follows the bindings, once they are restored; None: nothing does."""
        self.by_name: dict[str, Exchange] = {}
        self.binding_count = 0
        """Number of bindings of all exchanges."""
        self.changes = 0
        """Number of changes after which messages with a routing key may go another way (``route_of_key``), or may have
        to be looked at one by one: of exchanges, of bindings, and of queues and settings that exist."""
        self._of_queue: dict[str, dict[ExchangeBinding, None]] = {}
        """Bindings that lead to a queue, by its name."""
        directory.listeners.append(self)

    # -- exchanges ------------------------------------------------------------------------------

    def find(self, name: str) -> Exchange | None:
        """The exchange of a name; one that every virtual host has is made when it is asked for."""
        found = self.by_name.get(name)
        if found is None:
            kind = PREDECLARED.get(name.rpartition("/")[2])
            if kind is not None:
                found = Exchange(ExchangeConfiguration(name, kind, durable=True), predeclared=True)
                self.by_name[name] = found
        return found

    def get(self, name: str) -> Exchange:
        """The exchange of a name. Raises ExchangeNotFound."""
        found = self.find(name)
        if found is None:
            raise ExchangeNotFound(f"no exchange {name!r}")
        return found

    def declare(self, configuration: ExchangeConfiguration) -> Exchange:
        """Make an exchange; one that exists must be the same.

        Raises:
            ExchangeMismatch: it exists with other properties, or a property cannot be used.
            LimitExceeded: there are too many exchanges.
            InvalidQueueConfiguration: the name is too long.
            StoreFormatHeld, StoreError: it cannot be stored.
        """
        existing = self.find(configuration.name)
        if existing is not None:
            for name, value in asdict(configuration).items():
                present = getattr(existing.configuration, name)
                if present != value:
                    raise ExchangeMismatch(
                        f"exchange {configuration.name!r} exists with {name.replace('_', ' ')} {present!r}, "
                        f"not {value!r}"
                    )
            return existing
        check_name(configuration.name, "exchange")
        if len(self.by_name) >= EXCHANGES_MAX:
            raise LimitExceeded(f"{len(self.by_name)} exchanges, limit {EXCHANGES_MAX}")
        exchange = Exchange(configuration)
        if configuration.durable:
            self._store.store_setting(SettingRecord(SettingKind.EXCHANGE, configuration.name, asdict(configuration)))
        self.by_name[configuration.name] = exchange
        self.changes += 1
        return exchange

    def delete(self, name: str, *, if_unused: bool = False) -> bool:
        """Delete an exchange with its bindings. Returns whether it existed.

        Raises:
            ExchangeInUse: it has bindings and ``if_unused`` was asked for.
        """
        exchange = self.by_name.get(name)
        if exchange is None:
            return False
        if if_unused and exchange.bindings:
            raise ExchangeInUse(f"exchange {name!r} has {len(exchange.bindings)} bindings")
        for binding in [*exchange.incoming, *exchange.bindings]:
            self._remove(binding)
        # an auto-delete exchange went with its last binding
        self.changes += 1
        if self.by_name.pop(name, None) is not None and exchange.durable:
            self._store.store_setting(SettingRecord(SettingKind.EXCHANGE, name, None))
        return True

    # -- bindings -------------------------------------------------------------------------------

    def bind(self, binding: ExchangeBinding) -> None:
        """Make a binding; one that exists is left as it is.

        Raises:
            ExchangeNotFound, QueueNotFound: its source or destination is missing.
            ExchangeMismatch: its key or its arguments cannot be used.
            LimitExceeded: there are too many bindings, or the arguments of this one are too long.
            StoreFormatHeld, StoreError: it cannot be stored.
        """
        source, durable = self.get(binding.source), self.is_durable(binding)
        if binding in source.bindings:
            return
        if len(source.bindings) >= BINDINGS_OF_EXCHANGE_MAX:
            raise LimitExceeded(f"{len(source.bindings)} bindings of exchange {source.name!r}")
        if self.binding_count >= BINDINGS_MAX:
            raise LimitExceeded(f"{self.binding_count} bindings of exchanges, limit {BINDINGS_MAX}")
        if len(binding.arguments) > BINDING_ARGUMENTS_BYTES_MAX:
            raise LimitExceeded(
                f"the arguments of a binding of exchange {source.name!r} have {len(binding.arguments)} bytes, limit "
                f"{BINDING_ARGUMENTS_BYTES_MAX}"
            )
        self._adopt(source, binding)
        if durable:
            try:
                self._store.store_setting(SettingRecord(SettingKind.EXCHANGE_BINDING, binding_key(binding), {}))
            except BaseException:
                self._forget(source, binding)
                raise
        if self.listener is not None:
            self.listener.bound(source, binding)

    def unbind(self, binding: ExchangeBinding) -> None:
        """Remove a binding; one that does not exist is not missed. Raises ExchangeNotFound: its source is missing."""
        if binding in self.get(binding.source).bindings:
            self._remove(binding)

    def is_durable(self, binding: ExchangeBinding) -> bool:
        """Whether a binding that exists survives a restart: both of its ends do."""
        if binding.to_exchange:
            destination_durable = self.get(binding.destination).durable
        else:
            destination_durable = self._directory.queue(binding.destination).durable
        return self.get(binding.source).durable and destination_durable

    def bindings_of_queue(self, name: str) -> list[ExchangeBinding]:
        """Bindings that lead to a queue."""
        return list(self._of_queue.get(name, ()))

    def _adopt(self, source: Exchange, binding: ExchangeBinding) -> None:
        try:
            arguments = self.carrier.arguments(binding.arguments) if binding.arguments else {}
        except ValueError as error:
            raise ExchangeMismatch(f"arguments of a binding of {source.name!r}: {error}") from error
        source.matcher.add(binding, arguments)
        source.bindings[binding] = None
        self.changes += 1
        if binding.to_exchange:
            self.get(binding.destination).incoming[binding] = None
        else:
            self._of_queue.setdefault(binding.destination, {})[binding] = None
        self.binding_count += 1

    def _forget(self, source: Exchange, binding: ExchangeBinding) -> None:
        source.matcher.remove(binding)
        del source.bindings[binding]
        self.changes += 1
        self.binding_count -= 1
        if binding.to_exchange:
            self.by_name[binding.destination].incoming.pop(binding, None)
            return
        bindings = self._of_queue[binding.destination]
        del bindings[binding]
        if not bindings:
            del self._of_queue[binding.destination]

    def _remove(self, binding: ExchangeBinding) -> None:
        source = self.by_name.get(binding.source)
        if source is None or binding not in source.bindings:
            # of an exchange that is bound to itself, or that an auto-delete exchange in a circle has taken with it
            return
        self._forget(source, binding)
        if self.listener is not None:
            self.listener.unbound(source, binding)
        if (SettingKind.EXCHANGE_BINDING, key := binding_key(binding)) in self._store.state.settings:
            self._store.store_setting(SettingRecord(SettingKind.EXCHANGE_BINDING, key, None))
        if source.configuration.auto_delete and not source.bindings:
            self.delete(source.name)

    # -- routing --------------------------------------------------------------------------------

    def route(
        self, exchange: Exchange, keys: tuple[str, ...], headers: Mapping[str, object], message: Message
    ) -> tuple[Queue, ...]:
        """The queues that a message gets to, each once.

        Args:
            exchange: To which it was published.
            keys: Routing keys of the message, at least one.
            headers: Headers of the message, for exchanges of the type headers.
            message: The message, for the filters of queues that CORE clients have made.
        """
        return tuple(
            queue
            for queue in self._reached(exchange, keys, headers, message) or ()
            if queue.takes_messages and (queue.filter is None or queue.filter.matches(message))
        )

    def route_of_key(self, exchange: Exchange, key: str) -> tuple[Queue, ...] | None:
        """The queues that every message with a routing key gets to; None: they depend on the message or on time."""
        if exchange.is_default:
            named = self._directory.queues.get(exchange.name + key)
            found = {} if named is None or named.internal else {named: None}
            if not found:
                return None
        else:
            reached = self._reached(exchange, (key,), None, None)
            if reached is None:
                return None
            found = reached
        for queue in found:
            if queue.filter is not None or not queue.enabled or queue.purge_on_no_consumers:
                return None
        return tuple(found)

    def _reached(
        self, exchange: Exchange, keys: tuple[str, ...], headers: Mapping[str, object] | None, message: Message | None
    ) -> dict[Queue, None] | None:
        """The queues at the end of all bindings that a message matches.

        Args:
            exchange: The exchange to which it was published.
            keys: Routing keys of the message.
            headers: Headers of the message; None: they are not known.
            message: The message, for anycast addresses; None: it is not known.

        Returns:
            The queues; None: they depend on headers or a message that is not given.
        """
        found: dict[Queue, None] = {}
        # each exchange is looked at once and no call is nested, so neither circles nor the depth of the graph need a
        # limit: the work for a message is bounded by the numbers of exchanges and bindings
        seen = {exchange}
        waiting = [exchange]
        while waiting:
            current = waiting.pop()
            if headers is None and current.configuration.type == HEADERS:
                return None
            if message is None and current.is_default:
                # the queue of an anycast address has its turn
                return None
            matched = False
            for queue, following in self._step(current, keys, headers or {}, message):
                matched = True
                if queue is not None:
                    found[queue] = None
                elif following is not None and following not in seen:
                    seen.add(following)
                    waiting.append(following)
            alternate = current.configuration.alternate
            if not matched and alternate is not None:
                target = self.find(alternate)
                if target is not None and target not in seen:
                    seen.add(target)
                    waiting.append(target)
        return found

    def _step(
        self, exchange: Exchange, keys: tuple[str, ...], headers: Mapping[str, object], message: Message | None
    ) -> Iterator[tuple[Queue | None, Exchange | None]]:
        """Queue or exchange at the end of each binding of one exchange that a message matches."""
        if exchange.read_only:
            return
        if exchange.is_default and message is not None:
            for key in keys:
                queue = self._named(exchange.name + key, message)
                if queue is not None:
                    yield queue, None
            return
        queues = self._directory.queues
        for key in keys if exchange.matcher.reads_keys else keys[:1]:
            for binding in exchange.matcher.match(key, headers):
                if binding.to_exchange:
                    yield None, self.by_name.get(binding.destination)
                else:
                    queue = queues.get(binding.destination)
                    if queue is not None:
                        yield queue, None

    def _named(self, name: str, message: Message) -> Queue | None:
        """The queue that the default exchange leads to: of the name, or of an anycast address of the name."""
        queue = self._directory.queues.get(name)
        if queue is not None:
            return None if queue.internal else queue
        address = self._directory.addresses.get(name)
        if address is None or address.internal or RoutingType.ANYCAST not in address.routing_types:
            return None
        queues = address.route(message, RoutingType.ANYCAST)
        return queues[0] if queues else None

    # -- the log --------------------------------------------------------------------------------

    def restore(self, state: StoreState) -> None:
        """Take over the exchanges and bindings of the log; queues were taken over before. Bindings of what is missing
        are left for ``settle``.

        Raises:
            StoreError: a record that no broker could have written.
        """
        settings = list(state.settings.values())
        for record in settings:
            if record.scope is SettingKind.EXCHANGE:
                try:
                    configuration = ExchangeConfiguration(**(record.values or {}))  # type: ignore[arg-type]  # the class checks them
                    self.by_name[record.match] = Exchange(configuration)
                except (TypeError, ExchangeMismatch) as error:
                    raise StoreError(f"exchange {record.match!r} in the log is none: {error}") from error
        for record in settings:
            if record.scope is SettingKind.EXCHANGE_BINDING:
                try:
                    binding = _binding(record.match)
                    source = self.find(binding.source)
                    if source is not None and self._has(binding):
                        self._adopt(source, binding)
                except (ValueError, TypeError, ExchangeMismatch) as error:
                    raise StoreError(f"a binding of an exchange in the log is none: {error}") from error

    def settle(self) -> None:
        """Remove the records of bindings whose queue or exchange a crash has left out."""
        for record in list(self._store.state.settings.values()):
            if record.scope is SettingKind.EXCHANGE_BINDING:
                binding = _binding(record.match)
                source = self.by_name.get(binding.source)
                if source is None or binding not in source.bindings:
                    self._store.store_setting(SettingRecord(SettingKind.EXCHANGE_BINDING, record.match, None))

    def _has(self, binding: ExchangeBinding) -> bool:
        if binding.to_exchange:
            return self.find(binding.destination) is not None
        return binding.destination in self._directory.queues

    # -- RoutingListener ------------------------------------------------------------------------

    def queue_removed(self, queue: Queue) -> None:
        """Remove the bindings of a queue that was deleted."""
        self.changes += 1
        for binding in self.bindings_of_queue(queue.name):
            self._remove(binding)

    def address_added(self, address: Address) -> None:
        """Do nothing: no binding belongs to an address."""

    def address_removed(self, address: Address) -> None:
        """Do nothing: no binding belongs to an address."""

    def queue_added(self, queue: Queue) -> None:
        """Do nothing: a new queue has no binding."""

    def consumer_added(self, queue: Queue, consumer: Consumer) -> None:
        """Do nothing: consumers do not matter to routing."""

    def consumer_removed(self, queue: Queue, consumer: Consumer) -> None:
        """Do nothing: consumers do not matter to routing."""

    def queue_updated(self, queue: Queue) -> None:
        """Do nothing: filters are read when a message is routed."""

    def settings_changed(self, address: Address) -> None:
        """Note that messages of an address may have a durability contract of their own from now on."""
        self.changes += 1


def binding_key(binding: ExchangeBinding) -> str:
    """The match of the record of a binding."""
    values = [binding.source, binding.destination, binding.to_exchange, binding.key, binding.arguments.hex()]
    return json.dumps(values, separators=(",", ":"))


def _binding(key: str) -> ExchangeBinding:
    """The binding of a record. Raises ValueError, TypeError."""
    source, destination, to_exchange, routing_key, arguments = json.loads(key)
    return ExchangeBinding(source, destination, to_exchange, routing_key, bytes.fromhex(arguments))
