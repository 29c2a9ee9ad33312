#!/usr/bin/python
# SPDX-License-Identifier: Apache-2.0
"""Module store_probe: measure the volume of a store, and say what speaks against it."""

from __future__ import annotations

DOCUMENTATION = r"""
module: store_probe
short_description: Measure the volume of a broker's store, and say what speaks against it
description:
  - Reads the type and the options of the mount, the lease of an NFSv4 server and the free space; measures how long a
    write with its sync takes and how far the clock of the host differs from the file server's.
  - Tries whether a lock that another host holds is seen here. For that, run it with O(lock=hold) on one host of the
    pair, and with O(lock=expect_held) on the others within O(lock_s).
  - Writes one small file into the directory and removes it. Never changed.
version_added: 0.1.0
author:
  - The Understudy authors (@understudy)
options:
  path:
    description: Directory of the store; it must exist.
    type: path
    required: true
  shared:
    description: Whether several hosts use it.
    type: bool
    default: false
  mount_options:
    description: Options that the mount should have.
    type: list
    elements: str
    default: []
  duration_s:
    description: How long syncs are measured, in seconds.
    type: float
    default: 1.0
  min_free_mib:
    description: Least free space, in MiB.
    type: int
    default: 256
  lock:
    description: What to do with the lock of the probe.
    type: str
    choices: [none, hold, expect_held]
    default: none
  lock_file:
    description: Name of the file whose lock the other host holds, as returned there. Needed for O(lock=expect_held).
    type: str
  lock_s:
    description: How long O(lock=hold) keeps the lock, in seconds. The module does not wait for that.
    type: float
    default: 60.0
extends_documentation_fragment:
  - understudy.broker.instance.attributes
attributes:
  check_mode:
    support: full
  diff_mode:
    support: none
seealso:
  - module: understudy.broker.store
  - module: understudy.broker.store_info
"""

EXAMPLES = r"""
- name: Measure the store of a pair
  understudy.broker.store_probe:
    path: /srv/orders/pair
    shared: true
  register: probe

- name: Refuse it
  ansible.builtin.assert:
    that: probe.faults | length == 0
"""

RETURN = r"""
mount:
  description: The mount that the directory is on.
  returned: success
  type: dict
  contains:
    point: {description: Where it is mounted., type: str}
    kind: {description: Type of the file system., type: str}
    source: {description: What is mounted., type: str}
options:
  description: Options of the mount as the kernel applies them.
  returned: success
  type: list
  elements: str
lease_s:
  description: Lease of the NFSv4 server in seconds; none for other file systems.
  returned: success
  type: int
free_mib:
  description: Free space in MiB.
  returned: success
  type: int
sync_ms:
  description:
    - Times of a write of 4 KiB with its sync in milliseconds, with the keys C(count), C(median), C(p99) and C(longest).
  returned: success
  type: dict
skew_ms:
  description: Clock of the host minus clock of the file server, in milliseconds.
  returned: success
  type: int
lock_file:
  description: Name of the file whose lock is held for a while; none without O(lock=hold).
  returned: success
  type: str
lock_seen:
  description: Whether the lock of another host was seen; none if O(lock) is not V(expect_held).
  returned: success
  type: bool
faults:
  description: Reasons not to use the volume.
  returned: success
  type: list
  elements: str
advice:
  description: Properties that cost time without service, or throughput.
  returned: success
  type: list
  elements: str
"""

import os
from dataclasses import asdict
from pathlib import Path

from ansible.module_utils.basic import AnsibleModule
from ansible_collections.understudy.broker.plugins.module_utils.mounts import MOUNTINFO, mount_of, read_mounts
from ansible_collections.understudy.broker.plugins.module_utils.store_measurements import (
    hold_lock,
    measure_syncs,
    sees_lock,
)
from ansible_collections.understudy.broker.plugins.module_utils.store_verdict import (
    Latency,
    Measured,
    judge,
    lease_of,
    options_of,
)

MOUNTSTATS = "/proc/self/mountstats"


def main() -> None:
    module = AnsibleModule(
        argument_spec={
            "path": {"type": "path", "required": True},
            "shared": {"type": "bool", "default": False},
            "mount_options": {"type": "list", "elements": "str", "default": []},
            "duration_s": {"type": "float", "default": 1.0},
            "min_free_mib": {"type": "int", "default": 256},
            "lock": {"type": "str", "choices": ["none", "hold", "expect_held"], "default": "none"},
            "lock_file": {"type": "str"},
            "lock_s": {"type": "float", "default": 60.0},
        },
        required_if=[("lock", "expect_held", ("lock_file",))],
        supports_check_mode=True,
    )
    path = Path(module.params["path"])
    try:
        space = os.statvfs(path)  # makes an automount happen before the mounts are read
        mountinfo = Path(MOUNTINFO).read_text(encoding="utf-8", errors="surrogateescape")
        mount = mount_of(os.path.realpath(path), read_mounts(mountinfo))
        stats = Path(MOUNTSTATS).read_text(encoding="utf-8", errors="surrogateescape")
        held = hold_lock(path, module.params["lock_s"]) if module.params["lock"] == "hold" else None
        seen = sees_lock(path / module.params["lock_file"]) if module.params["lock"] == "expect_held" else None
        took, skew_ms = measure_syncs(path, module.params["duration_s"])
    except (OSError, ValueError) as error:
        module.fail_json(msg=f"broker_store_directory: {path}: {error}")
    measured = Measured(
        kind=mount.kind,
        options=options_of(mountinfo, mount.point),
        lease_s=lease_of(stats, mount.point),
        free_bytes=space.f_bavail * space.f_frsize,
        sync=Latency.of(took),
        skew_ms=skew_ms,
        lock_seen=seen,
    )
    verdict = judge(
        measured,
        shared=module.params["shared"],
        wanted=module.params["mount_options"],
        min_free_bytes=module.params["min_free_mib"] << 20,
    )
    module.exit_json(
        changed=False,
        mount=mount.as_dict(),
        options=list(measured.options),
        lease_s=measured.lease_s,
        free_mib=measured.free_bytes >> 20,
        sync_ms=asdict(measured.sync),
        skew_ms=skew_ms,
        lock_file=held,
        lock_seen=seen,
        **verdict.as_dict(),
    )


if __name__ == "__main__":
    main()
