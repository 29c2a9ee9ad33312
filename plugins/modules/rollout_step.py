#!/usr/bin/python
# SPDX-License-Identifier: Apache-2.0
"""Module rollout_step: one step of a roll on one host, with its record."""

from __future__ import annotations

DOCUMENTATION = r"""
module: rollout_step
short_description: Do one step of a roll on a host, and record it there
description:
  - Saves the release and configuration of a broker, puts staged ones in place while it is stopped, and puts the saved
    ones back.
  - The record C(rollout/record.json) in the instance directory says how far the node is, so that a roll is continued by
    the next run from any controller. A step that the record does not allow is refused.
  - Starts and stops nothing; M(understudy.broker.instance) does.
version_added: 0.2.0
author:
  - The Understudy authors (@understudy)
options:
  directory:
    required: true
  root:
    description: Directory that holds C(releases) and C(current).
    type: path
    required: true
  step:
    description:
      - V(begin) saves the present release and configuration, or continues the roll that the record names.
      - V(apply) puts the staged release and configuration, or those to go back to, in place of those of a broker that
        is stopped.
      - V(finish) records that the broker has reached its gate, and keeps the saved release and configuration for a
        rollback.
      - V(restore) puts the saved ones back, because the roll has failed; V(restart) records that the broker runs again.
      - V(unstage) removes staged files of a node with which no wave of an undone update had begun.
    type: str
    required: true
    choices: [begin, apply, finish, restore, restart, unstage]
  plan:
    description:
      - RV(understudy.broker.rollout#module:plan), without its waves if they are long. Needed for V(begin).
      - If the plan has a C(holder), the step is refused where M(understudy.broker.rollout_hold) does not hold the node
        for that holder any more.
    type: dict
  wave:
    description: Name of the wave. Used by V(begin).
    type: str
    default: ""
  served:
    description: Whether the node serves when its wave begins. Used by V(begin).
    type: bool
    default: false
extends_documentation_fragment:
  - understudy.broker.instance
  - understudy.broker.instance.attributes
attributes:
  check_mode:
    support: full
  diff_mode:
    support: full
seealso:
  - module: understudy.broker.rollout
"""

EXAMPLES = r"""
- name: Put the staged release and configuration in place
  understudy.broker.rollout_step:
    directory: /opt/understudy/instance
    root: /opt/understudy
    step: apply
    plan: "{{ planned.plan }}"
"""

RETURN = r"""
phase:
  description: How far the node is now.
  returned: success
  type: str
release:
  description: The release that C(current) points to now.
  returned: success
  type: str
replaced:
  description: Files replaced.
  returned: success
  type: list
  elements: str
"""

from dataclasses import replace
from pathlib import Path
from typing import Any

from ansible.module_utils.basic import AnsibleModule
from ansible_collections.understudy.broker.plugins.module_utils.deployed import DeployedInstance, open_instance
from ansible_collections.understudy.broker.plugins.module_utils.generations import (
    UNITS,
    GenerationError,
    Generations,
    begin,
    needs_daemon_reload,
)
from ansible_collections.understudy.broker.plugins.module_utils.releases import Releases
from ansible_collections.understudy.broker.plugins.module_utils.rollout_hold import HeldByAnother, Holder, HoldFile
from ansible_collections.understudy.broker.plugins.module_utils.rollout_model import RESTART, ROLLBACK, UPDATE
from ansible_collections.understudy.broker.plugins.module_utils.rollout_record import Event, Phase, Record, step
from ansible_collections.understudy.broker.plugins.module_utils.service import Run, ServiceError
from ansible_collections.understudy.broker.plugins.module_utils.waiting import Clock

UNSTAGE = "unstage"
STEPS = ("begin", "apply", "finish", "restore", "restart", UNSTAGE)
DOWN = (Event.APPLY, Event.RESTORE)
"""Steps that only a stopped broker allows."""


def advance(generations: Generations, record: Record, event: Event, plan: dict[str, str]) -> tuple[Record, list[Path]]:
    """The record after the step, and the files that the step has replaced."""
    phase = record.phase
    # the end of the process and the answer at its gate have been seen by the module that stopped or started it
    if event is Event.APPLY and phase is Phase.BEGUN:
        phase = step(phase, Event.STOP)
    elif event is Event.FINISH and phase is Phase.APPLIED:
        phase = step(phase, Event.START)
    phase = step(phase, event)
    replaced: list[Path] = []
    if event is Event.APPLY and phase is not record.phase:
        if record.kind == UPDATE:
            replaced = generations.apply_staged(record.target)
        elif record.kind == ROLLBACK:
            saved = generations.to_undo(record.roll, plan.get("undoes", ""))
            replaced = generations.put_back(saved, live=False) if saved is not None else []
    elif event is Event.RESTORE and phase is Phase.RESTORING and record.kind != RESTART:
        generations.reopen(record.roll)
        replaced = generations.put_back(generations.aside, live=record.kind == UPDATE)
    elif event is Event.RESTART:
        generations.discard()
    elif event is Event.FINISH and record.kind == UPDATE:
        generations.keep()
    elif event is Event.FINISH and record.kind == ROLLBACK:
        generations.spend(plan.get("undoes", ""))
    return replace(record, phase=phase), replaced


def reload_units(replaced: list[Path], run: Run) -> None:
    if not needs_daemon_reload(replaced):
        return
    code, output, error = run(["systemctl", "daemon-reload"])
    if code != 0:
        raise GenerationError(f"systemctl daemon-reload ended with {code}: {error.strip() or output.strip()}")


def renew_hold(module: AnsibleModule, deployed: DeployedInstance) -> dict[str, Any]:
    """Renew the hold of this run on the node; its plan. Raises HeldByAnother."""
    plan = module.params["plan"] or {}
    if plan.get("holder") is not None:
        hold = HoldFile(Path(module.params["directory"]), Clock().wall_ms())
        hold.renew(deployed.definition.name, Holder.from_dict(plan["holder"]))
    return dict(plan)


def unstage(module: AnsibleModule, deployed: DeployedInstance, generations: Generations) -> dict[str, object]:
    """Remove staged files; the result of the module."""
    known = Record.read(generations.record_file)
    found = generations.staged()
    if not module.check_mode:
        renew_hold(module, deployed)
        generations.unstage()
    return {
        "changed": bool(found),
        "phase": (Phase.IDLE if known is None else known.phase).value,
        "release": generations.releases.current(),
        "replaced": [],
    }


def take(module: AnsibleModule, deployed: DeployedInstance) -> dict[str, object]:
    """Do the step; the result of the module."""
    params = module.params
    unit = UNITS / deployed.definition.unit if deployed.definition.unit else None
    generations = Generations(Path(params["directory"]), Releases(Path(params["root"])), unit)
    if params["step"] == UNSTAGE:
        return unstage(module, deployed, generations)
    event = Event(params["step"])
    status = deployed.instance.see().service
    if event in DOWN and not status.down:
        raise GenerationError(f"{event.value}: the broker runs; stop it first")
    known = Record.read(generations.record_file)
    before = Phase.IDLE if known is None else known.phase
    result: dict[str, object] = {"release": generations.releases.current(), "replaced": []}
    if module.check_mode:
        return {**result, "changed": True, "phase": before.value}
    plan = renew_hold(module, deployed)
    replaced: list[Path] = []
    if event is Event.BEGIN:
        texts = {name: str(plan[name]) for name in ("roll", "kind", "target")}
        wanted = Record(**texts, wave=params["wave"], phase=Phase.IDLE, served=params["served"])
        record: Record | None = begin(generations, wanted, running=not status.down)
    elif known is None:
        step(before, event)  # refuses what a node without a record cannot do
        record = None
    else:
        record, replaced = advance(generations, known, event, plan)
    if record is not None and record != known:
        record.write(generations.record_file)
    reload_units(replaced, module.run_command)
    phase = before if record is None else record.phase
    return {
        "changed": record != known,
        "phase": phase.value,
        "release": generations.releases.current(),
        "replaced": [str(path) for path in replaced],
        "diff": {"before": f"{before.value}\n", "after": f"{phase.value}\n"},
    }


def main() -> None:
    module = AnsibleModule(
        argument_spec={
            "directory": {"type": "path", "required": True},
            "root": {"type": "path", "required": True},
            "step": {"type": "str", "required": True, "choices": list(STEPS)},
            "plan": {"type": "dict"},
            "wave": {"type": "str", "default": ""},
            "served": {"type": "bool", "default": False},
        },
        required_if=[("step", "begin", ("plan",))],
        supports_check_mode=True,
    )
    directory = module.params["directory"]
    try:
        deployed = open_instance(Path(directory), module.run_command, Clock())
        if deployed is None:
            module.fail_json(msg=f"nothing is deployed in {directory}; run the site playbook on this host first")
            return
        module.exit_json(**take(module, deployed))
    except KeyError as error:
        module.fail_json(msg=f"{directory}: plan lacks {error}")
    except HeldByAnother as error:
        module.fail_json(msg=str(error))
    except (GenerationError, ServiceError, ValueError, OSError) as error:
        module.fail_json(msg=f"{directory}: {error}")


if __name__ == "__main__":
    main()
