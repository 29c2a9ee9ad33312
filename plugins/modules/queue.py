#!/usr/bin/python
# SPDX-License-Identifier: Apache-2.0
"""Module queue: one queue of a running broker."""

from __future__ import annotations

DOCUMENTATION = r"""
module: queue
short_description: Create, change, pause, purge and delete a queue of a running broker
description:
  - Talks to the management of the broker on this host, which must be active.
  - A queue that belongs to the deployment is better declared in C(broker_addresses) of the inventory. A queue that is
    made here is stored by the broker and survives restarts and failovers as well.
version_added: 0.2.0
author:
  - The Understudy authors (@understudy)
options:
  directory:
    required: true
  name:
    description: Name of the queue.
    type: str
    required: true
  state:
    description:
      - V(present) creates the queue, or changes the given options of an existing one.
      - V(absent) deletes it, but with O(force) only if it has messages or consumers.
      - V(paused) stops its deliveries, V(resumed) lets them go on. Messages are taken in both states.
      - V(purged) removes all messages that are not being delivered.
      - The last three need a queue that exists, and no other options.
    type: str
    choices: [present, absent, paused, resumed, purged]
    default: present
  address:
    description: Address of the queue, which cannot be changed; by default the one that has the name of the queue.
    type: str
  routing_type:
    description: Whether one or every queue of the address gets a message.
    type: str
    choices: [anycast, multicast]
  durable:
    description: Whether it survives a restart. Cannot be changed.
    type: bool
  filter:
    description: Selector of the messages that it takes. An empty one takes all.
    type: str
  max_consumers:
    description: Largest number of consumers; V(-1) for no limit.
    type: int
  purge_on_no_consumers:
    description: Whether it is purged when its last consumer is closed.
    type: bool
  exclusive:
    description: Whether one consumer at a time gets all messages.
    type: bool
  last_value:
    description: Whether it keeps the newest message of each key only.
    type: bool
  last_value_key:
    description: Property that is this key.
    type: str
  ring_size:
    description: Largest number of messages, beyond which the oldest is removed; V(-1) for no limit.
    type: int
  consumers_before_dispatch:
    description: Consumers that are needed before deliveries begin.
    type: int
  delay_before_dispatch:
    description: Longest wait for them in milliseconds; V(-1) waits for ever.
    type: int
  group_rebalance:
    description: Whether a new consumer causes message groups to be assigned anew.
    type: bool
  group_rebalance_pause_dispatch:
    description: Whether deliveries pause meanwhile.
    type: bool
  group_buckets:
    description: Buckets of message groups; V(-1) for none.
    type: int
  group_first_key:
    description: Property that the first message of a group gets.
    type: str
  auto_delete:
    description: Whether the broker deletes it when it is empty and unused. Cannot be changed.
    type: bool
  enabled:
    description: Whether messages are routed to it.
    type: bool
  persist:
    description: Whether a pause lasts over a restart and a failover.
    type: bool
    default: true
  force:
    description: Whether V(absent) may lose messages and close consumers.
    type: bool
    default: false
extends_documentation_fragment:
  - understudy.broker.instance
  - understudy.broker.instance.managed
  - understudy.broker.instance.attributes
attributes:
  check_mode:
    support: full
  diff_mode:
    support: full
notes:
  - Options that are not given are left as they are; those of a new queue follow from its address settings.
  - Messages that come between the look at the queue and its deletion are lost with it. Pause its producers first.
seealso:
  - module: understudy.broker.address
  - module: understudy.broker.export
"""

EXAMPLES = r"""
- name: Make a queue
  understudy.broker.queue:
    directory: /opt/understudy/instance
    name: orders
    routing_type: anycast
    max_consumers: 10
    passive: ignore

- name: Stop its deliveries for the time of a repair
  understudy.broker.queue:
    directory: /opt/understudy/instance
    name: orders
    state: paused

- name: Delete a queue with all its messages
  understudy.broker.queue:
    directory: /opt/understudy/instance
    name: orders.old
    state: absent
    force: true
"""

RETURN = r"""
node_state:
  description: V(active), or V(passive) where nothing was done because of O(passive=ignore).
  returned: success
  type: str
queue:
  description:
    - The queue in the end, in check mode in the beginning, with the options of this module as keys.
    - Null where there is none.
  returned: success
  type: dict
  contains:
    message_count: {description: Number of messages in the queue., type: int}
    delivering_count: {description: Number of those messages that are being delivered., type: int}
    consumer_count: {description: Number of consumers of the queue., type: int}
    paused: {description: Whether deliveries are stopped., type: bool}
    persisted_pause: {description: Whether that lasts over a restart., type: bool}
removed_messages:
  description: Messages that were removed.
  returned: with O(state=purged), not in check mode
  type: int
"""

from pathlib import Path

from ansible.module_utils.basic import AnsibleModule
from ansible_collections.understudy.broker.plugins.module_utils.administration import (
    Administration,
    NodeIsPassive,
    Refused,
    carry_out,
)
from ansible_collections.understudy.broker.plugins.module_utils.deployed import open_administration
from ansible_collections.understudy.broker.plugins.module_utils.destinations import (
    QUEUE_OPTIONS,
    STATES,
    Plan,
    plan_queue,
)
from ansible_collections.understudy.broker.plugins.module_utils.service import ServiceError


def manage(module: AnsibleModule, administration: Administration) -> None:
    """Reach the wanted state, and end the module."""
    given = module.params
    name, state = given["name"], given["state"]
    wanted = {option: given[option] for option in QUEUE_OPTIONS}

    def look() -> tuple[dict[str, object] | None, Plan]:
        present = administration.queue(name)
        return present, plan_queue(name, state, wanted, present, persist=given["persist"], force=given["force"])

    change = carry_out(administration, look, dry_run=module.check_mode, purges=state == "purged")
    result: dict[str, object] = {"queue": change.present, "node_state": "active"}
    if state == "purged" and not module.check_mode:
        result["removed_messages"] = change.removed
    module.exit_json(changed=change.changed, diff=change.diff, **result)


def main() -> None:
    module = AnsibleModule(
        argument_spec={
            "directory": {"type": "path", "required": True},
            "name": {"type": "str", "required": True},
            "state": {"type": "str", "choices": list(STATES), "default": "present"},
            "address": {"type": "str"},
            "routing_type": {"type": "str", "choices": ["anycast", "multicast"]},
            "durable": {"type": "bool"},
            "filter": {"type": "str"},
            "max_consumers": {"type": "int"},
            "purge_on_no_consumers": {"type": "bool"},
            "exclusive": {"type": "bool"},
            "last_value": {"type": "bool"},
            "last_value_key": {"type": "str", "no_log": False},
            "ring_size": {"type": "int"},
            "consumers_before_dispatch": {"type": "int"},
            "delay_before_dispatch": {"type": "int"},
            "group_rebalance": {"type": "bool"},
            "group_rebalance_pause_dispatch": {"type": "bool"},
            "group_buckets": {"type": "int"},
            "group_first_key": {"type": "str", "no_log": False},
            "auto_delete": {"type": "bool"},
            "enabled": {"type": "bool"},
            "persist": {"type": "bool", "default": True},
            "force": {"type": "bool", "default": False},
            "passive": {"type": "str", "choices": ["fail", "ignore"], "default": "fail"},
        },
        supports_check_mode=True,
    )
    try:
        manage(module, open_administration(Path(module.params["directory"]), module.run_command))
    except NodeIsPassive as error:
        if module.params["passive"] == "fail":
            module.fail_json(msg=str(error))
        module.exit_json(changed=False, queue=None, node_state="passive")
    except (Refused, ServiceError, OSError, ValueError) as error:
        module.fail_json(msg=str(error))


if __name__ == "__main__":
    main()
