#!/usr/bin/python
# SPDX-License-Identifier: Apache-2.0
"""Module directories: make several directories."""

from __future__ import annotations

DOCUMENTATION = r"""
module: directories
short_description: Make several directories, each with its owner and mode
description:
  - Does in one step what takes M(ansible.builtin.file) one for each directory.
  - Parents that are missing are made with mode V(0755). Nothing is removed.
version_added: 0.2.0
author:
  - The Understudy authors (@understudy)
options:
  directories:
    description: The directories, parents first.
    type: list
    elements: dict
    required: true
    suboptions:
      path:
        description: Path of the directory.
        type: path
        required: true
      owner:
        description: Name of its owner. Without it, or if it is empty, the present one stays.
        type: str
      group:
        description: Name of its group. Without it, or if it is empty, the present one stays.
        type: str
      mode:
        description: Mode of the directory, as M(ansible.builtin.file) takes it.
        type: raw
        required: true
extends_documentation_fragment:
  - understudy.broker.instance.attributes
  - understudy.broker.instance.preview
attributes:
  check_mode:
    support: full
  diff_mode:
    support: full
"""

EXAMPLES = r"""
- name: Make the directories of an instance
  understudy.broker.directories:
    directories:
      - {path: /opt/understudy/instance, mode: "0755"}
      - {path: /opt/understudy/instance/log, owner: understudy, group: understudy, mode: "0750"}
"""

RETURN = r"""
made:
  description: Paths that were missing.
  returned: success
  type: list
  elements: str
"""

from pathlib import Path

from ansible.module_utils.basic import AnsibleModule


def main() -> None:
    module = AnsibleModule(
        argument_spec={
            "directories": {
                "type": "list",
                "elements": "dict",
                "required": True,
                "options": {
                    "path": {"type": "path", "required": True},
                    "owner": {"type": "str"},
                    "group": {"type": "str"},
                    "mode": {"type": "raw", "required": True},
                },
            },
            "preview": {"type": "bool", "default": False},
        },
        supports_check_mode=True,
    )
    made, changed = [], False
    try:
        for wanted in module.params["directories"]:
            path = Path(wanted["path"])
            if not path.is_dir():
                made.append(str(path))
                if module.check_mode:
                    continue
                path.mkdir(parents=True)
            given = {key: value or None for key, value in wanted.items()}
            arguments = module.load_file_common_arguments({**module.params, **given})
            changed = module.set_fs_attributes_if_different(arguments, changed)
    except OSError as error:
        module.fail_json(msg=str(error), made=made)
    module.exit_json(
        changed=(changed or bool(made)) and not (module.check_mode and module.params["preview"]),
        made=made,
        diff={"before": "", "after": "".join(f"{path}\n" for path in made)},
    )


if __name__ == "__main__":
    main()
