#!/usr/bin/python
# SPDX-License-Identifier: Apache-2.0
"""Module rollout: the plan of a rolling update, restart or rollback."""

from __future__ import annotations

DOCUMENTATION = r"""
module: rollout
short_description: Compute the plan of a rolling update, restart or rollback
description:
  - Orders the pairs and nodes of a cluster into waves, and the hosts of each wave into phases, from the inventory and
    from the live state of every node. Changes nothing.
  - The node that serves is the one that reports V(active), whatever its configured role is.
  - Refuses with a line for each node or pair that is in the way, and for each node that another run holds
    (M(understudy.broker.rollout_hold)).
  - A roll that was interrupted is continued; the records of the hosts say how far each node is.
version_added: 0.2.0
author:
  - The Understudy authors (@understudy)
options:
  kind:
    description:
      - V(update) brings in the staged release and configuration where they differ.
      - V(restart) restarts every node.
      - V(rollback) puts the release and configuration from before the last roll in place.
    type: str
    required: true
    choices: [update, restart, rollback]
  roll:
    description: Name of a new roll. Later ones must sort after earlier ones, so give a time in UTC.
    type: str
    required: true
  target:
    description: Release of an update. An interrupted update to another release is not continued.
    type: str
    default: ""
  scope:
    description:
      - Size of the waves after the first one, which is always a single pair or node.
      - V(pair) takes one pair after the other, V(group) all pairs with the same C(broker_rolling_group) together,
        V(all) all of them together.
      - Colocated nodes, and pairs that vote, are a wave each with every value.
    type: str
    default: pair
    choices: [pair, group, all]
  canary:
    description: Pair, or node without one, of the first wave. By default it is the first by name.
    type: str
    default: ""
  serving_backup:
    description:
      - Handling of a pair whose configured backup serves.
      - V(failback) lets it yield to its primary before anything is stopped.
      - V(keep) stops it last, as the serving node.
    type: str
    default: failback
    choices: [failback, keep]
  take_over:
    description: Whether nodes that another run holds may be rolled, because that run is known to have ended.
    type: bool
    default: false
  nodes:
    description: Every node of the inventory.
    type: list
    elements: dict
    required: true
    suboptions:
      name:
        description: Inventory name of the node.
        type: str
        required: true
      inventory:
        description: Entry of the node in the result of the filter P(understudy.broker.topology#filter).
        type: dict
        required: true
      live:
        description: Result of M(understudy.broker.node_info); nothing for a host outside of C(--limit).
        type: dict
      pending:
        description: Differences that staging has found.
        type: list
        elements: str
        default: []
  quorum:
    description:
      - Hosts of the group C(broker_quorum). Each one that the roll changes is a wave of its own, before the nodes.
    type: list
    elements: dict
    default: []
    version_added: 0.2.0
    suboptions:
      name:
        description: Inventory name of the host.
        type: str
        required: true
      place:
        description: Address and port by which it is known.
        type: str
        default: ""
      members:
        description: Places of its group; none for a single witness.
        type: list
        elements: str
        default: []
      answering:
        description: Places that answer this host.
        type: list
        elements: str
        default: []
      pending:
        description: Differences between the running service and the inventory.
        type: list
        elements: str
        default: []
      reachable:
        description: Whether Ansible reaches the host.
        type: bool
        default: true
extends_documentation_fragment:
  - understudy.broker.instance.attributes
attributes:
  check_mode:
    support: full
  diff_mode:
    support: none
seealso:
  - module: understudy.broker.rollout_step
"""

EXAMPLES = r"""
- name: Plan a rolling restart
  understudy.broker.rollout:
    kind: restart
    roll: "{{ now(utc=true, fmt='%Y%m%dT%H%M%SZ') }}"
    nodes: "{{ observed }}"
  delegate_to: localhost
  run_once: true
"""

RETURN = r"""
plan:
  description: The plan.
  returned: success
  type: dict
  contains:
    roll: {description: Name of the roll; that of the interrupted one if it is continued., type: str}
    kind: {description: Value of O(kind)., type: str}
    target: {description: Value of O(target)., type: str}
    undoes: {description: The roll that a rollback undoes., type: str}
    holder: {description: This run of Ansible., type: dict}
    over: {description: Holds of other runs that have ended., type: list}
    unchanged: {description: Pairs and nodes that are left alone., type: list}
    quorum:
      description: Waves of the quorum in order, each with C(host), C(pending) and C(whole) (places that must answer).
      type: list
    waves:
      description:
        - The waves in order, each with C(name), C(units), C(hosts), C(phases) (a list of C(phase) and C(hosts)),
          C(gates) (the state that each host must reach), C(serving), C(leading) (the hosts that start first) and
          C(resumed).
      type: list
lines:
  description: The plan for operators.
  returned: success
  type: list
  elements: str
refused:
  description: Why the roll cannot begin.
  returned: failure
  type: list
  elements: str
"""

import os
from dataclasses import asdict

from ansible.module_utils.basic import AnsibleModule
from ansible_collections.understudy.broker.plugins.module_utils.process import ProcessTable
from ansible_collections.understudy.broker.plugins.module_utils.rollout import make_plan
from ansible_collections.understudy.broker.plugins.module_utils.rollout_facts import judge_holds, node_of
from ansible_collections.understudy.broker.plugins.module_utils.rollout_hold import Holder
from ansible_collections.understudy.broker.plugins.module_utils.rollout_model import (
    FAIL_BACK,
    KINDS,
    PAIR,
    SCOPES,
    SERVING_BACKUPS,
    Order,
    Refused,
)
from ansible_collections.understudy.broker.plugins.module_utils.rollout_quorum import (
    Member,
    quorum_lines,
    quorum_waves,
)


def main() -> None:
    module = AnsibleModule(
        argument_spec={
            "kind": {"type": "str", "required": True, "choices": list(KINDS)},
            "roll": {"type": "str", "required": True},
            "target": {"type": "str", "default": ""},
            "scope": {"type": "str", "default": PAIR, "choices": list(SCOPES)},
            "canary": {"type": "str", "default": ""},
            "take_over": {"type": "bool", "default": False},
            "serving_backup": {"type": "str", "default": FAIL_BACK, "choices": list(SERVING_BACKUPS)},
            "nodes": {
                "type": "list",
                "elements": "dict",
                "required": True,
                "options": {
                    "name": {"type": "str", "required": True},
                    "inventory": {"type": "dict", "required": True},
                    "live": {"type": "dict"},
                    "pending": {"type": "list", "elements": "str", "default": []},
                },
            },
            "quorum": {
                "type": "list",
                "elements": "dict",
                "default": [],
                "options": {
                    "name": {"type": "str", "required": True},
                    "place": {"type": "str", "default": ""},
                    "members": {"type": "list", "elements": "str", "default": []},
                    "answering": {"type": "list", "elements": "str", "default": []},
                    "pending": {"type": "list", "elements": "str", "default": []},
                    "reachable": {"type": "bool", "default": True},
                },
            },
        },
        supports_check_mode=True,
    )
    given = module.params
    order = Order(**{name: given[name] for name in ("kind", "roll", "target", "scope", "canary", "serving_backup")})
    within = [node["name"] for node in given["nodes"] if node["live"] is not None]
    try:
        table = ProcessTable()
        holder = Holder.present(table, os.getpid())
        over = judge_holds(given["nodes"], holder, table, take_over=given["take_over"])
        nodes = [node_of(node) for node in given["nodes"]]
        plan = make_plan(nodes, order, within)
        resumed = any(node.record is not None and node.record.roll == plan.roll for node in nodes)
        quorum = quorum_waves([Member.of(each) for each in given["quorum"]], order.kind, resumed=resumed)
    except Refused as refusal:
        heading = f"The {order.kind} is refused, and nothing was stopped:"
        module.fail_json(msg="\n".join([heading, *refusal.reasons]), refused=list(refusal.reasons))
    except ValueError as error:
        module.fail_json(msg=str(error), refused=[])
    held = {"holder": asdict(holder), "over": [hold.as_dict() for hold in over]}
    made = {**plan.as_dict(), **held, "quorum": [wave.as_dict() for wave in quorum]}
    module.exit_json(changed=False, plan=made, lines=[*quorum_lines(quorum), *plan.lines()])


if __name__ == "__main__":
    main()
