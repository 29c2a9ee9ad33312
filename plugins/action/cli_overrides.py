# SPDX-License-Identifier: Apache-2.0
"""Action cli_overrides: adds the variables that make the changes of a node superfluous."""

from __future__ import annotations

from typing import Any

from ansible.plugins.action import ActionBase
from ansible_collections.understudy.broker.plugins.module_utils.console import ADOPT
from ansible_collections.understudy.broker.plugins.module_utils.user_store import Unreadable
from ansible_collections.understudy.broker.plugins.plugin_utils.export_node import (
    Difference,
    Files,
    difference,
    export_node,
    inventory_of,
)
from ansible_collections.understudy.broker.plugins.plugin_utils.render import Misplaced
from ansible_collections.understudy.broker.plugins.plugin_utils.structured import NoConfiguration


class ActionModule(ActionBase):  # type: ignore[misc]
    """Runs the module and adds to its result."""

    TRANSFERS_FILES = False

    def run(self, tmp: object = None, task_vars: dict[str, Any] | None = None) -> dict[str, Any]:
        super().run(tmp, task_vars)
        variables = task_vars or {}
        result: dict[str, Any] = dict(
            self._execute_module("understudy.broker.cli_overrides", module_args=self._task.args, task_vars=variables)
        )
        # not passed on: they hold secrets
        files = result.pop("files", None)
        if result.get("failed") or self._task.args.get("policy") != ADOPT:
            return result
        found = Difference({}, (), ())
        if files is not None:
            host = str(variables["inventory_hostname"])
            try:
                found = self._difference(files, host, variables)
            except (Misplaced, NoConfiguration, Unreadable) as error:
                return {**result, "failed": True, "msg": f"{host}: {error}"}
        return {
            **result,
            "variables": found.variables,
            "defaults": list(found.defaults),
            "unexpressed": list(found.unexpressed),
        }

    def _difference(self, files: dict[str, Any], host: str, variables: dict[str, Any]) -> Difference:
        directory, inventory = str(self._task.args["directory"]), inventory_of(variables, host)
        effective = files.pop("effective")
        before = export_node(Files(**files), directory, host, inventory)
        after = export_node(Files(**{**files, "document": effective}), directory, host, inventory)
        return difference(before, after)
