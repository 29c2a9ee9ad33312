"""Callback for tests: notes when each task of a run begins, and holds the run before one of them.

The environment gives ``PHASES_DIRECTORY`` and, to hold, ``PHASES_HOLD``, the name of a task. The first time that it is
reached, the run makes the file ``held`` there and waits until the file ``go`` is there, or its test has ended.
"""

from __future__ import annotations

import json
import os
import time
from pathlib import Path

from ansible.plugins.callback import CallbackBase

DOCUMENTATION = """
    name: phases
    type: notification
    short_description: Notes when each task begins, and holds a run before one of them
    description: [Used by tests.]
"""

POLL_S = 0.05


class CallbackModule(CallbackBase):
    CALLBACK_VERSION = 2.0
    CALLBACK_TYPE = "notification"
    CALLBACK_NAME = "phases"
    CALLBACK_NEEDS_ENABLED = True

    def __init__(self) -> None:
        super().__init__()
        self._directory = Path(os.environ["PHASES_DIRECTORY"])
        self._hold = os.environ.get("PHASES_HOLD", "")
        self._parent = os.getppid()

    def v2_playbook_on_task_start(self, task, is_conditional):  # type: ignore[no-untyped-def]
        name = task.get_name()
        with (self._directory / "tasks.jsonl").open("a") as file:
            file.write(json.dumps({"at_s": round(time.time(), 3), "task": name}) + "\n")
        if self._hold and name == self._hold:
            self._hold = ""
            (self._directory / "held").touch()
            while not (self._directory / "go").exists() and os.getppid() == self._parent:
                time.sleep(POLL_S)

    def v2_playbook_on_stats(self, stats):  # type: ignore[no-untyped-def]
        with (self._directory / "tasks.jsonl").open("a") as file:
            file.write(json.dumps({"at_s": round(time.time(), 3), "task": ""}) + "\n")
