#!/usr/bin/python
# SPDX-License-Identifier: Apache-2.0
"""Module address: one address of a running broker."""

from __future__ import annotations

DOCUMENTATION = r"""
module: address
short_description: Create, change, pause, purge and delete an address of a running broker
description:
  - Talks to the management of the broker on this host, which must be active.
  - An address that belongs to the deployment is better declared in C(broker_addresses) of the inventory. One that is
    made here is stored by the broker and survives restarts and failovers as well.
version_added: 0.2.0
author:
  - The Understudy authors (@understudy)
options:
  directory:
    required: true
  name:
    description: Name of the address.
    type: str
    required: true
  state:
    description:
      - V(present) creates the address, or changes the given options of an existing one.
      - V(absent) deletes it and the settings that management has for its name, but with O(force) only if it has queues.
      - V(paused) stops the deliveries of all its queues, also of later ones; V(resumed) lets them go on.
      - V(purged) removes the messages of all its queues that are not being delivered.
      - The last three need an address that exists, and no other options.
    type: str
    choices: [present, absent, paused, resumed, purged]
    default: present
  routing_types:
    description: All routing types of its queues.
    type: list
    elements: str
    choices: [anycast, multicast]
  settings:
    description:
      - Address settings for exactly this name, with the names of the elements of C(address-setting) in C(broker.xml),
        such as C(max-size-bytes), or those of management.
      - They replace all settings that management had for the name before. Settings from C(broker.xml) for other matches
        apply where none is given.
    type: dict
  persist:
    description: Whether a pause lasts over a restart and a failover.
    type: bool
    default: true
  force:
    description: Whether V(absent) deletes the queues of the address, and loses their messages.
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
  - A pause that does not last is not seen apart from one that does, so O(persist) is only used when deliveries are not
    stopped yet.
seealso:
  - module: understudy.broker.queue
  - module: understudy.broker.export
"""

EXAMPLES = r"""
- name: Make an address with a memory limit
  understudy.broker.address:
    directory: /opt/understudy/instance
    name: orders
    routing_types: [anycast]
    settings:
      max-size-bytes: 10M
      address-full-policy: BLOCK

- name: Delete it again
  understudy.broker.address:
    directory: /opt/understudy/instance
    name: orders
    state: absent
"""

RETURN = r"""
node_state:
  description: V(active), or V(passive) where nothing was done because of O(passive=ignore).
  returned: success
  type: str
address:
  description: The address in the end, in check mode in the beginning. Null where there is none.
  returned: success
  type: dict
  contains:
    routing_types: {description: Routing types of the address., type: list}
    paused: {description: Whether deliveries of its queues are stopped., type: bool}
    queue_count: {description: Number of queues of the address., type: int}
    message_count: {description: Number of messages in those queues., type: int}
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
from ansible_collections.understudy.broker.plugins.module_utils.destinations import STATES, Plan, plan_address
from ansible_collections.understudy.broker.plugins.module_utils.service import ServiceError


def manage(module: AnsibleModule, administration: Administration) -> None:
    """Reach the wanted state, and end the module."""
    given = module.params
    name, state = given["name"], given["state"]
    wanted = {option: given[option] for option in ("routing_types", "settings")}

    def look() -> tuple[dict[str, object] | None, Plan]:
        present = administration.address(name)
        effective = administration.address_settings(name) if given["settings"] else {}
        plan = plan_address(name, state, wanted, present, effective, persist=given["persist"], force=given["force"])
        return present, plan

    change = carry_out(administration, look, dry_run=module.check_mode, purges=state == "purged")
    result: dict[str, object] = {"address": change.present, "node_state": "active"}
    if state == "purged" and not module.check_mode:
        result["removed_messages"] = change.removed
    module.exit_json(changed=change.changed, diff=change.diff, **result)


def main() -> None:
    module = AnsibleModule(
        argument_spec={
            "directory": {"type": "path", "required": True},
            "name": {"type": "str", "required": True},
            "state": {"type": "str", "choices": list(STATES), "default": "present"},
            "routing_types": {"type": "list", "elements": "str", "choices": ["anycast", "multicast"]},
            "settings": {"type": "dict"},
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
        module.exit_json(changed=False, address=None, node_state="passive")
    except (Refused, ServiceError, OSError, ValueError) as error:
        module.fail_json(msg=str(error))


if __name__ == "__main__":
    main()
