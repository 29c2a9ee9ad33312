"""Goal: the operations of a plan lead to the wanted state, a second plan is empty, and nothing is lost unasked.

Method: a model of the broker carries out the operations; rows are spelled as the broker does.
"""

from __future__ import annotations

import json
from typing import Any

import pytest
from ansible_collections.understudy.broker.plugins.module_utils.administration import (
    Administration,
    NodeIsPassive,
    Refused,
    carry_out,
)
from ansible_collections.understudy.broker.plugins.module_utils.destinations import (
    QUEUE_OPTIONS,
    STATES,
    Call,
    Plan,
    plan_address,
    plan_queue,
    setting_name,
    settings_of,
    typed,
)
from ansible_collections.understudy.broker.plugins.module_utils.management import Reply
from hypothesis import given
from hypothesis import strategies as st

DEFAULTS: dict[str, Any] = {"str": "", "int": -1, "bool": False}
BY_JSON = {option.json: (name, option) for name, option in QUEUE_OPTIONS.items()}


class Model:
    """The management of a broker in miniature."""

    def __init__(self) -> None:
        self.queues: dict[str, dict[str, Any]] = {}
        self.addresses: dict[str, dict[str, Any]] = {}
        self.settings: dict[str, dict[str, Any]] = {}
        self.asked: list[str] = []
        self.passive = False

    def invoke(self, operation: str, *parameters: Any, resource: str = "broker") -> Reply:
        if self.passive:
            return Reply(503, {"error": {"code": "not-active", "message": "it is passive"}})
        if not operation.startswith(("list", "get")):
            self.asked.append(operation)
        kind, name = resource.partition(".")[::2]
        owned = {"queue": self.queues, "address": self.addresses}.get(kind, {})
        if kind != "broker" and name not in owned:
            return Reply(422, {"error": {"code": "not-found", "message": f"no {kind} {name!r}"}})
        result = getattr(self, f"on_{operation}")(*([owned[name]] if kind != "broker" else []), *parameters)
        return Reply(200, {"result": result})

    def on_createQueue(self, text: str) -> None:  # noqa: N802
        given = json.loads(text)
        row = {option.row: DEFAULTS[option.kind] for option in QUEUE_OPTIONS.values()}
        row.update(durable=True, enabled=True, routingType="MULTICAST", address=given["name"])
        row.update(name=given["name"], paused=False, persistedPause=False)
        row.update(messageCount=0, deliveringCount=0, consumerCount=0)
        self.queues[given["name"]] = row
        self.on_updateQueue(text)

    def on_updateQueue(self, text: str) -> None:  # noqa: N802
        given = json.loads(text)
        row = self.queues[given.pop("name")]
        row.update((BY_JSON[key][1].row, value) for key, value in given.items())

    def on_destroyQueue(self, name: str, force: bool) -> None:  # noqa: N802
        assert force or not self.queues[name]["consumerCount"]
        del self.queues[name]

    def on_listQueues(self, options: str | None, _page: int, _size: int) -> str:  # noqa: N802
        return page(self.queues, options)

    def on_listAddresses(self, options: str | None, _page: int, _size: int) -> str:  # noqa: N802
        return page(self.addresses, options)

    def on_createAddress(self, name: str, types: str | None) -> None:  # noqa: N802
        self.addresses[name] = {"name": name, "paused": False, "queueCount": 0, "messageCount": 0}
        self.on_updateAddress(name, types or "MULTICAST")

    def on_updateAddress(self, name: str, types: str) -> None:  # noqa: N802
        self.addresses[name]["routingTypes"] = json.dumps(types.split(","))

    def on_deleteAddress(self, name: str, force: bool) -> None:  # noqa: N802
        assert force or not self.addresses[name]["queueCount"]
        del self.addresses[name]

    def on_getAddressSettingsAsJSON(self, name: str) -> str:  # noqa: N802
        return json.dumps({"maxSizeBytes": -1, **self.settings.get(name, {})})

    def on_addAddressSettings(self, name: str, text: str) -> None:  # noqa: N802
        self.settings[name] = json.loads(text)

    def on_removeAddressSettings(self, name: str) -> None:  # noqa: N802
        self.settings.pop(name, None)

    def on_pause(self, row: dict[str, Any], persist: bool) -> None:
        row["paused"] = True
        row["persistedPause"] = row.get("persistedPause") or persist

    def on_resume(self, row: dict[str, Any]) -> None:
        row["paused"] = row["persistedPause"] = False

    def on_removeAllMessages(self, row: dict[str, Any]) -> int:  # noqa: N802
        removed: int = row["messageCount"] - row["deliveringCount"]
        row["messageCount"] -= removed
        return removed


def page(rows: dict[str, dict[str, Any]], options: str | None) -> str:
    wanted = json.loads(options)["value"] if options else None
    found = [row for name, row in rows.items() if wanted in (None, name)]
    as_text = [
        {key: str(value).lower() if isinstance(value, bool) else str(value) for key, value in row.items()}
        for row in found
    ]
    return json.dumps({"data": as_text, "count": len(as_text)})


def values(kind: str) -> st.SearchStrategy[Any]:
    texts = st.text(st.sampled_from("abc "), max_size=4)
    return {"bool": st.booleans(), "int": st.integers(-1, 9), "str": texts}[kind]


OPTIONS = st.fixed_dictionaries(
    {},
    optional={
        name: st.sampled_from(["anycast", "multicast"]) if name == "routing_type" else values(option.kind)
        for name, option in QUEUE_OPTIONS.items()
        if not option.fixed
    },
)


def manage_queue(model: Model, state: str, wanted: dict[str, Any], **more: Any) -> Any:
    administration = Administration(model, "east-1")

    def look() -> tuple[dict[str, object] | None, Plan]:
        present = administration.queue("q")
        return present, plan_queue("q", state, wanted, present, **more)

    return carry_out(administration, look, dry_run=False, purges=state == "purged")


@given(st.lists(OPTIONS, min_size=1, max_size=4))
def test_a_queue_gets_what_is_wanted_and_a_second_run_does_nothing(wishes: list[dict[str, Any]]) -> None:
    model = Model()
    for wanted in wishes:
        change = manage_queue(model, "present", wanted)
        for name, value in wanted.items():
            assert change.present[name] == (value.strip() if isinstance(value, str) else value)
        asked = len(model.asked)
        again = manage_queue(model, "present", wanted)
        assert not again.changed
        assert len(model.asked) == asked
        assert manage_queue(model, "present", {}).changed is False, "what is not given stays"


@given(st.lists(st.sampled_from(STATES), max_size=6), st.integers(0, 3), st.integers(0, 3), st.booleans())
def test_no_state_loses_messages_unasked(states: list[str], messages: int, delivering: int, force: bool) -> None:
    model = Model()
    manage_queue(model, "present", {})
    model.queues["q"].update(messageCount=messages + delivering, deliveringCount=delivering)
    for state in states:
        before = model.queues.get("q", {}).get("messageCount", 0)
        try:
            change = manage_queue(model, state, {}, force=force)
        except Refused as refusal:
            refused = str(refusal)
            missing = "there is no queue 'q'" in refused
            assert missing or (state == "absent" and before and not force), refused
            continue
        if "q" not in model.queues:
            assert not before or force or state != "absent"
        elif state == "purged":
            assert (change.removed, change.changed) == (
                before - model.queues["q"]["deliveringCount"],
                change.removed > 0,
            )
        else:
            assert model.queues["q"]["messageCount"] == before
        assert not (state in ("present", "paused", "resumed") and manage_queue(model, state, {}).changed)


TYPES = st.lists(st.sampled_from(["anycast", "multicast"]), min_size=1, max_size=2)
SETTINGS = st.dictionaries(
    st.sampled_from(["max-size-bytes", "maxSizeBytes", "redelivery-delay"]), st.integers(0, 9), min_size=1, max_size=2
)


@given(st.lists(st.fixed_dictionaries({}, optional={"routing_types": TYPES, "settings": SETTINGS}), max_size=4))
def test_an_address_gets_what_is_wanted_and_a_second_run_does_nothing(wishes: list[dict[str, Any]]) -> None:
    model = Model()
    administration = Administration(model, "east-1")
    for wanted in wishes:

        def look(wanted: dict[str, Any] = wanted) -> tuple[dict[str, object] | None, Plan]:
            present = administration.address("a")
            return present, plan_address("a", "present", wanted, present, administration.address_settings("a"))

        change = carry_out(administration, look, dry_run=False)
        assert change.present is not None
        if "routing_types" in wanted:
            assert change.present["routing_types"] == sorted(set(wanted["routing_types"]))
        for name, value in settings_of(wanted.get("settings")).items():
            assert model.settings["a"][name] == value
        assert not carry_out(administration, look, dry_run=False).changed


def test_fixed_options_are_refused_with_both_values() -> None:
    model = Model()
    manage_queue(model, "present", {"address": "a", "durable": True})
    with pytest.raises(Refused, match=r"address is 'a' and not 'b', durable is True and not False; .*delete it first"):
        manage_queue(model, "present", {"address": "b", "durable": False, "max_consumers": 1})
    assert model.asked == ["createQueue"]


def test_an_address_with_queues_stays_without_force() -> None:
    present = {"routing_types": ["anycast"], "paused": False, "queue_count": 2, "message_count": 5}
    plan = plan_address("a", "absent", {}, present, {})
    assert (plan.calls, "2 queues with 5 messages" in plan.problem) == ((), True)
    forced = plan_address("a", "absent", {}, present, {}, force=True)
    assert forced.calls[0] == Call("broker", "deleteAddress", ("a", True))


def test_options_beside_a_state_are_refused() -> None:
    assert "max_consumers: only with state present" in plan_queue("q", "paused", {"max_consumers": 1}, None).problem
    assert "settings: only with state present" in plan_address("a", "purged", {"settings": {}}, None, {}).problem


def test_a_broker_that_keeps_another_value_is_an_error() -> None:
    model = Model()
    manage_queue(model, "present", {})
    model.on_updateQueue = lambda text: None  # type: ignore[method-assign]
    with pytest.raises(Refused, match="accepted updateQueue, but max_consumers is -1 instead of 5"):
        manage_queue(model, "present", {"max_consumers": 5})


def test_a_passive_node_has_an_error_of_its_own() -> None:
    model = Model()
    model.passive = True
    with pytest.raises(NodeIsPassive, match="east-1 is not active: it is passive"):
        manage_queue(model, "present", {})


@pytest.mark.parametrize(
    ("given", "name"),
    [
        ("max-size-bytes", "maxSizeBytes"),
        ("maxSizeBytes", "maxSizeBytes"),
        ("max_size_bytes", "maxSizeBytes"),
        ("address-full-policy", "addressFullMessagePolicy"),
        ("send-to-dla-on-no-route", "sendToDLAOnNoRoute"),
    ],
)
def test_names_of_settings(given: str, name: str) -> None:
    assert setting_name(given) == name


def test_names_of_settings_are_those_of_the_broker() -> None:
    """Every element of address-setting; the plugins themselves never import understudy."""
    from understudy.config.json_settings import ADDRESS_SETTING_ROWS

    for name, row in ADDRESS_SETTING_ROWS.items():
        assert setting_name(row.name) == name == setting_name(name)


@pytest.mark.parametrize(("text", "value"), [("10M", 10 << 20), ("1 KiB", 1024), ("7", 7), (5, 5), ("-1", -1)])
def test_sizes(text: object, value: object) -> None:
    assert settings_of({"max-size-bytes": text, "dead-letter-address": "7"}) == {
        "maxSizeBytes": value,
        "deadLetterAddress": "7",
    }


@pytest.mark.parametrize(("text", "kind", "value"), [("true", "bool", True), ("-1", "int", -1), (None, "str", "")])
def test_values_of_rows(text: object, kind: str, value: object) -> None:
    assert typed(text, kind) == value
