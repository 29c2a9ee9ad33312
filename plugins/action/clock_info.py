# SPDX-License-Identifier: Apache-2.0
"""Action clock_info: the clock of a host against that of the controller, which notes its own time around a question."""

from __future__ import annotations

import time
from typing import Any

from ansible.plugins.action import ActionBase
from ansible_collections.understudy.broker.plugins.plugin_utils.clocks import Reading, closest

QUESTIONS = 4
"""The first one may have to establish the connection, so it is slow and counts least."""
COMMAND = "date -u +%s%N"


class ActionModule(ActionBase):  # type: ignore[misc]
    """Asks the host for its time, and keeps the answer with the shortest way."""

    TRANSFERS_FILES = False
    _supports_check_mode = True

    def run(self, tmp: object = None, task_vars: dict[str, Any] | None = None) -> dict[str, Any]:
        super().run(tmp, task_vars)
        readings = []
        for _question in range(QUESTIONS):
            before = time.time_ns()
            answer = self._low_level_execute_command(COMMAND, sudoable=False)
            after = time.time_ns()
            text = str(answer.get("stdout", "")).strip()
            if answer.get("rc") != 0 or not text.isdecimal():
                said = str(answer.get("stderr") or text or "nothing").strip()
                return {"failed": True, "msg": f"`{COMMAND}` on the host answered {said}"}
            readings.append(Reading(before, int(text), after))
        best = closest(readings)
        return {"changed": False, "offset_ms": best.offset_ms, "uncertain_ms": best.uncertain_ms}
