#!/usr/bin/python
# SPDX-License-Identifier: Apache-2.0
"""Module journal_compare: which copy of a journal is newest, and where copies diverge."""

from __future__ import annotations

DOCUMENTATION = r"""
module: journal_compare
short_description: Compare copies of the journal of one node, and return what to do with them
description:
  - With several O(directories) on this host it returns what C(understudy data compare) finds, which reads the records.
  - With one directory it verifies that copy and returns where it ends. Give RV(copies) of all hosts as O(copies) to a
    further task, which returns the newest of them.
  - Reads only. Nodes may run, though a copy that grows is compared as far as it is written.
version_added: 0.2.0
author:
  - The Understudy authors (@understudy)
options:
  command:
    description: The command C(understudy) on this host. Required with O(directories).
    type: path
  directories:
    description: Directories with segments, such as the journal of an instance or an C(oldreplica.N) in it.
    type: list
    elements: path
  name:
    description: Name of the copy in RV(copies) where there is one directory; the directory without it.
    type: str
  full:
    description: Whether every byte of sealed segments is read, instead of trusting their seals.
    type: bool
    default: false
  copies:
    description: Copies on several hosts, each from RV(copies) of this module.
    type: list
    elements: dict
extends_documentation_fragment:
  - understudy.broker.instance.attributes
attributes:
  check_mode:
    support: full
  diff_mode:
    support: none
notes:
  - Copies of different nodes make the module fail. Copies that have diverged do not; assert RV(diverged).
seealso:
  - module: understudy.broker.journal_prune
"""

EXAMPLES = r"""
- name: Compare the journal with the copy that was moved aside
  understudy.broker.journal_compare:
    command: /opt/understudy/current/bin/understudy
    directories:
      - /opt/understudy/instance/data/journal
      - /opt/understudy/instance/data/journal/oldreplica.1
  register: compared

- name: Show what to do
  ansible.builtin.debug:
    var: compared.plan

- name: Look where the copy of each host ends
  understudy.broker.journal_compare:
    command: /opt/understudy/current/bin/understudy
    directories: [/opt/understudy/instance/data/journal]
    name: "{{ inventory_hostname }}"
  register: copy

- name: Find the newest
  understudy.broker.journal_compare:
    copies: "{{ ansible_play_hosts | map('extract', hostvars, 'copy') | map(attribute='copies') | flatten }}"
  delegate_to: localhost
  run_once: true
"""

RETURN = r"""
copies:
  description: The copies.
  returned: success
  type: list
  elements: dict
  contains:
    name: {description: Directory or name of the copy., type: str}
    node_id: {description: Node whose journal it is; null for an empty one., type: str}
    epoch: {description: Last activation in it., type: int}
    last_sequence: {description: Sequence of its last record., type: int}
    live_messages: {description: Messages in queues; null if nothing asked for them., type: int}
    state:
      description:
        - V(whole), V(cut) (a torn end, as after a power loss), V(short) (the copy was interrupted) or V(damaged).
        - V(whole) or V(damaged), with one directory.
      type: str
newest:
  description: Names of the copies with the highest epoch and sequence.
  returned: success
  type: list
  elements: str
pairs:
  description: Each two copies; empty without a comparison of records.
  returned: success
  type: list
  elements: dict
  contains:
    left: {description: A copy., type: str}
    right: {description: Another one., type: str}
    relation:
      description: V(identical), V(prefix) (left is the beginning of right), V(extension), V(diverged) or V(unknown).
      type: str
    common_until: {description: Sequence of the last record of the common beginning; V(0) if none is known., type: int}
    left_only_messages: {description: Messages in queues of left that right never had., type: int}
    right_only_messages: {description: The reverse., type: int}
diverged:
  description: Whether two copies have different records, or nothing in common; null without a comparison of records.
  returned: success
  type: bool
damaged:
  description: Names of damaged copies.
  returned: success
  type: list
  elements: str
plan:
  description: What to do, step by step, with the commands that merge the copies.
  returned: success
  type: list
  elements: str
"""

from ansible.module_utils.basic import AnsibleModule
from ansible_collections.understudy.broker.plugins.module_utils.comparison import (
    NotComparable,
    across_hosts,
    copy_of_verification,
    read_json,
    summary,
)


def compare(module: AnsibleModule) -> dict[str, object]:
    """The verdict.

    Raises:
        NotComparable: there is none.
    """
    given = module.params
    if given["copies"]:
        return across_hosts(given["copies"])
    directories = given["directories"]
    if len(directories) == 1:
        command = [given["command"], "data", "verify", directories[0], "--json"]
        report = read_json(command, *module.run_command(command))
        found = across_hosts([copy_of_verification(given["name"] or directories[0], report)])
        return {**found, "plan": []}
    command = [given["command"], "data", "compare", "--json", *(["--full"] if given["full"] else []), *directories]
    return summary(read_json(command, *module.run_command(command)))


def main() -> None:
    module = AnsibleModule(
        argument_spec={
            "command": {"type": "path"},
            "directories": {"type": "list", "elements": "path"},
            "name": {"type": "str"},
            "full": {"type": "bool", "default": False},
            "copies": {"type": "list", "elements": "dict"},
        },
        mutually_exclusive=[("directories", "copies")],
        required_one_of=[("directories", "copies")],
        required_by={"directories": "command"},
        supports_check_mode=True,
    )
    try:
        result = compare(module)
    except (NotComparable, KeyError) as error:
        module.fail_json(msg=f"the copies cannot be compared: {error}")
    else:
        module.exit_json(changed=False, **result)


if __name__ == "__main__":
    main()
