#!/usr/bin/python
# SPDX-License-Identifier: Apache-2.0
"""Module failover: a planned switch between the nodes of a pair."""

from __future__ import annotations

DOCUMENTATION = r"""
module: failover
short_description: Hand the service of a pair over to its other node, and wait until this one has let go
description:
  - Runs on the host of the active node and asks its broker; the broker itself refuses what would leave the pair without
    service. With V(activate) it runs on the host of the backup.
  - Returns when this node is passive or has ended, or with V(activate) when it is active. Whether the partner serves is
    for M(understudy.broker.gate) to see.
version_added: 0.2.0
author:
  - The Understudy authors (@understudy)
options:
  directory:
    required: true
  direction:
    description:
      - V(failover) ends the active node, and its partner takes over whatever C(failover-on-shutdown) is. The process
        stays down until it is started.
      - V(failback) makes an active backup yield to its primary, which must run, whatever C(allow-failback) is.
      - V(activate) lets the backup of a shared store activate although its primary was stopped cleanly, after which it
        stays passive by itself. It is for a primary that does not come back soon.
    type: str
    required: true
    choices: [failover, failback, activate]
  timeout_s:
    description: Seconds to wait.
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
    support: full
notes:
  - A node that is not active is left alone with V(failback), because it has let go already. With V(failover) it is an
    error, because the switch was meant for the active node. A node that is active is left alone with V(activate).
seealso:
  - module: understudy.broker.gate
  - module: understudy.broker.instance
"""

EXAMPLES = r"""
- name: Let the active backup yield to its primary
  understudy.broker.failover:
    directory: /opt/understudy/instance
    direction: failback

- name: Let the backup serve whose primary was stopped and is lost
  understudy.broker.failover:
    directory: /opt/understudy/instance
    direction: activate
"""

RETURN = r"""
acted_at_ms:
  description: Wall clock in milliseconds just before the request; null if there was nothing to do.
  returned: always
  type: int
elapsed_ms:
  description: Milliseconds until this node had let go, or was active.
  returned: success
  type: int
state:
  description: State of this node in the end, V(passive), V(stopped) or V(active).
  returned: success
  type: str
"""

from pathlib import Path

from ansible.module_utils.basic import AnsibleModule
from ansible_collections.understudy.broker.plugins.module_utils.deployed import DeployedInstance, open_instance
from ansible_collections.understudy.broker.plugins.module_utils.lifecycle import Seen
from ansible_collections.understudy.broker.plugins.module_utils.rollout_hold import (
    HOLD_OPTIONS,
    HeldByAnother,
    refuse_held,
)
from ansible_collections.understudy.broker.plugins.module_utils.service import ServiceError
from ansible_collections.understudy.broker.plugins.module_utils.waiting import Clock, wait_until

OPERATIONS = {"failover": "forceFailover", "failback": "failback"}


def state_of(seen: Seen) -> str:
    return "stopped" if seen.service.down else seen.broker.state


def let_go(seen: Seen) -> bool:
    return seen.service.down or seen.broker.state == "passive"


def hand_over(module: AnsibleModule, deployed: DeployedInstance, clock: Clock) -> None:
    """Ask the broker, wait, and end the module."""
    direction, timeout_s, name = module.params["direction"], module.params["timeout_s"], deployed.definition.name
    seen = deployed.instance.see()
    if direction == "failback" and seen.broker.state == "passive":
        module.exit_json(changed=False, acted_at_ms=None, elapsed_ms=0, state="passive")
    if seen.broker.state != "active":
        module.fail_json(msg=f"{name} is {state_of(seen)}, not active; {direction} begins at the active node")
    if direction == "failover" and not seen.broker.paired:
        module.fail_json(msg=f"{name} knows no partner: nothing would take over")
    diff = {"before": "active\n", "after": "passive\n" if direction == "failback" else "stopped\n"}
    if module.check_mode:
        module.exit_json(changed=True, acted_at_ms=None, elapsed_ms=0, state=diff["after"].strip(), diff=diff)
    acted_at_ms = clock.wall_ms()
    reply = deployed.management().invoke(OPERATIONS[direction])
    if reply.status != 200:
        module.fail_json(msg=f"{name} refuses the {direction}: {reply.refusal}", acted_at_ms=acted_at_ms)
    waited = wait_until(deployed.instance.see, let_go, timeout_s, clock)
    if not waited.met:
        state = state_of(waited.answer)
        module.fail_json(msg=f"{name} is still {state} after {timeout_s} s", changed=True, acted_at_ms=acted_at_ms)
    module.exit_json(
        changed=True, acted_at_ms=acted_at_ms, elapsed_ms=waited.elapsed_ms, state=state_of(waited.answer), diff=diff
    )


def activate(module: AnsibleModule, deployed: DeployedInstance, clock: Clock) -> None:
    """Ask the backup, wait until it is active, and end the module."""
    timeout_s, name = module.params["timeout_s"], deployed.definition.name
    seen = deployed.instance.see()
    if seen.broker.state == "active":
        module.exit_json(changed=False, acted_at_ms=None, elapsed_ms=0, state="active")
    if seen.broker.state != "passive":
        module.fail_json(msg=f"{name} is {state_of(seen)}, not passive; only a passive node can activate")
    diff = {"before": "passive\n", "after": "active\n"}
    if module.check_mode:
        module.exit_json(changed=True, acted_at_ms=None, elapsed_ms=0, state="active", diff=diff)
    acted_at_ms = clock.wall_ms()
    reply = deployed.management().activate()
    # A node that refuses because it activates by itself is waited for as well.
    waited = wait_until(deployed.instance.see, lambda seen: seen.broker.state == "active", timeout_s, clock)
    if not waited.met:
        reason = f": it refuses to activate: {reply.refusal}" if reply.status != 202 else ""
        state = state_of(waited.answer)
        module.fail_json(
            msg=f"{name} is still {state} after {timeout_s} s{reason}", changed=True, acted_at_ms=acted_at_ms
        )
    module.exit_json(changed=True, acted_at_ms=acted_at_ms, elapsed_ms=waited.elapsed_ms, state="active", diff=diff)


def main() -> None:
    module = AnsibleModule(
        argument_spec={
            "directory": {"type": "path", "required": True},
            "direction": {"type": "str", "required": True, "choices": [*OPERATIONS, "activate"]},
            "timeout_s": {"type": "int", "default": 60},
            **HOLD_OPTIONS,
        },
        supports_check_mode=True,
    )
    directory, clock = module.params["directory"], Clock()
    try:
        deployed = open_instance(Path(directory), module.run_command, clock)
        if deployed is None:
            module.fail_json(msg=f"nothing is deployed in {directory}; run the site playbook on this host first")
            return
        if not module.check_mode:
            refuse_held(module.params, Path(directory), deployed.definition.name, clock.wall_ms())
        if module.params["direction"] == "activate":
            activate(module, deployed, clock)
        hand_over(module, deployed, clock)
    except HeldByAnother as error:
        module.fail_json(msg=str(error))
    except (ServiceError, ValueError, OSError) as error:
        module.fail_json(msg=f"{directory}: {error}")


if __name__ == "__main__":
    main()
