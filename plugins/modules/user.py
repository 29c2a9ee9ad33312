#!/usr/bin/python
# SPDX-License-Identifier: Apache-2.0
"""Module user: one user of a broker instance, with its roles."""

from __future__ import annotations

DOCUMENTATION = r"""
module: user
short_description: Add, change and remove a user of a broker and its roles
description:
  - Changes one entry of C(etc/artemis-users.properties) and C(etc/artemis-roles.properties) of the instance. All other
    lines stay as they are.
  - Passwords are stored as scrypt hashes. A stored hash that fits O(password) stays, so a second run changes nothing.
  - A running broker takes the files over without a restart, at once with O(reload).
  - On a pair both nodes have files of their own. Run the task on both.
version_added: 0.2.0
author:
  - The Understudy authors (@understudy)
options:
  directory:
    required: true
  name:
    description: Name of the user.
    type: str
    required: true
  state:
    description: Whether there is such a user. V(absent) also takes it out of all roles.
    type: str
    choices: [present, absent]
    default: present
  password:
    description: Password of the user. A new user needs it, or O(password_hash).
    type: str
  password_hash:
    description: Instead of O(password) its hash, as C(understudy user hash) prints it.
    type: str
  update_password:
    description: Whether the password of an existing user is changed, or only that of a new one is set.
    type: str
    choices: [always, on_create]
    default: always
  roles:
    description:
      - All its roles; an empty list takes it out of every role. Roles that do not exist are made.
      - Without it the roles stay as they are.
    type: list
    elements: str
  append:
    description: Whether O(roles) are added to those that it has.
    type: bool
    default: false
  reload:
    description: Whether a running broker is asked to read the files at once. Otherwise it does so within some seconds.
    type: bool
    default: true
extends_documentation_fragment:
  - understudy.broker.instance
  - understudy.broker.instance.attributes
attributes:
  check_mode:
    support: full
  diff_mode:
    support: full
notes:
  - The role C(broker_security) writes both files as a whole from C(broker_users) and C(broker_roles). A user that shall
    stay belongs there as well; M(understudy.broker.export) returns the entries.
  - Permissions of roles are C(broker_security_settings) of the inventory.
seealso:
  - module: understudy.broker.export
"""

EXAMPLES = r"""
- name: Add a user of the shop
  understudy.broker.user:
    directory: /opt/understudy/instance
    name: shop
    password: "{{ shop_password }}"
    roles: [shops]

- name: Remove a user
  understudy.broker.user:
    directory: /opt/understudy/instance
    name: shop
    state: absent
"""

RETURN = r"""
password_changed:
  description: Whether the stored password was, or would be, replaced. Not so for a new user.
  returned: success
  type: bool
reloaded:
  description: Whether the broker has read the files; false if nothing changed, or it is not running or passive.
  returned: success
  type: bool
roles:
  description: Roles of the user in the end; empty for V(absent).
  returned: success
  type: list
  elements: str
"""

import os
import tempfile
from pathlib import Path

from ansible.module_utils.basic import AnsibleModule
from ansible_collections.understudy.broker.plugins.module_utils.administration import Administration, Refused
from ansible_collections.understudy.broker.plugins.module_utils.deployed import broker_elements, open_instance
from ansible_collections.understudy.broker.plugins.module_utils.destinations import Call
from ansible_collections.understudy.broker.plugins.module_utils.service import ServiceError
from ansible_collections.understudy.broker.plugins.module_utils.user_store import (
    ROLES_FILE,
    USERS_FILE,
    Unreadable,
    Wish,
    plan_user,
)
from ansible_collections.understudy.broker.plugins.module_utils.waiting import Clock


def replace(module: AnsibleModule, path: Path, text: str) -> None:
    """A new content of a file, in one step, with owner and mode of the present one."""
    descriptor, name = tempfile.mkstemp(dir=module.tmpdir)
    with os.fdopen(descriptor, "w", encoding="utf-8") as file:
        file.write(text)
    module.atomic_move(name, str(path))


def read(path: Path) -> str:
    """Content of a file.

    Raises:
        ServiceError: there is none.
    """
    try:
        return path.read_text(encoding="utf-8")
    except FileNotFoundError as error:
        problem = f"{path} does not exist; deploy the node with broker_security_enabled, or name its instance directory"
        raise ServiceError(problem) from error


def reload(module: AnsibleModule, directory: Path) -> bool:
    """Let a running broker read the files; whether it did."""
    deployed = open_instance(directory, module.run_command, Clock())
    if deployed is None or not deployed.instance.see().service.running:
        return False
    try:
        Administration(deployed.management(), deployed.definition.name).perform(
            Call("broker", "reloadConfigurationFile")
        )
    except Refused as error:
        module.warn(f"the users are read within some seconds, because {error}")
        return False
    return True


def manage(module: AnsibleModule, directory: Path) -> None:
    """Bring the files into the wanted state, and end the module."""
    given = module.params
    paths = [directory / "etc" / name for name in (USERS_FILE, ROLES_FILE)]
    texts = [read(path) for path in paths]
    wish = Wish(
        name=given["name"],
        present=given["state"] == "present",
        password=given["password"],
        password_hash=given["password_hash"],
        roles=None if given["roles"] is None else tuple(given["roles"]),
        append=given["append"],
        update_password=given["update_password"] == "always",
    )
    plan = plan_user(texts[0], texts[1], wish, [broker_elements(directory).get("cluster-user", "")], os.urandom)
    if plan.problem:
        module.fail_json(msg=plan.problem)
    changes = [
        (path, text)
        for path, text, present in zip(paths, (plan.users, plan.roles), texts, strict=True)
        if text != present
    ]
    if not module.check_mode:
        for path, text in changes:
            replace(module, path, text)
    module.exit_json(
        changed=bool(changes),
        password_changed="password" in plan.after,
        reloaded=bool(changes) and given["reload"] and not module.check_mode and reload(module, directory),
        roles=list(plan.roles_of_user),
        diff={"before": dict(plan.before), "after": dict(plan.after)},
    )


def main() -> None:
    module = AnsibleModule(
        argument_spec={
            "directory": {"type": "path", "required": True},
            "name": {"type": "str", "required": True},
            "state": {"type": "str", "choices": ["present", "absent"], "default": "present"},
            "password": {"type": "str", "no_log": True},
            "password_hash": {"type": "str", "no_log": True},
            "update_password": {
                "type": "str",
                "choices": ["always", "on_create"],
                "default": "always",
                "no_log": False,
            },
            "roles": {"type": "list", "elements": "str"},
            "append": {"type": "bool", "default": False},
            "reload": {"type": "bool", "default": True},
        },
        mutually_exclusive=[("password", "password_hash")],
        supports_check_mode=True,
    )
    directory = Path(module.params["directory"])
    try:
        manage(module, directory)
    except (ServiceError, Unreadable, OSError) as error:
        module.fail_json(msg=str(error))


if __name__ == "__main__":
    main()
