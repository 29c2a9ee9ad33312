#!/usr/bin/python
# SPDX-License-Identifier: Apache-2.0
"""Module node_info: the state of a broker on this host."""

from __future__ import annotations

DOCUMENTATION = r"""
module: node_info
short_description: Return the service, the release and the state of a broker instance
description:
  - Reads the service definition of an instance, looks whether its process runs, and asks the broker itself through
    its management interface.
  - A host without an instance, a stopped broker and a broker that does not answer are results, not failures.
version_added: 0.1.0
author:
  - The Understudy authors (@understudy)
options:
  directory:
    required: true
  root:
    description:
      - Directory that holds C(releases) and C(current).
      - Without it O(root) is not looked at, and RV(releases) and RV(release) are empty.
    type: path
  hosted:
    description: Whether the broker is also asked if another node hosts its backup, for RV(hosted).
    type: bool
    default: false
  user:
    description: User of this host to return as RV(account).
    type: str
    version_added: 0.2.0
  look_at:
    description: Paths to look at for RV(present).
    type: list
    elements: path
    default: []
    version_added: 0.2.0
  files:
    description: Paths of files and directories to look at for RV(files). Not for files with secrets.
    type: list
    elements: path
    default: []
    version_added: 0.2.0
  store:
    description: Directory of a store to look at for RV(store).
    type: path
    version_added: 0.2.0
  units:
    description: Names of units of systemd to look at for RV(units).
    type: list
    elements: str
    default: []
    version_added: 0.2.0
extends_documentation_fragment:
  - understudy.broker.instance
  - understudy.broker.instance.attributes
attributes:
  check_mode:
    support: full
  diff_mode:
    support: none
seealso:
  - module: understudy.broker.gate
  - module: understudy.broker.instance
"""

EXAMPLES = r"""
- name: Look at the broker
  understudy.broker.node_info:
    directory: /opt/understudy/instance
  register: node

- name: Show whether it serves
  ansible.builtin.debug:
    msg: "{{ node.broker.state }}, ready: {{ node.broker.ready }}"
"""

RETURN = r"""
account:
  description: The account of O(user); empty if there is none.
  returned: always
  type: dict
  version_added: 0.2.0
  contains:
    uid: {description: Number of the user., type: int}
    gid: {description: Number of its first group., type: int}
    group: {description: Name of this group., type: str}
    home: {description: Home directory of the user., type: str}
    shell: {description: Shell of the user., type: str}
clock_ms:
  description: The wall clock of the host in milliseconds.
  returned: always
  type: int
  version_added: 0.2.0
deployed:
  description: Whether an instance is deployed in the directory.
  returned: always
  type: bool
unit:
  description: Name of its systemd unit; empty for a supervised process.
  returned: when deployed
  type: str
service:
  description: The process, and the systemd unit or supervisor that runs it.
  returned: when deployed
  type: dict
  contains:
    backend: {description: V(systemd) or V(process)., type: str}
    running: {description: Whether the broker's process exists., type: bool}
    kept: {description: Whether something would start it again., type: bool}
    pid: {description: Process id of the broker., type: int}
    restarts: {description: Automatic restarts since it was last started on purpose., type: int}
    held: {description: Whether it is down on purpose., type: bool}
    last_exit: {description: How the process last ended., type: str}
broker:
  description: The state that the broker reports.
  returned: always
  type: dict
  contains:
    reachable: {description: Whether it answered., type: bool}
    ready: {description: Whether it calls itself ready., type: bool}
    state:
      description:
        - V(active), V(passive), V(starting), V(stopping) or V(stopped), as the broker says.
        - V(unreachable) if its process runs and does not answer, V(not deployed) if there is none.
      type: str
    role: {description: Configured role of the node., type: str}
    following: {description: Whether it is passive and has read all of the store., type: bool}
    paired: {description: Whether it sees its partner., type: bool}
    reason: {description: Why it is not ready., type: str}
    node: {description: The whole answer of the management interface., type: dict}
release:
  description: The release that C(current) points to.
  returned: always
  type: str
running_release:
  description: The release that the process runs; empty if none runs, or outside of C(releases).
  returned: when deployed
  type: str
instance:
  description: The instance directory, O(directory).
  returned: always
  type: str
  version_added: 0.2.0
hosted:
  description: Whether another node hosts the backup of this colocated node; false without O(hosted).
  returned: when deployed
  type: bool
rollout:
  description: The record of the last roll of this node, and the generation that a rollback puts in place.
  returned: when deployed
  type: dict
  contains:
    record:
      description: The C(roll), C(kind), C(target), C(wave), C(phase) and C(served) of the roll; null without one.
      type: dict
    saved:
      description: The C(roll), C(release) and C(spent) of the saved generation; null without one.
      type: dict
    hold:
      description: The C(roll), the C(holder) and C(renewed_ms) of the run that holds the node; null without one.
      type: dict
    hold_age_s:
      description: Seconds since that run has renewed it.
      type: int
files:
  description: Entries of O(files) that are there and are a file or a directory, by path.
  returned: always
  type: dict
  version_added: 0.2.0
  contains:
    sha256: {description: Digest of the content; empty for a directory., type: str}
    mode: {description: Four octal digits., type: str}
    owner: {description: Name of the owner., type: str}
    group: {description: Name of the group., type: str}
    staged: {description: Whether another content is staged beside it., type: bool}
platform:
  description: The row of the table of platforms for this host, as M(understudy.broker.platform_info) returns it.
  returned: always
  type: dict
  version_added: 0.3.0
present:
  description: Paths of O(look_at) that exist.
  returned: always
  type: list
  elements: str
  version_added: 0.2.0
releases:
  description: Completely installed releases, the latest first.
  returned: always
  type: list
  elements: str
store:
  description: Results of M(understudy.broker.store_info) for O(store); empty without it, or if it cannot be read.
  returned: always
  type: dict
  version_added: 0.2.0
  contains:
    mount: {description: The mount that the directory is on., type: dict}
    store_id: {description: Identity of the store in the directory; empty if there is none., type: str}
    begun: {description: Whether a node has begun the log of the store., type: bool}
    copies: {description: Whether the node copies the store of another node of its pair., type: bool}
systemd:
  description: Whether this host is run by systemd and the module could manage a unit.
  returned: always
  type: bool
units:
  description: Units of O(units) that have a file in C(/etc/systemd/system), by name. Empty on a host without systemd.
  returned: always
  type: dict
  version_added: 0.2.0
  sample: {"understudy-a1.service": {"enabled": true, "active": true, "outdated": false}}
user_id:
  description: Number of the user that the module runs as on this host; 0 with become.
  returned: always
  type: int
"""

import grp
import os
import pwd
from dataclasses import asdict
from pathlib import Path

from ansible.module_utils.basic import AnsibleModule
from ansible_collections.understudy.broker.plugins.module_utils.deployed import open_instance
from ansible_collections.understudy.broker.plugins.module_utils.files import describe
from ansible_collections.understudy.broker.plugins.module_utils.generations import Generations
from ansible_collections.understudy.broker.plugins.module_utils.management import NodeState
from ansible_collections.understudy.broker.plugins.module_utils.platforms import of_this_host
from ansible_collections.understudy.broker.plugins.module_utils.releases import Releases
from ansible_collections.understudy.broker.plugins.module_utils.rollout_facts import release_of
from ansible_collections.understudy.broker.plugins.module_utils.rollout_hold import HoldFile
from ansible_collections.understudy.broker.plugins.module_utils.rollout_record import Record
from ansible_collections.understudy.broker.plugins.module_utils.service import ServiceError
from ansible_collections.understudy.broker.plugins.module_utils.store import look_at_store
from ansible_collections.understudy.broker.plugins.module_utils.units import DIRECTORY, PROPERTIES, parse_units
from ansible_collections.understudy.broker.plugins.module_utils.waiting import Clock

SYSTEMD = "/run/systemd/system"
"""Exists where systemd runs the host (sd_booted(3))."""


def running_release(pid: int | None) -> str:
    """The release of a process; empty if it is gone."""
    try:
        return release_of(Path(f"/proc/{pid}/cmdline").read_bytes()) if pid else ""
    except OSError:
        return ""


def account(user: str) -> dict[str, object]:
    """A user as the host knows it; empty if it does not."""
    try:
        found = pwd.getpwnam(user)
        group = grp.getgrgid(found.pw_gid).gr_name
    except KeyError:
        return {}
    return {"uid": found.pw_uid, "gid": found.pw_gid, "group": group, "home": found.pw_dir, "shell": found.pw_shell}


def store(path: str) -> dict[str, object]:
    """The store in a directory; empty if it cannot be read, which ``store_info`` would report."""
    try:
        return look_at_store(Path(path))
    except (OSError, ValueError):
        return {}


def units(module: AnsibleModule, names: list[str]) -> dict[str, dict[str, bool]]:
    """State of each unit that has a file, by its name, as systemd knows it."""
    found = [name for name in names if (DIRECTORY / name).exists()]
    if not found:
        return {}
    code, output = module.run_command(["systemctl", "show", f"--property={','.join(PROPERTIES)}", *found])[:2]
    return {name: asdict(present) for name, present in parse_units(output).items()} if code == 0 else {}


def rollout(directory: Path, releases: Releases) -> dict[str, object]:
    """Record, saved generation and hold of the instance."""
    generations = Generations(directory, releases)
    record, saved = Record.read(generations.record_file), generations.saved()
    now_ms = Clock().wall_ms()
    hold = HoldFile(directory, now_ms).read()
    return {
        "record": record and record.as_dict(),
        "saved": saved and asdict(saved),
        "hold": hold and hold.as_dict(),
        "hold_age_s": hold.age_s(now_ms) if hold else 0,
    }


def main() -> None:
    module = AnsibleModule(
        argument_spec={
            "directory": {"type": "path", "required": True},
            "root": {"type": "path"},
            "hosted": {"type": "bool", "default": False},
            "user": {"type": "str"},
            "look_at": {"type": "list", "elements": "path", "default": []},
            "files": {"type": "list", "elements": "path", "default": []},
            "store": {"type": "path"},
            "units": {"type": "list", "elements": "str", "default": []},
        },
        supports_check_mode=True,
    )
    root, has_systemd = module.params["root"], os.path.isdir(SYSTEMD)
    releases = Releases(Path(root)) if root else None
    result: dict[str, object] = {
        "deployed": False,
        "instance": module.params["directory"],
        "broker": NodeState(reachable=False, ready=False, state="not deployed").as_dict(),
        "release": releases.current() if releases else "",
        "releases": releases.installed() if releases else [],
        "systemd": has_systemd and os.geteuid() == 0,
        "user_id": os.geteuid(),
        "clock_ms": Clock().wall_ms(),
        "account": account(module.params["user"]) if module.params["user"] else {},
        "platform": of_this_host(),
        "present": [path for path in module.params["look_at"] if os.path.exists(path)],
        "files": {path: found for path in module.params["files"] if (found := describe(Path(path))) is not None},
        "store": store(module.params["store"]) if module.params["store"] else {},
        "units": units(module, module.params["units"]) if has_systemd else {},
    }
    try:
        deployed = open_instance(Path(module.params["directory"]), module.run_command, Clock())
        if deployed is not None:
            seen = deployed.instance.see()
            result.update(seen.as_dict(), deployed=True, unit=deployed.definition.unit)
            result["running_release"] = running_release(seen.service.pid)
            result["hosted"] = module.params["hosted"] and deployed.is_hosted()
            result["rollout"] = rollout(Path(module.params["directory"]), Releases(Path(root or "/nonexistent")))
    except (ServiceError, ValueError, OSError) as error:
        module.fail_json(msg=str(error), **result)
    module.exit_json(changed=False, **result)


if __name__ == "__main__":
    main()
