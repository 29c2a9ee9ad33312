# SPDX-License-Identifier: Apache-2.0
"""Action wheelhouse: runs the module and shows its steps, which may take minutes."""

from __future__ import annotations

import tempfile
import time
from pathlib import Path
from typing import Any

from ansible.plugins.action import ActionBase
from ansible.utils.display import Display
from ansible_collections.understudy.broker.plugins.plugin_utils.progress import Steps, shown


class ActionModule(ActionBase):  # type: ignore[misc]
    """The module runs on the controller, so both read and write one file."""

    TRANSFERS_FILES = False
    _supports_check_mode = True

    def run(self, tmp: object = None, task_vars: dict[str, Any] | None = None) -> dict[str, Any]:
        super().run(tmp, task_vars)
        with tempfile.TemporaryDirectory(prefix="understudy-") as scratch:
            file = Path(scratch) / "steps"
            with shown(Steps("wheelhouse", "", time.monotonic()), Display().display, file):
                return dict(
                    self._execute_module(
                        "understudy.broker.wheelhouse",
                        module_args={"progress": str(file), **self._task.args},
                        task_vars=task_vars or {},
                    )
                )
