"""Address settings: matches, merging, defaults (manual, "Address Settings")."""

from __future__ import annotations

import pytest

from understudy.config.model import AddressFullPolicy, AddressSettingsConfiguration, PageFullPolicy, RoutingType
from understudy.routing.settings import AddressSettings, AddressSettingsRepository


def test_without_any_block_the_documented_defaults_hold() -> None:
    settings = AddressSettingsRepository().of("any")
    assert settings == AddressSettings()
    assert settings.max_delivery_attempts == 10
    assert settings.address_full_policy is AddressFullPolicy.PAGE
    assert settings.default_address_routing_type is RoutingType.MULTICAST


def test_the_more_specific_block_wins_and_inherits_the_rest() -> None:
    repository = AddressSettingsRepository(
        [
            ("#", {"max_delivery_attempts": 3, "dead_letter_address": "DLQ", "redelivery_delay": 1}),
            ("orders.#", {"redelivery_delay": 2}),
            ("orders.*", {"redelivery_delay": 3}),
            ("orders.eu", {"max_delivery_attempts": 7, "redelivery_delay": None}),
        ]
    )
    assert repository.of("x").redelivery_delay == 1
    assert repository.of("orders.a.b").redelivery_delay == 2
    assert repository.of("orders.us").redelivery_delay == 3
    europe = repository.of("orders.eu")
    assert (europe.max_delivery_attempts, europe.redelivery_delay, europe.dead_letter_address) == (7, 3, "DLQ")


def test_a_changed_block_is_seen_at_once() -> None:
    repository = AddressSettingsRepository([("#", {"max_delivery_attempts": 3})])
    assert repository.of("a").max_delivery_attempts == 3
    repository.add(AddressSettingsConfiguration("a", max_delivery_attempts=4))
    assert repository.of("a").max_delivery_attempts == 4
    repository.remove("a")
    assert repository.of("a").max_delivery_attempts == 3


def test_an_unknown_name_is_refused() -> None:
    with pytest.raises(KeyError, match="max_delivery_attemps"):
        AddressSettingsRepository([("#", {"max_delivery_attemps": 3})])


def test_from_configuration_takes_every_field_of_the_same_name() -> None:
    block = AddressSettingsConfiguration(
        match="q.#",
        address_full_policy=AddressFullPolicy.FAIL,
        page_full_policy=PageFullPolicy.DROP,
        max_size_bytes=10,
        default_queue_routing_type=RoutingType.ANYCAST,
    )
    settings = AddressSettingsRepository.from_configuration([block]).of("q.a")
    assert settings.address_full_policy is AddressFullPolicy.FAIL
    assert settings.page_full_policy is AddressFullPolicy.DROP
    assert settings.max_size_bytes == 10
    assert settings.default_queue_routing_type is RoutingType.ANYCAST
    assert settings.auto_create_queues is True


@pytest.mark.parametrize(
    ("count", "expected"), [(1, 100), (2, 200), (3, 400), (4, 500), (50_000, 500)], ids=lambda value: str(value)
)
def test_redelivery_delay_grows_up_to_its_maximum(count: int, expected: int) -> None:
    settings = AddressSettings(redelivery_delay=100, redelivery_delay_multiplier=2.0, max_redelivery_delay=500)
    assert settings.redelivery_delay_ms(count) == expected


def test_without_a_maximum_the_delay_stops_at_ten_times() -> None:
    assert AddressSettings(redelivery_delay=100, redelivery_delay_multiplier=9.0).redelivery_delay_ms(5) == 1000
    assert AddressSettings().redelivery_delay_ms(5) == 0


def test_redelivery_delays_are_varied_within_their_share() -> None:
    settings = AddressSettings(redelivery_delay=1000, redelivery_collision_avoidance_factor=0.25)
    assert [settings.redelivery_delay_ms(1, share) for share in (-1.0, 0.0, 0.5, 1.0)] == [750, 1000, 1125, 1250]
    capped = AddressSettings(
        redelivery_delay=1000, max_redelivery_delay=1100, redelivery_collision_avoidance_factor=0.5
    )
    assert capped.redelivery_delay_ms(1, 1.0) == 1100
    assert AddressSettings(redelivery_delay=1000).redelivery_delay_ms(1, 1.0) == 1000
