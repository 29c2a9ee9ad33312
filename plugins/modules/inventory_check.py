#!/usr/bin/python
# SPDX-License-Identifier: Apache-2.0
"""Module inventory_check: documentation of the action plugin, which does all of the work on the controller."""

from __future__ import annotations

DOCUMENTATION = r"""
module: inventory_check
short_description: Refuse an inventory with unknown, missing or contradictory variables
description:
  - Reads the variables of all given hosts on the controller and shows each fault once, in lines of text, with its
    hosts, the variable and what to set.
  - A name that begins with C(broker_) and is no variable of this collection is refused with the nearest name, unless
    it is listed in C(broker_extra_variables).
  - A variable that names an undefined one is refused with its host.
  - Changes nothing. Use it with C(run_once).
version_added: 0.2.0
author:
  - The Understudy authors (@understudy)
options:
  nodes:
    description: Inventory names of all hosts with a broker.
    type: list
    elements: str
    default: []
  witnesses:
    description: Inventory names of the hosts of witnesses.
    type: list
    elements: str
    default: []
  others:
    description: Inventory names of hosts of which only the names of the variables are checked.
    type: list
    elements: str
    default: []
extends_documentation_fragment:
  - understudy.broker.instance.attributes
attributes:
  check_mode:
    support: full
  diff_mode:
    support: none
notes:
  - The result of a failure has the number of the faults only. Ansible would print their text again as JSON.
"""

EXAMPLES = r"""
- name: Refuse a faulty inventory
  understudy.broker.inventory_check:
    nodes: "{{ groups['broker'] }}"
    witnesses: "{{ groups['broker_quorum'] | default([]) }}"
  run_once: true
"""

RETURN = r"""
"""

from ansible.module_utils.basic import AnsibleModule


def main() -> None:
    names = ("nodes", "witnesses", "others")
    options = {name: {"type": "list", "elements": "str", "default": []} for name in names}
    module = AnsibleModule(argument_spec=options, supports_check_mode=True)
    module.fail_json(msg="inventory_check is an action plugin; it runs on the controller")


if __name__ == "__main__":
    main()
