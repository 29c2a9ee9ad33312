#!/usr/bin/python
# SPDX-License-Identifier: Apache-2.0
"""Module export: the deployed configuration of a node. Its action plugin turns it into variables."""

from __future__ import annotations

DOCUMENTATION = r"""
module: export
short_description: Return the live configuration of a node as variables for the inventory
description:
  - Reads C(etc/broker.xml), the users, the roles and the service definition of an instance, and returns the C(broker_*)
    variables that give the same files.
  - Use it to take a node that was configured by hand, or by another tool, into the inventory, and to find what was
    changed on a host since the last deployment.
  - Changes of the management CLI in C(etc/broker.d) count, as they do for the node.
  - An element without a variable becomes a part of C(broker_config_extra).
version_added: 0.2.0
author:
  - The Understudy authors (@understudy)
options:
  directory:
    required: true
  secrets:
    description:
      - V(omit) returns eight stars instead of passwords, and instead of hashes of passwords.
      - V(include) returns them; set C(no_log) then.
    type: str
    choices: [omit, include]
    default: omit
extends_documentation_fragment:
  - understudy.broker.instance
  - understudy.broker.instance.attributes
attributes:
  check_mode:
    support: full
  diff_mode:
    support: none
notes:
  - The host need not be in the inventory group C(broker). If it is, connectors with the names of other hosts of the
    group are those of the cluster. Pair, port offset and owner of message groups are then those of the inventory,
    because no file on one host shows them.
  - Objects that were made at run time, by clients or by M(understudy.broker.queue), are in the store and not in these
    files.
  - Reads a running and a stopped node alike.
seealso:
  - module: understudy.broker.user
  - module: understudy.broker.queue
"""

EXAMPLES = r"""
- name: Read the variables of a node
  understudy.broker.export:
    directory: /opt/understudy/instance
  register: exported

- name: Write them beside the inventory
  ansible.builtin.copy:
    content: "{{ exported.variables | to_nice_yaml }}"
    dest: "{{ inventory_dir }}/host_vars/{{ inventory_hostname }}.yml"
    mode: "0600"
  delegate_to: localhost
"""

RETURN = r"""
variables:
  description: The variables by name; only those whose value is not the default.
  returned: success
  type: dict
  sample: {broker_ha_policy: primary_only, broker_advertise_address: 10.0.0.1}
equal:
  description: Whether these variables give the same C(broker.xml), character by character.
  returned: success
  type: bool
difference:
  description: Lines in which they would give another one, as a unified diff without secrets.
  returned: success
  type: list
  elements: str
unexpressed:
  description: Elements that no variable can set, with the reason.
  returned: success
  type: list
  elements: str
"""

from pathlib import Path

from ansible.module_utils.basic import AnsibleModule
from ansible_collections.understudy.broker.plugins.module_utils.console import Overrides
from ansible_collections.understudy.broker.plugins.module_utils.deployed import read_files
from ansible_collections.understudy.broker.plugins.module_utils.service import ServiceDefinition, ServiceError


def read(directory: Path) -> dict[str, object]:
    """The files of an instance, with the changes of the management CLI in broker.xml. Raises ServiceError, OSError."""
    files = read_files(directory)
    definition = ServiceDefinition.read(directory)
    if definition is not None:
        files["document"] = Overrides(directory, definition).document()
    return files


def main() -> None:
    module = AnsibleModule(
        argument_spec={
            "directory": {"type": "path", "required": True},
            "secrets": {"type": "str", "choices": ["omit", "include"], "default": "omit", "no_log": False},
        },
        supports_check_mode=True,
    )
    try:
        files = read(Path(module.params["directory"]))
    except (ServiceError, OSError, ValueError) as error:
        module.fail_json(msg=str(error))
    else:
        module.exit_json(changed=False, **files)


if __name__ == "__main__":
    main()
