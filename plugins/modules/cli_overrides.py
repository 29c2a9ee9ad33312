#!/usr/bin/python
# SPDX-License-Identifier: Apache-2.0
"""Module cli_overrides: the changes that a node keeps beside its broker.xml. Its action plugin adds variables."""

from __future__ import annotations

DOCUMENTATION = r"""
module: cli_overrides
short_description: List, adopt or drop the changes that lines of the management CLI have made at a node
description:
  - A node keeps changes of the management CLI in C(etc/broker.d/50-cli.json), which counts instead of C(broker.xml),
    also after C(broker.xml) was rendered again. This module lists them, and drops those that O(policy) does not keep.
  - A running node then has the values of C(broker.xml) again, for some elements after a reload or a restart only.
  - The role C(broker) calls it with C(broker_cli_overrides).
version_added: 0.2.0
author:
  - The Understudy authors (@understudy)
options:
  directory:
    required: true
  policy:
    description:
      - V(keep) and V(report) drop nothing.
      - V(adopt) returns the variables of the inventory that make the changes superfluous, and drops those that
        C(broker.xml) has as well.
      - V(remove) drops all of them.
    type: str
    choices: [keep, report, adopt, remove]
    default: report
extends_documentation_fragment:
  - understudy.broker.instance
  - understudy.broker.instance.attributes
attributes:
  check_mode:
    support: full
  diff_mode:
    support: full
notes:
  - Reads a running and a stopped node alike. Where nothing is deployed there are no changes.
seealso:
  - module: understudy.broker.cli
  - module: understudy.broker.export
"""

EXAMPLES = r"""
- name: Look for changes that the inventory does not have
  understudy.broker.cli_overrides:
    directory: /opt/understudy/instance
  register: found

- name: Show them
  ansible.builtin.debug:
    msg: "{{ found.lines }}"
  when: found.overrides | length > 0
"""

RETURN = r"""
overrides:
  description: The changes that remain, in their order; secrets are masked.
  returned: success
  type: list
  elements: dict
  contains:
    path: {description: Place in C(broker.xml)., type: str}
    state: {description: "V(set), V(present) or V(absent).", type: str}
    value: {description: The value of a place that is set., type: str}
    differs: {description: Whether C(broker.xml) without this change is another one., type: bool}
    time: {description: Time of the change., type: str}
    user: {description: Login that made it., type: str}
    line: {description: The line of the management CLI., type: str}
lines:
  description: Text of the changes for operators, one line for each change.
  returned: success
  type: list
  elements: str
dropped:
  description: The changes that were dropped, in check mode those that would be.
  returned: success
  type: list
  elements: dict
variables:
  description: The variables that make the remaining changes superfluous; eight stars instead of secrets.
  returned: with O(policy=adopt)
  type: dict
  sample: {broker_restart_backup: true}
defaults:
  description: Variables that must have their default for that, so that they are not in RV(variables).
  returned: with O(policy=adopt)
  type: list
  elements: str
unexpressed:
  description: Elements that no variable can set, with the reason.
  returned: with O(policy=adopt)
  type: list
  elements: str
"""

from pathlib import Path

from ansible.module_utils.basic import AnsibleModule
from ansible_collections.understudy.broker.plugins.module_utils.console import (
    ADOPT,
    POLICIES,
    REMOVE,
    REPORT,
    Overrides,
    is_to_drop,
    left,
    shown,
)
from ansible_collections.understudy.broker.plugins.module_utils.deployed import read_files
from ansible_collections.understudy.broker.plugins.module_utils.service import ServiceDefinition, ServiceError


def manage(module: AnsibleModule, directory: Path) -> None:
    """Do as the policy says, and end the module. Raises ServiceError, OSError."""
    policy = module.params["policy"]
    definition = ServiceDefinition.read(directory)
    overrides = Overrides(directory, definition) if definition is not None else None
    rows = overrides.rows() if overrides is not None else []
    kept = left(policy, rows)
    drops = is_to_drop(policy, rows)
    result: dict[str, object] = {
        "overrides": kept,
        "lines": [shown(each) for each in kept],
        "dropped": [each for each in rows if each not in kept],
    }
    if overrides is not None and policy == ADOPT and kept:
        result["files"] = {**read_files(directory), "effective": overrides.document()}
    if overrides is not None and drops and not module.check_mode:
        overrides.drop(superfluous=policy != REMOVE)
    before, after = ("".join(f"{shown(each)}\n" for each in some) for some in (rows, kept))
    module.exit_json(changed=drops, diff={"before": before, "after": after}, **result)


def main() -> None:
    module = AnsibleModule(
        argument_spec={
            "directory": {"type": "path", "required": True},
            "policy": {"type": "str", "choices": list(POLICIES), "default": REPORT},
        },
        supports_check_mode=True,
    )
    try:
        manage(module, Path(module.params["directory"]))
    except (ServiceError, OSError, ValueError) as error:
        module.fail_json(msg=str(error))


if __name__ == "__main__":
    main()
