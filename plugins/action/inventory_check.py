# SPDX-License-Identifier: Apache-2.0
"""Action inventory_check: shows all faults of the inventory once, as lines of text."""

from __future__ import annotations

from typing import Any

from ansible import constants
from ansible.plugins.action import ActionBase
from ansible.utils.display import Display
from ansible_collections.understudy.broker.plugins.plugin_utils.inventory import find_faults, merged

GROUPS = ("nodes", "witnesses", "others")


class ActionModule(ActionBase):  # type: ignore[misc]
    """Reads the variables of all hosts on the controller."""

    TRANSFERS_FILES = False
    _requires_connection = False
    _supports_check_mode = True

    def run(self, tmp: object = None, task_vars: dict[str, Any] | None = None) -> dict[str, Any]:
        super().run(tmp, task_vars)
        _spec, given = self.validate_argument_spec(
            argument_spec={name: {"type": "list", "elements": "str", "default": []} for name in GROUPS}
        )
        nodes, witnesses, others = (given[name] for name in GROUPS)
        lines = merged(find_faults(nodes, witnesses, others, (task_vars or {})["hostvars"]))
        if not lines:
            return {"changed": False}
        # In the result Ansible would print them twice more, as one line of JSON and once for each host.
        for line in ["The inventory cannot be deployed:", *(f"  {line}" for line in lines)]:
            Display().display(line, color=constants.COLOR_ERROR)
        count = "1 fault is" if len(lines) == 1 else f"{len(lines)} faults are"
        return {"failed": True, "msg": f"The inventory cannot be deployed; its {count} shown above."}
