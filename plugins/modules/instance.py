#!/usr/bin/python
# SPDX-License-Identifier: Apache-2.0
"""Module instance: start, stop, kill or restart a broker, and wait for a state."""

from __future__ import annotations

DOCUMENTATION = r"""
module: instance
short_description: Start, stop, kill or restart a broker instance and wait for a named state
description:
  - One call performs the action and waits for its result, so that a play over many hosts goes on only when this node
    has reached the state.
  - Works for both service back ends, a systemd unit and a supervised process; the instance itself says which.
  - A process is found by the process id and start time that systemd or the supervisor recorded, never by name.
version_added: 0.1.0
author:
  - The Understudy authors (@understudy)
options:
  directory:
    required: true
  state:
    description:
      - V(started) starts it unless it runs. Its release, configuration and unit are written to the disk first, so that
        they survive a power cut as the messages do.
      - V(stopped) asks for a clean stop.
      - V(killed) sends SIGKILL, as a power cut would end it; nothing starts it again until O(state=started).
      - V(restarted) stops it cleanly and starts it.
    type: str
    required: true
    choices: [started, stopped, killed, restarted]
  wait_for:
    description:
      - What to wait for after the action.
      - V(active) means that it serves, V(passive) that it follows and has read all of the store, V(ready) either of
        the two, V(stopped) that no process is left and nothing will start one.
      - Defaults to V(ready) after O(state=started) and O(state=restarted), else to V(stopped).
    type: str
    choices: [active, passive, ready, stopped]
  timeout_s:
    description: Seconds for the action and the waiting together.
    type: int
    default: 60
extends_documentation_fragment:
  - understudy.broker.instance
  - understudy.broker.instance.hold
  - understudy.broker.instance.attributes
attributes:
  check_mode:
    support: full
  diff_mode:
    support: none
notes:
  - A stop that takes too long fails. It never becomes a kill by itself.
  - The message of a failed start ends with the last lines of the unit's journal, or of C(log/understudy.log).
seealso:
  - module: understudy.broker.gate
"""

EXAMPLES = r"""
- name: Start the primary and wait until it serves
  understudy.broker.instance:
    directory: /opt/understudy/instance
    state: started
    wait_for: active
    timeout_s: 90

- name: Kill it, as a power cut would
  understudy.broker.instance:
    directory: /opt/understudy/instance
    state: killed
"""

RETURN = r"""
acted_at_ms:
  description: Wall clock in milliseconds just before the action; null if there was nothing to do.
  returned: always
  type: int
elapsed_ms:
  description: Milliseconds that the action and the waiting took.
  returned: always
  type: int
service:
  description: The process and what runs it, as M(understudy.broker.node_info) returns it.
  returned: when deployed
  type: dict
broker:
  description: The state that the broker reports, as M(understudy.broker.node_info) returns it.
  returned: when deployed
  type: dict
"""

from pathlib import Path

from ansible.module_utils.basic import AnsibleModule
from ansible_collections.understudy.broker.plugins.module_utils.deployed import open_instance
from ansible_collections.understudy.broker.plugins.module_utils.lifecycle import DEFAULT_GATES, GATES
from ansible_collections.understudy.broker.plugins.module_utils.rollout_hold import (
    HOLD_OPTIONS,
    HeldByAnother,
    refuse_held,
)
from ansible_collections.understudy.broker.plugins.module_utils.service import ServiceError
from ansible_collections.understudy.broker.plugins.module_utils.waiting import Clock


def end_undeployed(module: AnsibleModule) -> None:
    """Without an instance it is stopped already and cannot be started; in check mode it may be deployed before."""
    directory, state = module.params["directory"], module.params["state"]
    nothing = {"acted_at_ms": None, "elapsed_ms": 0}
    if state in ("stopped", "killed"):
        module.exit_json(changed=False, msg=f"nothing is deployed in {directory}", **nothing)
    if module.check_mode:
        module.exit_json(changed=True, msg="would start it once it is deployed", **nothing)
    module.fail_json(msg=f"nothing is deployed in {directory}; run the site playbook on this host first")


def main() -> None:
    module = AnsibleModule(
        argument_spec={
            "directory": {"type": "path", "required": True},
            "state": {"type": "str", "required": True, "choices": ["started", "stopped", "killed", "restarted"]},
            "wait_for": {"type": "str", "choices": list(GATES)},
            "timeout_s": {"type": "int", "default": 60},
            **HOLD_OPTIONS,
        },
        supports_check_mode=True,
    )
    directory, state = module.params["directory"], module.params["state"]
    gate = module.params["wait_for"] or DEFAULT_GATES[state]
    try:
        deployed = open_instance(Path(directory), module.run_command, Clock())
        if deployed is None:
            end_undeployed(module)
            return
        if not module.check_mode:
            refuse_held(module.params, Path(directory), deployed.definition.name, Clock().wall_ms())
        outcome = deployed.instance.reach(state, gate, module.params["timeout_s"], dry_run=module.check_mode)
    except HeldByAnother as error:
        module.fail_json(msg=str(error))
        return
    except (ServiceError, ValueError, OSError) as error:
        module.fail_json(msg=f"{directory}: {error}")
        return
    result = {"acted_at_ms": outcome.acted_at_ms, "elapsed_ms": outcome.elapsed_ms, **outcome.seen.as_dict()}
    if outcome.failed:
        module.fail_json(msg=f"{deployed.definition.name}: {outcome.message}", changed=outcome.changed, **result)
    module.exit_json(changed=outcome.changed, msg=outcome.message, **result)


if __name__ == "__main__":
    main()
