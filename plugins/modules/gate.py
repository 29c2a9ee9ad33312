#!/usr/bin/python
# SPDX-License-Identifier: Apache-2.0
"""Module gate: wait until a condition of the cluster holds."""

from __future__ import annotations

DOCUMENTATION = r"""
module: gate
short_description: Wait until brokers meet a condition, and fail if they do not in time
description:
  - Asks the named brokers until the condition holds, or until the time is over. Changes nothing.
  - A failure names every node that does not meet the condition and the state it reports, and shows the last lines of
    the log of each such node on this host.
version_added: 0.1.0
author:
  - The Understudy authors (@understudy)
options:
  condition:
    description:
      - V(active) means that every named node serves.
      - V(passive_following) means that every named node is passive and has read all of the store.
      - V(ready) means that every named node calls itself ready, in either state.
      - V(paired) means that every named node sees its partner.
      - V(one_active_per_pair) means that every pair among the named nodes has exactly one active node and that all
        the others are ready to take over.
    type: str
    required: true
    choices: [active, passive_following, ready, paired, one_active_per_pair]
  nodes:
    description:
      - The nodes to ask. Of O(nodes[].observed), O(nodes[].directory) and O(nodes[].url) the first that is given is
        used.
    type: list
    elements: dict
    required: true
    suboptions:
      name:
        description: Name of the node, for messages.
        type: str
        required: true
      pair:
        description: Pair of the node; nodes without a pair are a pair of their own.
        type: str
        default: ""
      partners:
        description:
          - C(ADDRESS:PORT) that the other nodes of its pair advertise. A node with another partner meets no condition.
          - Nodes of one pair that serve or follow the stores of two node ids meet none either.
        type: list
        elements: str
        default: []
        version_added: 0.2.0
      observed:
        description: What M(understudy.broker.node_info) returned as RV(understudy.broker.node_info#module:broker),
          for nodes that cannot be asked from this host. It is judged once, since asking again would change nothing.
        type: dict
      directory:
        description: Instance directory on this host.
        type: path
      url:
        description: Management URL.
        type: str
      token_file:
        description: File on this host with the token for O(nodes[].url).
        type: path
      ca_path:
        description: Certificates that an https O(nodes[].url) is checked against; by default those of this host.
        type: path
      client_cert:
        description: Certificate that this host shows, in PEM format, with or without its key.
        type: path
      client_key:
        description: Private key of O(nodes[].client_cert), if it is in a file of its own.
        type: path
      validate_certs:
        description: Whether the certificate of an https O(nodes[].url) is checked.
        type: bool
        default: true
      use_proxy:
        description: Whether the proxies that the environment of the task names are used.
        type: bool
        default: false
      request_timeout_s:
        description: Seconds that one question may take.
        type: int
        default: 5
  timeout_s:
    description: Seconds to wait. With V(0) the condition must hold at once.
    type: int
    default: 60
extends_documentation_fragment:
  - understudy.broker.instance.attributes
attributes:
  check_mode:
    support: full
    details: In check mode the condition is asked once and a failure to meet it is only reported.
  diff_mode:
    support: none
"""

EXAMPLES = r"""
- name: Wait until the backup follows
  understudy.broker.gate:
    condition: passive_following
    nodes:
      - name: "{{ inventory_hostname }}"
        directory: /opt/understudy/instance
    timeout_s: 60
"""

RETURN = r"""
met:
  description: Whether the condition held in the end.
  returned: always
  type: bool
missing:
  description: What was missing at the last question.
  returned: always
  type: list
  elements: str
elapsed_ms:
  description: Milliseconds waited.
  returned: always
  type: int
reached_at_ms:
  description: Wall clock in milliseconds at the last answer.
  returned: always
  type: int
states:
  description: The last state of each node, by name.
  returned: always
  type: dict
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ansible.module_utils.basic import AnsibleModule
from ansible_collections.understudy.broker.plugins.module_utils.conditions import CONDITIONS, Observed, missing
from ansible_collections.understudy.broker.plugins.module_utils.deployed import asker, open_instance
from ansible_collections.understudy.broker.plugins.module_utils.management import (
    TIMEOUT_S,
    Access,
    NodeState,
)
from ansible_collections.understudy.broker.plugins.module_utils.service import Run, ServiceError
from ansible_collections.understudy.broker.plugins.module_utils.waiting import Clock, wait_until

ACCESS = ("ca_path", "client_cert", "client_key", "validate_certs", "use_proxy")


def observe(node: Mapping[str, Any], run: Run, clock: Clock) -> Observed:
    """The state of one node, from the first source that is given."""
    if node["observed"] is not None:
        state = NodeState.from_dict(node["observed"])
    elif node["directory"] is not None:
        deployed = open_instance(Path(node["directory"]), run, clock)
        if deployed is None:
            raise ServiceError(f"{node['name']}: nothing is deployed in {node['directory']}")
        state = deployed.instance.see().broker
    else:
        access = Access.from_record({name: node[name] for name in ACCESS} | {"timeout_s": node["request_timeout_s"]})
        state = asker(node["url"], Path(node["token_file"]), access)()
    return Observed(node["name"], node["pair"], state, tuple(node["partners"]))


def log_tail(node: Mapping[str, Any], run: Run, clock: Clock) -> str:
    """The end of the log of a node on this host, for a message of failure."""
    deployed = open_instance(Path(node["directory"]), run, clock) if node["directory"] is not None else None
    words = deployed.instance.log_tail(deployed.definition.backend) if deployed is not None else ""
    return f"\n{node['name']}:{words}" if words else ""


def main() -> None:
    module = AnsibleModule(
        argument_spec={
            "condition": {"type": "str", "required": True, "choices": list(CONDITIONS)},
            "nodes": {
                "type": "list",
                "elements": "dict",
                "required": True,
                "options": {
                    "name": {"type": "str", "required": True},
                    "pair": {"type": "str", "default": ""},
                    "partners": {"type": "list", "elements": "str", "default": []},
                    "observed": {"type": "dict"},
                    "directory": {"type": "path"},
                    "url": {"type": "str"},
                    "token_file": {"type": "path", "no_log": False},
                    "ca_path": {"type": "path"},
                    "client_cert": {"type": "path"},
                    "client_key": {"type": "path", "no_log": False},
                    "validate_certs": {"type": "bool", "default": True},
                    "use_proxy": {"type": "bool", "default": False},
                    "request_timeout_s": {"type": "int", "default": TIMEOUT_S},
                },
                "required_one_of": [("observed", "directory", "url")],
                "required_together": [("url", "token_file")],
                "required_by": {"client_key": ("client_cert",)},
            },
            "timeout_s": {"type": "int", "default": 60},
        },
        supports_check_mode=True,
    )
    nodes, condition, clock = module.params["nodes"], module.params["condition"], Clock()
    if not nodes:
        module.fail_json(msg="nodes is empty: a condition over no node would always hold")
    fixed = all(node["observed"] is not None for node in nodes)
    timeout_s = 0 if fixed or module.check_mode else module.params["timeout_s"]
    try:
        waited = wait_until(
            lambda: [observe(node, module.run_command, clock) for node in nodes],
            lambda seen: not missing(condition, seen),
            timeout_s,
            clock,
            hopeless=lambda seen: any(each.state.refused for each in seen),
        )
    except (ServiceError, ValueError) as error:
        module.fail_json(msg=str(error))
    absent = missing(condition, waited.answer)
    result = {
        "met": waited.met,
        "missing": absent,
        "elapsed_ms": waited.elapsed_ms,
        "reached_at_ms": clock.wall_ms(),
        "states": {node.name: node.state.as_dict() for node in waited.answer},
    }
    if not waited.met and not module.check_mode:
        problem = f"{condition} does not hold after {waited.elapsed_ms} ms: {'; '.join(absent)}"
        unready = {seen.name for seen in waited.answer if not seen.state.ready or missing(condition, [seen])}
        logs = [log_tail(node, module.run_command, clock) for node in nodes if node["name"] in unready]
        module.fail_json(msg=problem + "".join(logs), **result)
    module.exit_json(changed=False, **result)


if __name__ == "__main__":
    main()
