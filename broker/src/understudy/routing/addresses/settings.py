"""Address settings: what holds for an address, found by wildcard match.

Names and defaults are those of Artemis' ``address-setting`` (manual, "Address Settings";
artemis-ha s. 9). A configured block names only the changed settings; for one address the blocks that match are
laid over each other, the more specific over the less, over the defaults.

Not here: reading broker.xml (``config``), or acting on any of this.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import fields
from enum import Enum
from typing import Final

from understudy.config.model import AddressSettingsConfiguration, ConfigDeletionPolicy
from understudy.dataclass import dataclass
from understudy.store.log.operation_context import Contract, Lane, OperationContext
from understudy.terms import AddressFullPolicy, DurabilityContract, RoutingType, SlowConsumerPolicy, SlowConsumerUnit
from understudy.wildcards import DEFAULT_WILDCARDS, Wildcards, fits, literal_of, looked_up_name, prefix_of, specificity

#: Manual: "Setting this to 0 means max-redelivery-delay = 10 x redelivery-delay".
_MAX_REDELIVERY_FACTOR: Final = 10


@dataclass(frozen=True, slots=True)
class AddressSettings:
    """All settings of one address, in bytes and milliseconds; -1 = none."""

    address_full_policy: AddressFullPolicy = AddressFullPolicy.PAGE
    max_size_bytes: int = -1
    """Bytes of messages; under PAGE the bytes of bodies kept in memory."""
    max_size_messages: int = -1
    max_size_bytes_reject_threshold: int = -1
    """Under BLOCK: bytes from which on messages are refused, with credits or without."""
    page_limit_bytes: int = -1
    """Under PAGE: bytes of messages beyond ``max_size_bytes`` from which on ``page_full_policy`` applies."""
    page_limit_messages: int = -1
    page_full_policy: AddressFullPolicy | None = None
    """DROP or FAIL; None = no limit is enforced."""
    disk_full_policy: AddressFullPolicy | None = None
    """DROP, FAIL or BLOCK: what happens to producers and messages while the disk is full; None = BLOCK."""
    page_size_bytes: int = 10 * 1024 * 1024
    """Size of a page file."""
    max_read_page_bytes: int = 20 * 1024 * 1024
    """Most bytes of bodies read ahead for a queue."""
    max_read_page_messages: int = -1
    """Most bodies read ahead for a queue."""
    prefetch_page_bytes: int = -1
    """The smaller of this and ``max_read_page_bytes`` counts."""
    prefetch_page_messages: int = -1
    dead_letter_address: str | None = None
    auto_create_dead_letter_resources: bool = False
    dead_letter_queue_prefix: str = "DLQ."
    dead_letter_queue_suffix: str = ""
    max_delivery_attempts: int = 10
    """-1 = without end."""
    redelivery_delay: int = 0
    redelivery_delay_multiplier: float = 1.0
    max_redelivery_delay: int = 0
    """0 = ten times ``redelivery_delay``."""
    redelivery_collision_avoidance_factor: float = 0.0
    """Share by which the delay is varied at random, up and down."""
    expiry_address: str | None = None
    auto_create_expiry_resources: bool = False
    expiry_queue_prefix: str = "EXP."
    expiry_queue_suffix: str = ""
    expiry_delay: int = -1
    """Expiration given to messages that have none."""
    min_expiry_delay: int = -1
    max_expiry_delay: int = -1
    no_expiry: bool = False
    """Expirations of messages are removed."""
    send_to_dla_on_no_route: bool = False
    auto_create_addresses: bool = True
    auto_create_queues: bool = True
    auto_delete_addresses: bool = True
    auto_delete_addresses_delay: int = 0
    auto_delete_queues: bool = True
    auto_delete_created_queues: bool = False
    auto_delete_queues_delay: int = 0
    auto_delete_queues_message_count: int = 0
    auto_delete_queues_skip_usage_check: bool = False
    auto_delete_addresses_skip_usage_check: bool = False
    enable_ingress_timestamp: bool = False
    """Messages are stamped with the time they came (``_AMQ_INGRESS_TIMESTAMP``)."""
    default_address_routing_type: RoutingType = RoutingType.MULTICAST
    default_queue_routing_type: RoutingType = RoutingType.MULTICAST
    default_max_consumers: int = -1
    default_purge_on_no_consumers: bool = False
    default_exclusive_queue: bool = False
    default_last_value_queue: bool = False
    default_last_value_key: str | None = None
    default_non_destructive: bool = False
    default_consumers_before_dispatch: int = 0
    default_delay_before_dispatch: int = -1
    default_consumer_window_size: int = 1024 * 1024
    default_group_rebalance: bool = False
    default_group_rebalance_pause_dispatch: bool = False
    default_group_buckets: int = -1
    default_group_first_key: str | None = None
    default_ring_size: int = -1
    config_delete_queues: ConfigDeletionPolicy = ConfigDeletionPolicy.OFF
    """Whether queues go that have gone from the configuration, at the next activation."""
    config_delete_addresses: ConfigDeletionPolicy = ConfigDeletionPolicy.OFF
    """Deletion of addresses that the configuration does not contain any more, with their queues."""
    redistribution_delay: int = -1
    message_counter_history_day_limit: int = 0
    """Days of message counters kept of its queues; -1 = all."""
    management_browse_page_size: int = 200
    """Number of messages that one management operation lists."""
    management_message_attribute_size_limit: int = 256
    """Number of characters of a property that management shows; -1: all."""
    slow_consumer_threshold: int = -1
    """Messages acknowledged per unit below which a consumer is slow; -1 = none is."""
    slow_consumer_threshold_measurement_unit: SlowConsumerUnit = SlowConsumerUnit.MESSAGES_PER_SECOND
    slow_consumer_policy: SlowConsumerPolicy = SlowConsumerPolicy.NOTIFY
    slow_consumer_check_period: int = 5
    """Seconds from one check of slow consumers to the next."""
    retroactive_message_count: int = 0
    """Last messages of the address that a queue made later gets."""
    enable_metrics: bool = True
    """Queues of the address have metrics of their own."""
    id_cache_size: int | None = None
    """Duplicate ids remembered; None = the broker's id-cache-size."""
    durability_contract: DurabilityContract | None = None
    """Contract of the messages while a replica is in sync; None = that of the ha-policy."""

    def redelivery_delay_ms(self, delivery_count: int, share: float = 0.0) -> int:
        """Wait before a message that was tried ``delivery_count`` times is tried again (manual,
        "Configuring delayed redelivery").

        Args:
            share: Random, -1 to 1: how much of the variance that the settings allow is used.
        """
        if self.redelivery_delay <= 0:
            return 0
        ceiling = self.max_redelivery_delay or self.redelivery_delay * _MAX_REDELIVERY_FACTOR
        delay: float = self.redelivery_delay
        if self.redelivery_delay_multiplier != 1.0:
            # The exponent is bounded: attempts may be unlimited and floats are not.
            delay *= self.redelivery_delay_multiplier ** min(max(delivery_count - 1, 0), 1000)
        delay *= 1 + self.redelivery_collision_avoidance_factor * share
        return max(int(min(delay, ceiling)), 0)


_FIELDS: Final = tuple(field.name for field in fields(AddressSettings))
_POLICIES: Final = frozenset({"address_full_policy", "page_full_policy", "disk_full_policy"})
_ENUMS: Final[dict[str, type[Enum]]] = {
    "slow_consumer_policy": SlowConsumerPolicy,
    "slow_consumer_threshold_measurement_unit": SlowConsumerUnit,
}
_ROUTING_TYPES: Final = frozenset({"default_address_routing_type", "default_queue_routing_type"})

#: Addresses whose settings are remembered; beyond it the memory starts anew.
_CACHE_MAX: Final = 10_000


class AddressSettingsRepository:
    """Blocks of settings by match, and the merged result for any address.

    A block that management added replaces that of the configuration for the same match, until it is removed.
    """

    def __init__(
        self,
        blocks: Iterable[tuple[str, Mapping[str, object]]] = (),
        wildcards: Wildcards = DEFAULT_WILDCARDS,
        durability_contract: DurabilityContract = DurabilityContract.REPLICA_DISK,
    ) -> None:
        """Args:
        blocks: (match, values by field name of ``AddressSettings``); a value of None means "not
            set here". Enum values may be given as their names.
        wildcards: How matches are written.
        durability_contract: Durability contract of addresses that have none of their own.
        """
        self.wildcards = wildcards
        self._durability_contract = Contract[durability_contract.name]
        self._configured: dict[str, dict[str, object]] = {}
        self._added: dict[str, dict[str, object]] = {}
        self._blocks: dict[str, dict[str, object]] = {}
        self._order: list[tuple[str, str | None, str]] = []
        """Each match, the address that it stands for if it is literal, and what addresses that fit it begin with."""
        self._cache: dict[str, AddressSettings] = {}
        self._by_matches: dict[tuple[str, ...], AddressSettings] = {}
        self._configured = {match: _clean(match, values) for match, values in blocks}
        self._changed()

    @classmethod
    def from_configuration(
        cls,
        blocks: Iterable[AddressSettingsConfiguration],
        wildcards: Wildcards = DEFAULT_WILDCARDS,
        durability_contract: DurabilityContract = DurabilityContract.REPLICA_DISK,
    ) -> AddressSettingsRepository:
        """A repository of the configuration, whose fields are named like those here, None being inherited."""
        return cls(((block.match, _values_of(block)) for block in blocks), wildcards, durability_contract)

    def configure(self, blocks: Iterable[AddressSettingsConfiguration]) -> None:
        """Replace the blocks of the configuration; those that management added stay."""
        self._configured = {block.match: _clean(block.match, _values_of(block)) for block in blocks}
        self._changed()

    def add(self, block: AddressSettingsConfiguration) -> None:
        """Add a block of management, which replaces the whole block of its match."""
        self._added[block.match] = _clean(block.match, _values_of(block))
        self._changed()

    def remove(self, match: str) -> None:
        """Management removed the block it had added; the block of the configuration for the match counts again."""
        self._added.pop(match, None)
        self._changed()

    def entries(self) -> Iterator[tuple[str, Mapping[str, object], bool]]:
        """Match, values by field name, and whether management added it, of each block in force."""
        for match, values in self._blocks.items():
            yield match, values, match in self._added

    def _changed(self) -> None:
        self._blocks = self._configured | self._added
        # the least specific block first, so that later blocks overwrite earlier ones
        order = sorted(self._blocks, key=lambda match: specificity(match, self.wildcards), reverse=True)
        self._order = [(match, literal_of(match, self.wildcards), prefix_of(match, self.wildcards)) for match in order]
        self._cache.clear()
        self._by_matches.clear()

    def demand_contracts(self, context: OperationContext) -> None:
        """Set the contracts of the context: that of the node and those of all blocks, used or not."""
        configured = [block.get("durability_contract") for block in self._blocks.values()]
        own = [Contract[each.name] for each in configured if isinstance(each, DurabilityContract)]
        context.demand(self._durability_contract, own)

    def lane_of(self, settings: AddressSettings, context: OperationContext) -> Lane | None:
        """Lane in which messages of an address with these settings wait to be durable; None: the context."""
        own = settings.durability_contract
        return context.lane(None if own is None else Contract[own.name])

    def of(self, address: str) -> AddressSettings:
        """The settings that hold for an address."""
        found = self._cache.get(address)
        if found is None:
            found = self._merged(self._matching(address))
            if len(self._cache) >= _CACHE_MAX:
                self._cache.clear()
            self._cache[address] = found
        return found

    def _matching(self, address: str) -> tuple[str, ...]:
        """The matches that fit an address, least specific first."""
        name = looked_up_name(address, self.wildcards)
        return tuple(
            match
            for match, literal, prefix in self._order
            if match == name
            or (
                literal == name
                if literal is not None
                else name.startswith(prefix)
                and (match == self.wildcards.any_words or fits(match, name, self.wildcards))
            )
        )

    def _merged(self, fitting: tuple[str, ...]) -> AddressSettings:
        """Settings merged from these blocks: one object for all addresses that the blocks match."""
        found = self._by_matches.get(fitting)
        if found is None:
            values: dict[str, object] = {}
            for match in fitting:
                values.update(self._blocks[match])
            found = AddressSettings(**values)  # type: ignore[arg-type]  # put() checked the names
            if len(self._by_matches) >= _CACHE_MAX:
                self._by_matches.clear()
            self._by_matches[fitting] = found
        return found


def _values_of(block: AddressSettingsConfiguration) -> dict[str, object]:
    return {name: getattr(block, name, None) for name in _FIELDS}


def _clean(match: str, values: Mapping[str, object]) -> dict[str, object]:
    """The values that are set, as types of ``AddressSettings``. Raises KeyError for any other name."""
    clean = {name: _typed(name, value) for name, value in values.items() if value is not None}
    unknown = clean.keys() - set(_FIELDS)
    if unknown:
        raise KeyError(f"address setting {match!r}: {sorted(unknown)}")
    return clean


def _typed(name: str, value: object) -> object:
    """Enums may arrive as names or as another enum of the same values, as configuration has them."""
    text = value.value if isinstance(value, Enum) else value
    if name in _POLICIES:
        return AddressFullPolicy(str(text).upper())
    if name in _ENUMS:
        return _ENUMS[name](str(text).upper())
    if name == "durability_contract":
        return DurabilityContract(str(text).lower())
    if name in _ROUTING_TYPES and isinstance(text, str):
        return RoutingType[text.upper()]
    return value
