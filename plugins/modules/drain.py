#!/usr/bin/python
# SPDX-License-Identifier: Apache-2.0
"""Module drain: empty a node before it is stopped."""

from __future__ import annotations

DOCUMENTATION = r"""
module: drain
short_description: Let no new messages into a node, wait until its queues are empty, and stop it
description:
  - With O(method=consume) the producers of all addresses are blocked by flow control, while consumers, and members of
    the cluster with consumers, empty the queues.
  - With O(method=scale_down) the node is stopped, and moves its messages to another member by itself. It must have
    C(broker_scale_down).
  - After a stop its journal is read, which must have no messages of the queues that count.
  - A node that was drained and not stopped stays blocked until O(state=resumed) or its next activation.
version_added: 0.2.0
author:
  - The Understudy authors (@understudy)
options:
  directory:
    required: true
  state:
    description: V(drained) empties the node; V(resumed) lets producers of all addresses go on.
    type: str
    choices: [drained, resumed]
    default: drained
  method:
    description: How the queues become empty.
    type: str
    choices: [consume, scale_down]
    default: consume
  ignore:
    description: Names or shell patterns of queues that need not be empty, such as the dead letters.
    type: list
    elements: str
    default: []
  stop:
    description: Whether the node is stopped when it is empty. V(scale_down) always stops it.
    type: bool
    default: false
  timeout_s:
    description: Seconds to wait until the node is empty, and as many again for its stop.
    type: int
    default: 600
  on_timeout:
    description:
      - Whether producers go on (V(resume)) or stay blocked (V(keep)) if the queues are not empty in time, or if the
        node refuses to answer meanwhile.
    type: str
    choices: [resume, keep]
    default: resume
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
  - Producers that use credits of flow control are blocked, which are all clients of CORE and AMQP. What they may send
    without new credits still comes.
  - A passive or stopped node has nothing to empty and is left alone.
  - The partner of the node must be stopped before, or it takes over where C(failover-on-shutdown) is set. The playbook
    C(drain_node) does so.
seealso:
  - module: understudy.broker.instance
  - module: understudy.broker.gate
"""

EXAMPLES = r"""
- name: Empty a node and stop it
  understudy.broker.drain:
    directory: /opt/understudy/instance
    ignore: [DLQ, ExpiryQueue]
    stop: true
    timeout_s: 1800

- name: Let producers go on after all
  understudy.broker.drain:
    directory: /opt/understudy/instance
    state: resumed
"""

RETURN = r"""
blocked:
  description: Addresses whose producers this call has blocked, or has let go on.
  returned: success or timeout
  type: list
  elements: str
depths:
  description: Messages by queue in the end, before the stop; in check mode now.
  returned: success or timeout
  type: dict
elapsed_ms:
  description: Milliseconds until the queues were empty, and the node was stopped if it was to be.
  returned: success
  type: int
left_messages:
  description: Messages in its journal after the stop; those of ignored queues.
  returned: when the node was stopped
  type: int
progress:
  description: Messages over time, each with C(elapsed_ms) and C(messages).
  returned: success or timeout
  type: list
  elements: dict
state:
  description: State of the node in the end.
  returned: success
  type: str
"""

from pathlib import Path

from ansible.module_utils.basic import AnsibleModule
from ansible_collections.understudy.broker.plugins.module_utils.administration import (
    Administration,
    NoSuchResource,
    Refused,
)
from ansible_collections.understudy.broker.plugins.module_utils.comparison import NotComparable, read_json
from ansible_collections.understudy.broker.plugins.module_utils.deployed import (
    DeployedInstance,
    broker_elements,
    open_instance,
)
from ansible_collections.understudy.broker.plugins.module_utils.destinations import Call, typed
from ansible_collections.understudy.broker.plugins.module_utils.draining import (
    METHODS,
    SCALE_DOWN,
    Progress,
    Sample,
    complaint,
    counts,
    remains,
    sample,
    scales_down,
)
from ansible_collections.understudy.broker.plugins.module_utils.rollout_hold import (
    HOLD_OPTIONS,
    HeldByAnother,
    refuse_held,
)
from ansible_collections.understudy.broker.plugins.module_utils.service import ServiceError
from ansible_collections.understudy.broker.plugins.module_utils.waiting import Clock, wait_until


def set_blocked(administration: Administration, *, wanted: bool, dry_run: bool) -> list[str]:
    """Block or unblock the producers of every address that is not so yet; the names of these."""
    changed = []
    for row in administration.rows("listAddresses"):
        name = str(row["name"])
        resource = f"address.{name}"
        if typed(row["internal"], "bool"):
            continue
        try:
            if administration.perform(Call(resource, "isBlocked")) is wanted:
                continue
            if not dry_run:
                administration.perform(Call(resource, "block" if wanted else "unblock"))
        except NoSuchResource:
            # deleted since the list, as an address without queues and messages deletes itself
            continue
        changed.append(name)
    return changed


class Drain:
    """One node that is emptied."""

    def __init__(self, module: AnsibleModule, deployed: DeployedInstance, clock: Clock) -> None:
        self._module = module
        self._deployed = deployed
        self._clock = clock
        self._name = deployed.definition.name
        self._administration = Administration(deployed.management(), self._name)
        self._began_s = clock.now_s()
        self.blocked: list[str] = []
        self.progress = Progress()

    def result(self) -> dict[str, object]:
        last = self.progress.samples[-1] if self.progress.samples else None
        return {
            "blocked": sorted(self.blocked),
            "depths": dict(last.depths) if last else {},
            "progress": self.progress.as_list(),
            "elapsed_ms": self._elapsed_ms(),
        }

    def _elapsed_ms(self) -> int:
        return round((self._clock.now_s() - self._began_s) * 1000)

    def look(self) -> Sample:
        """The queues now. Raises Refused."""
        seen = sample(self._administration.rows("listQueues"), self._module.params["ignore"], self._elapsed_ms())
        self.progress.add(seen)
        return seen

    def _ignored_messages(self) -> int:
        """Messages in queues that need not be empty."""
        rows = self._administration.rows("listQueues")
        return sum(
            int(str(row["messageCount"]))
            for row in rows
            if typed(row["durable"], "bool") and not counts(row, self._module.params["ignore"])
        )

    def consume(self) -> None:
        """Block producers, also of addresses that are made meanwhile, and wait until the queues are empty."""
        given = self._module.params

        def ask() -> bool:
            self.blocked += set_blocked(self._administration, wanted=True, dry_run=False)
            self.look()
            return self.progress.settled

        try:
            waited = wait_until(ask, bool, given["timeout_s"], self._clock)
        except Refused as error:
            self._give_up(str(error))
        else:
            if not waited.met:
                self._give_up(f"{self._name}: {complaint(self.progress.samples[-1], given['timeout_s'])}")

    def _give_up(self, problem: str) -> None:
        """Let producers go on, unless they shall stay blocked, and fail."""
        if self._module.params["on_timeout"] == "resume":
            try:
                set_blocked(self._administration, wanted=False, dry_run=False)
            except Refused as error:
                problem += f". Producers may still be blocked, because {error}; state: resumed lets them go on"
        self._module.fail_json(msg=problem, changed=bool(self.blocked), **self.result())

    def stop(self) -> int:
        """Stop the node; the messages that its journal has after that."""
        allowed = self._ignored_messages()
        outcome = self._deployed.instance.reach("stopped", "stopped", self._module.params["timeout_s"], dry_run=False)
        if outcome.failed:
            self._module.fail_json(msg=f"{self._name}: {outcome.message}", changed=True, **self.result())
        command = [self._deployed.definition.command[0], "data", "verify", "--json"]
        command += ["--instance", self._module.params["directory"]]
        report = read_json(command, *self._module.run_command(command))
        left = int(report["live_messages"])
        problem = remains(left, allowed, len(report["problems"]))
        if problem:
            self._module.fail_json(
                msg=f"{self._name} {problem}", changed=True, state="stopped", left_messages=left, **self.result()
            )
        return left


def drain(module: AnsibleModule, deployed: DeployedInstance, clock: Clock) -> None:
    """Reach the wanted state, and end the module."""
    given, name = module.params, deployed.definition.name
    seen = deployed.instance.see()
    state = "stopped" if seen.service.down else seen.broker.state
    nothing: dict[str, object] = {"blocked": [], "depths": {}, "progress": [], "elapsed_ms": 0}
    if state in ("stopped", "passive"):
        module.exit_json(changed=False, state=state, **nothing)
    if state != "active":
        module.fail_json(msg=f"{name} is {state}; only an active node can be drained")
    node = Drain(module, deployed, clock)
    if given["state"] == "resumed":
        administration = Administration(deployed.management(), name)
        node.blocked = set_blocked(administration, wanted=False, dry_run=module.check_mode)
        node.look()
        module.exit_json(changed=bool(node.blocked), state="active", **node.result())
    stops = given["stop"] or given["method"] == SCALE_DOWN
    if given["method"] == SCALE_DOWN:
        elements = broker_elements(Path(given["directory"]))
        if not scales_down(list(elements), elements.get("scale-down/enabled", "")):
            module.fail_json(msg=f"{name} keeps its messages when it stops; deploy it with broker_scale_down: true")
    node.look()
    if module.check_mode:
        administration = Administration(deployed.management(), name)
        node.blocked = set_blocked(administration, wanted=True, dry_run=True)
        module.exit_json(changed=stops or bool(node.blocked), state="active", **node.result())
    if given["method"] != SCALE_DOWN:
        node.consume()
    if stops:
        left = node.stop()
        module.exit_json(changed=True, state="stopped", left_messages=left, **node.result())
    module.exit_json(changed=bool(node.blocked), state="active", **node.result())


def main() -> None:
    module = AnsibleModule(
        argument_spec={
            "directory": {"type": "path", "required": True},
            "state": {"type": "str", "choices": ["drained", "resumed"], "default": "drained"},
            "method": {"type": "str", "choices": list(METHODS), "default": "consume"},
            "ignore": {"type": "list", "elements": "str", "default": []},
            "stop": {"type": "bool", "default": False},
            "timeout_s": {"type": "int", "default": 600},
            "on_timeout": {"type": "str", "choices": ["resume", "keep"], "default": "resume"},
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
        drain(module, deployed, clock)
    except HeldByAnother as error:
        module.fail_json(msg=str(error))
    except (Refused, NotComparable, ServiceError, KeyError, OSError, ValueError) as error:
        module.fail_json(msg=f"{directory}: {error}")


if __name__ == "__main__":
    main()
