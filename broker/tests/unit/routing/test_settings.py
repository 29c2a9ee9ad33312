"""Address settings: matches, merging, defaults (manual, "Address Settings")."""

from __future__ import annotations

import pytest

from understudy.config.model import AddressSettingsConfiguration
from understudy.routing.addresses.settings import AddressSettings, AddressSettingsRepository
from understudy.terms import AddressFullPolicy, PageFullPolicy, RoutingType
from understudy.wildcards import Wildcards


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


def test_a_literal_match_is_for_the_address_that_is_named_like_a_wildcard() -> None:
    wildcards = Wildcards(literal_markers="()")
    blocks: dict[str, dict[str, object]] = {
        "a.#": {"redelivery_delay": 1, "max_delivery_attempts": 1},
        "(a.#)": {"redelivery_delay": 2, "expiry_address": "literal"},
        "(b)": {"redelivery_delay": 3},
        "b": {"redelivery_delay": 4},
    }
    settings = AddressSettingsRepository(blocks.items(), wildcards)
    assert (settings.of("a.b").redelivery_delay, settings.of("a.b").expiry_address) == (1, None)
    found = settings.of("a.#")
    assert (found.redelivery_delay, found.max_delivery_attempts, found.expiry_address) == (2, 1, "literal")
    assert settings.of("b").redelivery_delay == 4, "no wildcard goes before a literal match, as in Artemis"
    assert AddressSettingsRepository(blocks.items()).of("a.#").redelivery_delay == 1


@pytest.mark.parametrize("name", ["0f8fad5b-d9cb-469f-a165-70867728950e", "0F8FAD5B-D9CB-469F-A165-70867728950E"])
def test_settings_of_a_name_that_is_a_uuid_are_those_of_the_namespace(name: str) -> None:
    blocks: dict[str, dict[str, object]] = {"temp.#": {"redelivery_delay": 1}, "#": {"redelivery_delay": 2}}
    settings = AddressSettingsRepository(blocks.items(), Wildcards(uuid_namespace="temp"))
    assert settings.of(name).redelivery_delay == 1
    for other in (name[:-1], name[:-1] + "g", name.replace("-", "", 1) + "0", "temp", ""):
        assert settings.of(other).redelivery_delay == (1 if other == "temp" else 2)
    assert AddressSettingsRepository(blocks.items()).of(name).redelivery_delay == 2


def test_addresses_that_the_same_blocks_fit_share_one_object() -> None:
    repository = AddressSettingsRepository([("#", {"redelivery_delay": 1}), ("orders.#", {"redelivery_delay": 2})])
    assert repository.of("orders.a") is repository.of("orders.b")
    assert repository.of("orders.a") is not repository.of("other")
    before = repository.of("orders.a")
    repository.add(AddressSettingsConfiguration("orders.#", redelivery_delay=3))
    assert repository.of("orders.b").redelivery_delay == 3
    assert before.redelivery_delay == 2
