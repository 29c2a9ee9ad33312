"""Address settings and security settings that management changes at run time: in force at once, kept, refused."""

from __future__ import annotations

import json
from typing import Any

import pytest

from support.core import Client
from support.managed import ManagedWorld
from support.routing import World, callback_of, manual_time, text
from understudy.config.json_settings import ADDRESS_SETTING_ROWS
from understudy.config.model import SecuritySettingConfiguration
from understudy.errors import AddressFull, StoreError
from understudy.management.operations.resources import BrokerControls
from understudy.routing.restore import restore
from understudy.security.authentication import Authenticator
from understudy.security.authorization import RoleSecurity
from understudy.security.password_hashes import HashParameters, PasswordHash
from understudy.security.settings import SecuritySettings
from understudy.store.setting_record import SettingKind, SettingRecord
from understudy.terms import Permission
from understudy.wire.core import packets

CHEAP = HashParameters(n=2, r=1, p=1)
USERS = {"ann": frozenset({"staff"}), "root": frozenset({"admin"})}


class Entropy:
    def token(self, length_bytes: int) -> bytes:
        return b"\7" * length_bytes


def add(node: ManagedWorld, match: str, **values: object) -> Any:
    return json.loads(node.ask("broker", "addAddressSettings", match, json.dumps(values)))


def in_force(node: ManagedWorld, address: str) -> Any:
    return json.loads(node.ask("broker", "getAddressSettingsAsJSON", address))


def test_added_settings_are_returned_and_apply_at_once() -> None:
    node = ManagedWorld()
    node.world.queue("q")
    assert add(node, "q", redeliveryDelay=500, addressFullMessagePolicy="FAIL", redeliveryMultiplier=2.5) == {
        "redeliveryDelay": 500,
        "addressFullMessagePolicy": "FAIL",
        "redeliveryMultiplier": 2.5,
    }
    found = in_force(node, "q")
    assert (found["redeliveryDelay"], found["addressFullMessagePolicy"]) == (500, "FAIL")
    assert in_force(node, "other")["redeliveryDelay"] == 0


def test_a_redelivery_delay_counts_for_a_queue_that_exists() -> None:
    node = ManagedWorld()
    queue = node.world.queue("q")
    session = node.world.session(auto_commit_acks=False)
    session.consumers.create(0, "q")
    session.consumers.receive_credits(0, -1)
    session.sends.send(text("m"))
    node.world.turn()
    add(node, "q", redeliveryDelay=5_000)
    session.rollback(True)
    node.world.turn()
    assert queue.scheduled_count == 1
    node.ask("broker", "removeAddressSettings", "q")
    assert queue.address.settings.redelivery_delay == 0


def test_a_paging_limit_counts_for_an_address_that_exists() -> None:
    node = ManagedWorld()
    node.world.queue("q")
    session = node.world.session()
    session.sends.send(text("one"))
    add(node, "#", pageLimitMessages=1, pageFullMessagePolicy="FAIL")
    session.sends.send(text("two"))
    assert isinstance(callback_of(session).errors[-1], AddressFull)
    node.ask("broker", "removeAddressSettings", "#")
    session.sends.send(text("three"))
    assert len(callback_of(session).errors) == 1


def test_blocked_producers_get_credits_when_a_limit_is_raised() -> None:
    node = ManagedWorld()
    node.world.queue("q")
    add(node, "q", maxSizeBytes=10, addressFullMessagePolicy="BLOCK")
    session = node.world.session()
    session.sends.send(text("fills it"))
    session.sends.request_credits("q", 100)
    assert callback_of(session).credits == []
    add(node, "q", maxSizeBytes=1_000_000, addressFullMessagePolicy="BLOCK")
    node.world.turn()
    assert callback_of(session).credits == [("q", 100)]


def test_fewer_duplicate_ids_are_kept_when_the_settings_say_so() -> None:
    node = ManagedWorld()
    address = node.world.queue("q").address
    for number in range(5):
        address.duplicate_ids.add(bytes([number]), 0)
    add(node, "q", idCacheSize=2)
    assert (len(address.duplicate_ids), address.duplicate_ids.capacity) == (2, 2)
    assert bytes([4]) in address.duplicate_ids


def test_listeners_are_called_for_addresses_whose_settings_changed() -> None:
    node = ManagedWorld()
    seen: list[str] = []
    node.world.queue("q")

    class Listener:
        def queue_updated(self, queue: Any) -> None:
            pass

        def settings_changed(self, address: Any) -> None:
            seen.append(address.name)

    node.office.directory.listeners.append(Listener())  # type: ignore[arg-type]
    add(node, "q", slowConsumerThreshold=10)
    add(node, "q", slowConsumerThreshold=10)
    assert seen == ["q"]


def test_they_are_found_after_a_restart_before_those_of_the_configuration() -> None:
    node = ManagedWorld()
    node.world.queue("q")
    add(node, "q", redeliveryDelay=7)
    node.ask("broker", "addSecuritySettings", "q", *["a,b"] * 7)
    add(node, "gone", redeliveryDelay=8)
    node.ask("broker", "removeAddressSettings", "gone")
    configured = {"q": {"redelivery_delay": 1, "max_delivery_attempts": 3}, "gone": {"redelivery_delay": 2}}
    again = ManagedWorld(world=World(configured, store=node.world.store))
    restore(again.office, node.world.store.found())
    settings = again.office.directory.addresses["q"].settings
    assert (settings.redelivery_delay, settings.max_delivery_attempts) == (7, 10), "the block is replaced whole"
    assert again.office.directory.settings.of("gone").redelivery_delay == 2
    assert [role["name"] for role in json.loads(again.ask("broker", "getRolesAsJSON", "q"))] == ["a", "b"]
    again.ask("broker", "removeAddressSettings", "q")
    assert again.office.directory.addresses["q"].settings.redelivery_delay == 1


@pytest.mark.parametrize(
    ("match", "values", "complaint"),
    [
        ("q", {"redeliveryDelai": 1}, "unknown address setting 'redeliveryDelai'"),
        ("q", {"redeliveryDelay": "1"}, "redeliveryDelay: '1' is no milliseconds"),
        ("q", {"redeliveryDelay": True}, "redeliveryDelay: True is no milliseconds"),
        ("q", {"redeliveryDelay": -5}, "outside"),
        ("q", {"redeliveryMultiplier": float("nan")}, "no number"),
        ("q", {"addressFullMessagePolicy": "KEEP"}, "'KEEP' is not one of"),
        ("q", {"maxSizeBytes": 10, "pageSizeBytes": 20}, "pageSizeBytes 20 is more than maxSizeBytes 10"),
        ("a.#.b", {}, "only possible at the end"),
        ("", {}, "the match is empty"),
        ("q", {"deadLetterAddress": "x" * 70_000}, "limit"),
    ],
)
def test_invalid_settings_are_refused_and_change_nothing(match: str, values: dict[str, object], complaint: str) -> None:
    node = ManagedWorld()
    before = node.world.store.last_sequence
    assert complaint in node.refused("broker", "addAddressSettings", match, json.dumps(values))
    assert node.world.store.last_sequence == before
    assert not node.world.store.found().settings


@pytest.mark.parametrize("text_of_it", ["[]", "{", "null"])
def test_a_body_that_is_not_a_json_object_is_refused(text_of_it: str) -> None:
    assert "JSON" in ManagedWorld().refused("broker", "addAddressSettings", "q", text_of_it)


def test_every_form_of_artemis_is_there() -> None:
    rows = [row for row in BrokerControls.operations.rows if row.name == "addAddressSettings"]
    assert sorted(len(row.parameters) for row in rows) == [2, 22, 26, 49, 55, 58]
    longest = max(rows, key=lambda row: len(row.parameters))
    assert {parameter.name for parameter in longest.parameters[1:]} < ADDRESS_SETTING_ROWS.keys()


def test_the_long_form_sets_every_value() -> None:
    node = ManagedWorld()
    add(node, "#", redeliveryDelay=1, minExpiryDelay=9)
    given = ("DLA", None, 5, True, 3, 1_000, 100, 5, 70, 1.5, 80, -1, True, "drop", -1, 5, "", True, True, True, True)
    node.ask("broker", "addAddressSettings", "q", *given)
    found = in_force(node, "q")
    assert (found["deadLetterAddress"], found["redeliveryDelay"], found["redeliveryMultiplier"]) == ("DLA", 70, 1.5)
    assert (found["addressFullMessagePolicy"], found["slowConsumerPolicy"]) == ("DROP", "NOTIFY")
    assert found["minExpiryDelay"] == -1, "a value that the form does not name is the default"


# -- security -----------------------------------------------------------------------------------------


def secured() -> ManagedWorld:
    entropy, clock = Entropy(), manual_time()
    users = {user: PasswordHash.make("pw", entropy, CHEAP) for user in USERS}
    everything = {permission: frozenset({"admin"}) for permission in Permission}
    settings = SecuritySettings([SecuritySettingConfiguration("#", everything)])
    node = ManagedWorld(
        security=RoleSecurity(Authenticator(users, USERS, entropy, clock), settings),
        configuration={"security_settings": (SecuritySettingConfiguration("#", everything),)},
    )
    node.world.queue("q")
    return node


def log_in(node: ManagedWorld, user: str) -> Client:
    client = node.client()
    client.send(packets.CreateSession(name="s" * 40, session_channel_id=10, version=136, user=user, password="pw"), 1)
    node.worker.work()
    assert isinstance(client.received()[0], packets.CreateSessionResponse)
    return client


def roles_for(*names: str) -> list[str]:
    """Parameters of addSecuritySettings that grant these roles send, and no role anything else."""
    return [",".join(names), *[""] * 11]


def send(client: Client, body: str) -> packets.Packet:
    client.send_message(body, address="q")
    return client.received()[-1]


def test_a_permission_is_granted_and_revoked_at_once_for_a_session_that_exists() -> None:
    node = secured()
    ann = log_in(node, "ann")
    assert isinstance(send(ann, "no"), packets.ExceptionResponse)
    node.ask("broker", "addSecuritySettings", "q", *roles_for("staff", "admin"))
    assert not isinstance(send(ann, "yes"), packets.ExceptionResponse)
    node.ask("broker", "removeSecuritySettings", "q")
    assert isinstance(send(ann, "no more"), packets.ExceptionResponse)
    assert node.office.directory.queues["q"].message_count == 1


def test_roles_are_shown_as_they_were_added() -> None:
    node = ManagedWorld()
    node.ask("broker", "addSecuritySettings", "a.#", "x, y", "y", None, "", "", "", "admin", "", "", "", "v", "e")
    rows = {row["name"]: row for row in json.loads(node.ask("broker", "getRolesAsJSON", "a.b"))}
    assert rows["x"]["send"] is True
    assert rows["x"]["consume"] is False
    assert rows["y"]["consume"] is True
    assert rows["v"]["view"] is True
    assert rows["e"]["edit"] is True
    node.ask("broker", "removeSecuritySettings", "a.#")
    assert json.loads(node.ask("broker", "getRolesAsJSON", "a.b")) == []


def test_a_match_of_a_queue_needs_both_names() -> None:
    node = ManagedWorld()
    assert "'::'" in node.refused("broker", "addSecuritySettings", "a.#::q", *[""] * 7)


@pytest.mark.parametrize(
    "record",
    [
        SettingRecord(SettingKind.ADDRESS, "a", {"maxSizeBytes": "x"}),
        SettingRecord(SettingKind.ADDRESS, "a", {"notASetting": 1}),
        SettingRecord(SettingKind.SECURITY, "a", {"send": "x"}),
        SettingRecord(SettingKind.SECURITY, "a", {"sing": []}),
    ],
)
def test_a_setting_in_the_log_that_no_broker_wrote_is_an_error_of_the_store(record: SettingRecord) -> None:
    world = World()
    world.store.store_setting(record)
    with pytest.raises(StoreError, match="'a'"):
        ManagedWorld(world=world)


def test_a_node_without_security_keeps_security_settings() -> None:
    node = ManagedWorld()
    node.ask("broker", "addSecuritySettings", "q", *roles_for("x"))
    assert list(node.world.store.found().settings) == [(SettingKind.SECURITY, "q")]
