# SPDX-License-Identifier: Apache-2.0
"""Action export: turns the files that the module read on the host into variables, with the table on the controller."""

from __future__ import annotations

import difflib
from typing import Any

from ansible.plugins.action import ActionBase
from ansible_collections.understudy.broker.plugins.module_utils.redaction import redact, spellings
from ansible_collections.understudy.broker.plugins.module_utils.user_store import Unreadable
from ansible_collections.understudy.broker.plugins.plugin_utils.export_node import (
    Files,
    export_node,
    inventory_of,
    masked,
    without_drill,
)
from ansible_collections.understudy.broker.plugins.plugin_utils.render import Misplaced
from ansible_collections.understudy.broker.plugins.plugin_utils.structured import NoConfiguration

FILES = ("document", "users", "roles", "service")
"""Results of the module that are not passed on: they hold secrets."""


class ActionModule(ActionBase):  # type: ignore[misc]
    """Runs the module and converts its result."""

    TRANSFERS_FILES = False

    def run(self, tmp: object = None, task_vars: dict[str, Any] | None = None) -> dict[str, Any]:
        super().run(tmp, task_vars)
        variables = task_vars or {}
        result: dict[str, Any] = dict(
            self._execute_module("understudy.broker.export", module_args=self._task.args, task_vars=variables)
        )
        if result.get("failed"):
            return result
        files = Files(**{name: result.pop(name) for name in FILES})
        include = self._task.args.get("secrets") == "include"
        host = str(variables["inventory_hostname"])
        try:
            exported = export_node(files, str(self._task.args["directory"]), host, inventory_of(variables, host))
        except (Misplaced, NoConfiguration, Unreadable) as error:
            return {**result, "failed": True, "msg": f"{host}: {error}"}
        own = variables["hostvars"][host]
        shown = exported.variables
        if own.get("broker_drill_password"):
            user, queue = (str(own.get(f"broker_drill_{each}") or "drill") for each in ("user", "queue"))
            shown = without_drill(shown, user, queue)
        hidden = [] if include else sorted(spellings(exported.secrets), key=len, reverse=True)
        lines = difflib.unified_diff(
            files.document.splitlines(), exported.document.splitlines(), "on the host", "exported", lineterm="", n=1
        )
        result.update(
            variables=masked(shown, hidden),
            equal=exported.document == files.document,
            difference=[redact(line, exported.secrets) for line in lines],
            unexpressed=[redact(line, exported.secrets) for line in exported.unexpressed],
        )
        return result
