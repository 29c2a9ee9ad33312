#!/usr/bin/python
# SPDX-License-Identifier: Apache-2.0
"""Module cli: lines of the management CLI for a running node."""

from __future__ import annotations

DOCUMENTATION = r"""
module: cli
short_description: Configure a running node by lines of the management CLI
description:
  - Carries out lines of the management CLI of JBoss EAP and WildFly at the node on this host, as C(understudy cli).
  - The node keeps the changes in C(etc/broker.d/50-cli.json), which counts instead of C(broker.xml). A setting that
    belongs to the deployment is better declared in the inventory; C(broker_cli_overrides) says what the next deployment
    makes of the changes.
  - The module has changed something if the configuration that it reads after the lines differs from that before them.
    Lines that write a secret always count as a change, because secrets cannot be read.
  - In check mode the node validates each line after those before it, and keeps nothing. Conditions of C(if) see the
    configuration that the lines before them would make.
version_added: 0.2.0
author:
  - The Understudy authors (@understudy)
options:
  directory:
    required: true
  lines:
    description: The lines, one in each element.
    type: list
    elements: str
  script:
    description: The lines as one text, such as a file of lines.
    type: str
  if_needed:
    description:
      - Whether C(add) of a present resource with these values, and C(remove) of a missing one, count as done. Without
        it they fail, as they do in scripts of the reference product.
    type: bool
    default: true
  reload:
    description:
      - Whether the node is reloaded after the lines if a change waits for it. A reload interrupts the clients of the
        node, and is refused for an active node of a pair that no other node would replace.
    type: bool
    default: false
  timeout_s:
    description: Seconds that an answer, and the reload, may take.
    type: int
    default: 60
extends_documentation_fragment:
  - understudy.broker.instance
  - understudy.broker.instance.attributes
  - understudy.broker.instance.hold
attributes:
  check_mode:
    support: full
  diff_mode:
    support: full
notes:
  - Lines before one that fails have been carried out, and count. Lines that need each other belong between C(batch) and
    C(run-batch).
  - Each node of a pair has its own configuration, so the task has to run on both.
  - Set C(no_log) for lines with secrets; Ansible shows the arguments of a task otherwise.
seealso:
  - module: understudy.broker.cli_overrides
  - module: understudy.broker.address
"""

EXAMPLES = r"""
- name: Give the pair a group of its own
  understudy.broker.cli:
    directory: /opt/understudy/instance
    lines:
      - cd /subsystem=messaging-activemq/server=default
      - ha-policy=replication-master:write-attribute(name=group-name, value=east)
    reload: true

- name: Carry out a script of lines
  understudy.broker.cli:
    directory: /opt/understudy/instance
    script: "{{ lookup('ansible.builtin.file', 'pair.cli') }}"
  register: carried_out

- name: Show the changes that wait for a reload
  ansible.builtin.debug:
    msg: "{{ carried_out.reload_required }}"
"""

RETURN = r"""
answers:
  description: The answers of the node, in the order of the lines; one for each batch.
  returned: success, and where a line fails
  type: list
  elements: dict
  sample: [{"outcome": "success", "result": 1}]
printed:
  description: What commands such as C(echo) and C(ls) have printed.
  returned: success, and where a line fails
  type: list
  elements: str
reload_required:
  description: Whether the configuration has changes that the node uses after a reload or a restart only.
  returned: success, and where a line fails
  type: bool
reloaded:
  description: Whether the node was reloaded by a line or because of O(reload), in check mode whether it would be.
  returned: success
  type: bool
"""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path

from ansible.module_utils.basic import AnsibleModule
from ansible_collections.understudy.broker.plugins.module_utils.console import Console, Summary, without_secrets
from ansible_collections.understudy.broker.plugins.module_utils.rollout_hold import (
    HOLD_OPTIONS,
    HeldByAnother,
    refuse_held,
)
from ansible_collections.understudy.broker.plugins.module_utils.service import ServiceDefinition, ServiceError
from ansible_collections.understudy.broker.plugins.module_utils.waiting import Clock

RELOAD = ":reload"


def carry_out(module: AnsibleModule, directory: Path) -> None:
    """Carry out the lines, and end the module.

    Raises:
        HeldByAnother: another run holds the node for a roll.
        ServiceError: nothing is deployed, or the node does not answer.
    """
    given = module.params
    definition = ServiceDefinition.read(directory)
    if definition is None:
        raise ServiceError(f"nothing is deployed in {directory}; run the site playbook on this host first")

    if not module.check_mode:
        refuse_held(given, directory, definition.name, Clock().wall_ms())

    def run(command: Sequence[str], script: str, environment: Mapping[str, str]) -> tuple[int, str, str]:
        code, output, error = module.run_command(
            list(command), data=script, binary_data=False, environ_update=dict(environment)
        )
        return int(code), str(output), str(error)

    console = Console(definition, run, given["timeout_s"])
    script = given["script"] if given["script"] is not None else "\n".join(given["lines"])
    summary = console.carry_out(script, check=module.check_mode, if_needed=given["if_needed"])
    result = result_of(summary)
    if summary.problem:
        module.fail_json(msg=f"{definition.name}: {summary.problem}", changed=summary.changed, **result)
    reloads = given["reload"] and summary.reload_required
    if reloads and not module.check_mode:
        second = console.carry_out(RELOAD, check=False, if_needed=False)
        if second.problem:
            told = f"the lines are carried out and wait for a reload, which failed: {second.problem}"
            module.fail_json(msg=f"{definition.name}: {told}", changed=summary.changed, **result)
        result["reload_required"] = second.reload_required
    reloaded = summary.reloaded or reloads
    before, after = (text_of(each) for each in (summary.before, summary.after))
    diff = {"before": before, "after": after}
    module.exit_json(changed=summary.changed or reloaded, reloaded=reloaded, diff=diff, **result)


def result_of(summary: Summary) -> dict[str, object]:
    """The part of the result that a failure has as well."""
    return {
        "answers": without_secrets(list(summary.answers)),
        "printed": list(summary.printed),
        "reload_required": summary.reload_required,
    }


def text_of(configuration: object) -> str:
    """A configuration for a difference."""
    return json.dumps(without_secrets(configuration), indent=1) + "\n"


def main() -> None:
    module = AnsibleModule(
        argument_spec={
            "directory": {"type": "path", "required": True},
            "lines": {"type": "list", "elements": "str"},
            "script": {"type": "str"},
            "if_needed": {"type": "bool", "default": True},
            "reload": {"type": "bool", "default": False},
            "timeout_s": {"type": "int", "default": 60},
            **HOLD_OPTIONS,
        },
        mutually_exclusive=[("lines", "script")],
        required_one_of=[("lines", "script")],
        supports_check_mode=True,
    )
    try:
        carry_out(module, Path(module.params["directory"]))
    except (HeldByAnother, ServiceError, OSError, ValueError) as error:
        module.fail_json(msg=str(error))


if __name__ == "__main__":
    main()
