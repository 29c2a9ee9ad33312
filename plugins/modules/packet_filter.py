#!/usr/bin/python
# SPDX-License-Identifier: Apache-2.0
"""Module packet_filter: admit to the ports of a broker only the hosts that belong there."""

from __future__ import annotations

DOCUMENTATION = r"""
module: packet_filter
short_description: Guard the ports of a broker with a table of nftables
description:
  - For each port the given sources are accepted and all others dropped. Packets to other ports, and from the host
    itself, pass.
  - The table is replaced in one transaction, so that no connection is refused meanwhile, and only if the kernel has
    other rules than the wanted ones. Rules that were added to it by hand are removed.
  - A packet that this table accepts can still be dropped by another table. Where firewalld runs, the module warns of
    ports that its default zone does not list, and says how they are admitted.
version_added: 0.2.0
author:
  - The Understudy authors (@understudy)
options:
  name:
    description: Name of the table; characters that nftables does not take become underscores.
    type: str
    required: true
  path:
    description: File for the rules, from which they are loaded at boot. Its directory must exist, except in check mode.
    type: path
    required: true
  ports:
    description: The ports. Required with O(state=present).
    type: list
    elements: dict
    default: []
    suboptions:
      port:
        description: TCP port.
        type: int
        required: true
      sources:
        description: Addresses and networks that may connect; none means that only the host itself may.
        type: list
        elements: str
        required: true
  replace:
    description: Whether ports of the present table that are not among O(ports) lose their rules.
    type: bool
    default: true
  state:
    description: V(absent) removes the table and the file. Without the file nothing is looked for.
    type: str
    choices: [present, absent]
    default: present
extends_documentation_fragment:
  - understudy.broker.instance.attributes
  - understudy.broker.instance.preview
attributes:
  check_mode:
    support: full
  diff_mode:
    support: full
notes:
  - Needs root and C(nft), unless there is nothing to remove.
"""

EXAMPLES = r"""
- name: Admit two members and the network of the clients
  understudy.broker.packet_filter:
    name: understudy-a1
    path: /etc/understudy/understudy-a1.nft
    ports:
      - {port: 61616, sources: [10.0.0.2, 10.0.0.3, 10.20.0.0/16]}
"""

RETURN = r"""
table:
  description: Name of the table, of the family C(inet).
  returned: success
  type: str
rules:
  description: Rules of the table in the end, in check mode the wanted ones.
  returned: success
  type: list
  elements: str
"""

import os
import tempfile
from collections.abc import Iterable
from pathlib import Path

from ansible.module_utils.basic import AnsibleModule
from ansible_collections.understudy.broker.plugins.module_utils.packet_filter import (
    kept,
    listed_rules,
    not_admitted,
    ruleset,
    same,
    table_name,
    wanted_rules,
)
from ansible_collections.understudy.broker.plugins.module_utils.platforms import install_advice, this_host


class Tables:
    """The tables of the kernel."""

    def __init__(self, module: AnsibleModule, table: str) -> None:
        self._module = module
        self._nft = module.get_bin_path("nft", opt_dirs=["/usr/sbin", "/sbin"])
        self._table = table
        if self._nft is None:
            module.fail_json(
                msg=f"nft is missing; {install_advice(this_host(), 'nftables')}, or set broker_firewall: false"
            )

    def rules(self) -> list[str] | None:
        """The rules of the table; None: there is no table."""
        code, output, error = self._module.run_command([self._nft, "--stateless", "list", "tables"])
        if code != 0:
            self._module.fail_json(msg=f"the tables of nftables cannot be read: {error.strip()}")
        if f"table inet {self._table}" not in output.splitlines():
            return None
        code, output, error = self._module.run_command([self._nft, "--stateless", "list", "table", "inet", self._table])
        if code != 0:
            self._module.fail_json(msg=f"the table {self._table} cannot be read: {error.strip()}")
        return listed_rules(output)

    def load(self, path: Path, *, dry_run: bool) -> None:
        """Put the rules of a file into the kernel, or only have them checked."""
        options = ["--check"] if dry_run else []
        code, output, error = self._module.run_command([self._nft, *options, "--file", str(path)])
        if code != 0:
            problem = f"nftables refuses the rules of {self._table}: {(error or output).strip()}"
            self._module.fail_json(msg=problem)

    def dropped_by_firewalld(self, ports: Iterable[int]) -> list[int]:
        """Ports that firewalld, which runs beside this table, does not admit; none without it."""
        command = self._module.get_bin_path("firewall-cmd")
        if command is None or self._module.run_command([command, "--state"])[0] != 0:
            return []
        code, output, error = self._module.run_command([command, "--list-ports"])
        if code != 0:
            self._module.fail_json(msg=f"firewalld does not list its ports: {error.strip()}")
        return not_admitted(output, ports)

    def delete(self) -> None:
        code, output, error = self._module.run_command([self._nft, "delete", "table", "inet", self._table])
        if code != 0:
            self._module.fail_json(msg=f"the table {self._table} cannot be removed: {(error or output).strip()}")


def read(path: Path) -> str:
    """Content of a file; empty if there is none."""
    try:
        return path.read_text(encoding="utf-8")
    except (FileNotFoundError, NotADirectoryError):
        return ""


def remove(module: AnsibleModule, table: str, path: Path) -> None:
    """Remove table and file, and end the module."""
    text = read(path)
    if not path.exists():
        module.exit_json(changed=False, table=table, rules=[])
    tables = Tables(module, table)
    present = tables.rules()
    if not module.check_mode:
        if present is not None:
            tables.delete()
        path.unlink()
    shown = not (module.check_mode and module.params["preview"])
    module.exit_json(changed=shown, table=table, rules=[], diff={"before": text, "after": ""})


def guard(module: AnsibleModule, table: str, path: Path) -> None:
    """Load the wanted rules where the kernel has others, and end the module."""
    ports = {each["port"]: each["sources"] for each in module.params["ports"]}
    tables = Tables(module, table)
    present = tables.rules()
    wanted = wanted_rules(ports)
    if not module.params["replace"]:
        wanted += kept(present or [], ports)
    text, former = ruleset(table, wanted), read(path)
    changed = text != former or present is None or not same(present, wanted)
    if changed:
        place = path.parent if path.parent.is_dir() else None
        with tempfile.TemporaryDirectory(dir=place, prefix=f".{path.name}.") as scratch:
            copy = Path(scratch) / path.name
            copy.write_text(text, encoding="utf-8")
            copy.chmod(0o644)
            tables.load(copy, dry_run=True)
            if not module.check_mode:
                tables.load(copy, dry_run=False)
                os.replace(copy, path)
    dropped = tables.dropped_by_firewalld(port for port, sources in ports.items() if sources)
    if dropped:
        options = " ".join(f"--add-port={port}/tcp" for port in dropped)
        module.warn(
            f"firewalld runs on this host and may drop what the table {table} accepts: firewall-cmd --permanent "
            f"{options} && firewall-cmd --reload"
        )
    before = ruleset(table, present) if present is not None else ""
    head = f"table inet {table}"
    difference = {"before_header": head, "after_header": head, "before": before, "after": text}
    shown = changed and not (module.check_mode and module.params["preview"])
    module.exit_json(changed=shown, table=table, rules=wanted, diff=difference)


def main() -> None:
    module = AnsibleModule(
        argument_spec={
            "name": {"type": "str", "required": True},
            "path": {"type": "path", "required": True},
            "ports": {
                "type": "list",
                "elements": "dict",
                "default": [],
                "options": {
                    "port": {"type": "int", "required": True},
                    "sources": {"type": "list", "elements": "str", "required": True},
                },
            },
            "replace": {"type": "bool", "default": True},
            "preview": {"type": "bool", "default": False},
            "state": {"type": "str", "choices": ["present", "absent"], "default": "present"},
        },
        supports_check_mode=True,
    )
    path = Path(module.params["path"])
    try:
        table = table_name(module.params["name"])
        if module.params["state"] == "absent":
            remove(module, table, path)
        if not module.params["ports"]:
            module.fail_json(msg="ports is empty; give the ports of the broker, or state: absent")
        guard(module, table, path)
    except (OSError, ValueError) as error:
        module.fail_json(msg=str(error))


if __name__ == "__main__":
    main()
