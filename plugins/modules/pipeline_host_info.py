#!/usr/bin/python
# SPDX-License-Identifier: Apache-2.0
"""Module pipeline_host_info: whether a host can run the data pipeline."""

from __future__ import annotations

DOCUMENTATION = r"""
module: pipeline_host_info
short_description: Tell whether a host has what the data pipeline needs
description:
  - Finds Java and its version, the free space, and what a user may do with the stores.
  - The access to stores is asked in a process that is the user. Nothing is opened or made.
version_added: 0.2.0
author:
  - The Understudy authors (@understudy)
options:
  java_home:
    description: Home of Java; empty for the C(java) of the PATH.
    type: str
    default: ""
  space_path:
    description: Path whose file system is asked for free space; the nearest directory above that exists.
    type: path
    required: true
  user:
    description: User that the jobs run as. Empty for the present one, which is asked about writing unless it is root.
    type: str
    default: ""
  group:
    description: Group that the jobs have in addition. Empty for none.
    type: str
    default: ""
  stores:
    description: Directories that the user must be able to read, with all below them, and not to write.
    type: list
    elements: path
    default: []
extends_documentation_fragment:
  - understudy.broker.instance.attributes
attributes:
  check_mode:
    support: full
  diff_mode:
    support: none
"""

EXAMPLES = r"""
- name: Look whether the user of the pipeline can read the store and not write it
  understudy.broker.pipeline_host_info:
    space_path: /opt/understudy-pipeline
    user: understudy-pipeline
    group: understudy-readers
    stores: [/srv/orders/pair]
  register: host
"""

RETURN = r"""
systemd:
  description: Whether systemd runs the host and this is root.
  returned: success
  type: bool
user_id:
  description: Number of the user that Ansible is.
  returned: success
  type: int
java:
  description: C(command), C(major) version and C(problem), which is empty if Spark can use it.
  returned: success
  type: dict
free_bytes:
  description: Free space where O(space_path) is or would be.
  returned: success
  type: int
store_problems:
  description: Why the user cannot read the stores, or that it can write something in them.
  returned: success
  type: list
  elements: str
"""

import grp
import os
import shutil
from pathlib import Path

from ansible.module_utils.basic import AnsibleModule
from ansible_collections.understudy.broker.plugins.module_utils.platforms import this_host
from ansible_collections.understudy.broker.plugins.module_utils.store_access import java_found, store_problems


def free_bytes(path: Path) -> int:
    """Free space of the file system that a path is on or would be on."""
    while not path.is_dir() and path != path.parent:
        path = path.parent
    return shutil.disk_usage(path).free


def main() -> None:
    module = AnsibleModule(
        argument_spec={
            "java_home": {"type": "str", "default": ""},
            "space_path": {"type": "path", "required": True},
            "user": {"type": "str", "default": ""},
            "group": {"type": "str", "default": ""},
            "stores": {"type": "list", "elements": "path", "default": []},
        },
        supports_check_mode=True,
    )
    user, group, stores = module.params["user"], module.params["group"], module.params["stores"]
    problems: list[str] = []
    try:
        if stores:
            groups = [grp.getgrnam(group).gr_gid] if group else []
            problems = store_problems(user, groups, [Path(store) for store in stores])
    except KeyError as error:
        module.fail_json(msg=f"broker_pipeline_stores cannot be checked: this host has no {error.args[0]}")
    except OSError as error:
        module.fail_json(msg=f"broker_pipeline_stores: {error}")
    command, major, problem = java_found(module.params["java_home"], shutil.which, module.run_command, this_host())
    module.exit_json(
        changed=False,
        systemd=os.path.isdir("/run/systemd/system") and os.geteuid() == 0,
        user_id=os.geteuid(),
        java={"command": command, "major": major, "problem": problem},
        free_bytes=free_bytes(Path(module.params["space_path"])),
        store_problems=problems,
    )


if __name__ == "__main__":
    main()
