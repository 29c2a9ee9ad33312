# SPDX-License-Identifier: Apache-2.0
"""Action release: runs the module and shows that the installation on the host goes on."""

from __future__ import annotations

import time
from typing import Any

from ansible.plugins.action import ActionBase
from ansible.utils.display import Display
from ansible_collections.understudy.broker.plugins.plugin_utils.progress import Steps, shown


class ActionModule(ActionBase):  # type: ignore[misc]
    """The host does not tell its steps before it ends; the time does."""

    TRANSFERS_FILES = False
    _supports_check_mode = True

    def run(self, tmp: object = None, task_vars: dict[str, Any] | None = None) -> dict[str, Any]:
        super().run(tmp, task_vars)
        variables = task_vars or {}
        step = f"installing release {self._task.args.get('release', '')}"
        with shown(Steps(str(variables.get("inventory_hostname", "")), step, time.monotonic()), Display().display):
            return dict(
                self._execute_module("understudy.broker.release", module_args=self._task.args, task_vars=variables)
            )
