#!/usr/bin/python
# SPDX-License-Identifier: Apache-2.0
"""Module units: write units of systemd, and have them started."""

from __future__ import annotations

DOCUMENTATION = r"""
module: units
short_description: Write units of systemd, and have them started now and at boot
description:
  - Does for several units in one step what takes M(ansible.builtin.copy) and M(ansible.builtin.systemd_service) two for
    each.
  - A unit that runs is not restarted, also if its file has changed. systemd reads files that have changed again.
version_added: 0.2.0
author:
  - The Understudy authors (@understudy)
options:
  units:
    description: The units.
    type: list
    elements: dict
    required: true
    suboptions:
      name:
        description: File name in C(/etc/systemd/system).
        type: str
        required: true
      content:
        description: Text of the unit. Without it the file has to be there.
        type: str
      enabled:
        description: Whether it is started at boot.
        type: bool
        default: false
      state:
        description:
          - V(started) starts it unless it runs. V(any) leaves it as it is.
          - V(absent) stops it and removes its file.
        type: str
        default: any
        choices: [started, any, absent]
  needs:
    description: What the units need on the host. Nothing is changed if one is missing.
    type: list
    elements: dict
    default: []
    suboptions:
      path:
        description: Path that has to exist.
        type: path
        required: true
      otherwise:
        description: Message of the failure if it does not.
        type: str
        required: true
  held_instance:
    description:
      - Instance directory of the node that the units are for. Without it no hold is looked at.
    type: path
    version_added: 0.2.0
extends_documentation_fragment:
  - understudy.broker.instance.hold
  - understudy.broker.instance.attributes
attributes:
  check_mode:
    support: full
  diff_mode:
    support: full
"""

EXAMPLES = r"""
- name: Mount the volume, now and at boot
  understudy.broker.units:
    units:
      - name: "{{ '/srv/orders' | understudy.broker.mount_unit_name }}"
        content: "{{ lookup('ansible.builtin.template', 'store.mount.j2') }}"
        enabled: true
        state: started
"""

RETURN = r"""
written:
  description: Names of the units whose files were written.
  returned: always
  type: list
  elements: str
removed:
  description: Paths of the files that were removed.
  returned: success
  type: list
  elements: str
"""

import tempfile
from pathlib import Path

from ansible.module_utils.basic import AnsibleModule
from ansible_collections.understudy.broker.plugins.module_utils.rollout_hold import (
    HOLD_OPTIONS,
    HeldByAnother,
    refuse_held,
)
from ansible_collections.understudy.broker.plugins.module_utils.units import (
    ABSENT,
    ANY,
    DIRECTORY,
    PROPERTIES,
    STARTED,
    Present,
    Unit,
    commands,
    outdated,
    parse_units,
)
from ansible_collections.understudy.broker.plugins.module_utils.waiting import Clock


def write(module: AnsibleModule, unit: Unit) -> dict[str, str]:
    """Write the file of a unit; the difference."""
    path = DIRECTORY / unit.name
    content = unit.content or ""
    before = path.read_text(encoding="utf-8", errors="replace") if path.exists() else ""
    if not module.check_mode:
        with tempfile.NamedTemporaryFile("w", encoding="utf-8", dir=module.tmpdir, delete=False) as copy:
            copy.write(content)
        Path(copy.name).chmod(0o644)
        module.atomic_move(copy.name, str(path))
    return {"before": before, "after": content, "before_header": str(path), "after_header": str(path)}


def look(module: AnsibleModule, units: list[Unit]) -> dict[str, Present]:
    """The units as systemd knows them."""
    return parse_units(systemctl(module, "show", f"--property={','.join(PROPERTIES)}", *(unit.name for unit in units)))


def systemctl(module: AnsibleModule, *arguments: str) -> str:
    """Output of ``systemctl``; fails the module with its error."""
    command = ["systemctl", *arguments]
    code, output, error = module.run_command(command)
    if code != 0:
        module.fail_json(msg=f"{' '.join(command)} ended with {code}: {error.strip() or output.strip()}")
    return str(output)


def main() -> None:
    module = AnsibleModule(
        argument_spec={
            "units": {
                "type": "list",
                "elements": "dict",
                "required": True,
                "options": {
                    "name": {"type": "str", "required": True},
                    "content": {"type": "str"},
                    "enabled": {"type": "bool", "default": False},
                    "state": {"type": "str", "default": ANY, "choices": [STARTED, ANY, ABSENT]},
                },
            },
            "needs": {
                "type": "list",
                "elements": "dict",
                "default": [],
                "options": {
                    "path": {"type": "path", "required": True},
                    "otherwise": {"type": "str", "required": True},
                },
            },
            "held_instance": {"type": "path"},
            **HOLD_OPTIONS,
        },
        supports_check_mode=True,
    )
    missing = [need["otherwise"] for need in module.params["needs"] if not Path(need["path"]).exists()]
    if missing:
        module.fail_json(msg="\n".join(missing), written=[])
    units = [
        Unit(
            each["name"],
            None if each["state"] == ABSENT else each["content"],
            each["enabled"] and each["state"] != ABSENT,
            each["state"] == STARTED,
            each["state"] == ABSENT,
        )
        for each in module.params["units"]
    ]
    held = module.params["held_instance"]
    try:
        if held and not module.check_mode:
            refuse_held(module.params, Path(held), held, Clock().wall_ms())
        stale = outdated(units, DIRECTORY)
        diff = [write(module, unit) for unit in stale]
    except HeldByAnother as error:
        module.fail_json(msg=str(error), written=[])
        return
    except (OSError, ValueError) as error:
        module.fail_json(msg=f"{DIRECTORY}: {error}", written=[])
        return
    present = {} if stale else look(module, units)
    if (stale or any(each.outdated for each in present.values())) and not module.check_mode:
        systemctl(module, "daemon-reload")
        present = look(module, units)
    needed = commands(units, present)
    if not module.check_mode:
        for command in needed:
            systemctl(module, *command)
    removed = [DIRECTORY / unit.name for unit in units if unit.absent and (DIRECTORY / unit.name).exists()]
    if removed and not module.check_mode:
        for path in removed:
            path.unlink()
        systemctl(module, "daemon-reload")
    module.exit_json(
        changed=bool(stale or needed or removed),
        written=[unit.name for unit in stale],
        removed=[str(path) for path in removed],
        diff=diff,
    )


if __name__ == "__main__":
    main()
