#!/usr/bin/python
# SPDX-License-Identifier: Apache-2.0
"""Module store: make the directories of a store and prove that it is the right one."""

from __future__ import annotations

DOCUMENTATION = r"""
module: store
short_description: Make the directories of a broker's store, and refuse a store that is not the one used before
description:
  - Makes the directories for bindings, journal, large messages, paging and the lock files.
  - Gives a new store a random identity, and notes on this host which store it uses. A store that has lost its
    identity (nothing is mounted there) or has another one (the wrong volume is mounted) is refused.
version_added: 0.1.0
author:
  - The Understudy authors (@understudy)
options:
  path:
    description: Directory of the store.
    type: path
    required: true
  instance:
    description: Instance directory of the broker on this host; what has been seen is noted in its C(etc).
    type: path
    required: true
  cluster:
    description: Cluster that the store belongs to.
    type: str
    required: true
  pair:
    description: Pair, or single node, that the store belongs to.
    type: str
    required: true
  create:
    description: Whether O(path) itself may be made. Forbid it where it is a mount point.
    type: bool
    default: true
  mount_point:
    description: Mount point that O(path) must be on. Empty for no such requirement.
    type: str
    default: ""
  readers:
    description:
      - Group that may read the store and not write it. The directories then belong to it instead of O(group), with the
        mode V(2750) instead of O(mode), by which the broker lets it read new files. Files of earlier deployments are
        changed.
      - Empty for none.
    type: str
    default: ""
    version_added: 0.2.0
  peers:
    description:
      - What M(understudy.broker.store_info) returned on the other hosts of the pair, by host.
      - Nothing is made where there is no store yet and another host has O(path) on a mount that this host lacks.
    type: dict
    default: {}
extends_documentation_fragment:
  - ansible.builtin.files
  - understudy.broker.instance.attributes
attributes:
  check_mode:
    support: full
  diff_mode:
    support: none
"""

EXAMPLES = r"""
- name: Make the store of the pair east
  understudy.broker.store:
    path: /srv/east
    instance: /opt/understudy/instance
    cluster: orders
    pair: east
    owner: understudy
    group: understudy
    mode: "0750"
"""

RETURN = r"""
store_id:
  description: Identity of the store; empty in check mode if it would be new.
  returned: success
  type: str
mount_point:
  description: The mount point that O(path) is on; empty if that is the root file system.
  returned: success
  type: str
directories:
  description: Directories of the store by the noun that the broker's configuration uses.
  returned: success
  type: dict
"""

import grp
import os
import stat
import uuid
from pathlib import Path
from typing import Any

from ansible.module_utils.basic import AnsibleModule
from ansible_collections.understudy.broker.plugins.module_utils.mounts import MOUNTINFO, Mount, mount_of, read_mounts
from ansible_collections.understudy.broker.plugins.module_utils.store import (
    IDENTITY,
    NOTE,
    Elsewhere,
    StoreError,
    StoreIdentity,
    asserted_mount_point,
    claim,
    judge,
    note,
    refuse_unmounted,
    subdirectories,
)

FILE_MODE = "0640"
SHARED_MODE = "2750"
SHARED_DIRECTORY = stat.S_ISGID | stat.S_IRGRP | stat.S_IXGRP


def make_directory(module: AnsibleModule, path: Path, *, create: bool = True) -> bool:
    """One directory with the owner, group and mode asked for; whether that changed anything."""
    missing = not path.is_dir()
    if missing and not create:
        raise StoreError(f"{path} does not exist; mount the store, or allow it to be made")
    if missing and module.check_mode:
        return True
    if missing:
        path.mkdir(parents=True, exist_ok=True)  # its partner may make it at the same time
    arguments = module.load_file_common_arguments(store_attributes(module, module.params["mode"]), path=str(path))
    return bool(module.set_fs_attributes_if_different(arguments, missing))


def store_attributes(module: AnsibleModule, mode: str | None) -> dict[str, Any]:
    """Parameters of the module with the attributes of what is in the store, which a group may read if one is given."""
    readers = module.params["readers"]
    if not readers:
        return {**module.params, "mode": mode}
    return {**module.params, "group": readers, "mode": mode if mode == FILE_MODE else SHARED_MODE}


def set_owner(module: AnsibleModule, path: Path) -> bool:
    """Files of the store belong to the owner of its directories and are not executable."""
    arguments = module.load_file_common_arguments(store_attributes(module, FILE_MODE), path=str(path))
    return bool(module.set_fs_attributes_if_different(arguments, False))


def set_group(module: AnsibleModule, path: Path) -> bool:
    """The broker compares the note with its store at every start: its group may read it, whatever the umask."""
    arguments = module.load_file_common_arguments({**module.params, "owner": None, "mode": FILE_MODE}, path=str(path))
    return bool(module.set_fs_attributes_if_different(arguments, False))


def write_whole(path: Path, content: str) -> None:
    """A small file, replaced in one step."""
    fresh = path.with_name(f".{path.name}.new")
    fresh.write_text(content, encoding="utf-8")
    os.replace(fresh, path)


def present_mount(store: Path) -> Mount:
    """The mount that the store is on, or would be on."""
    return mount_of(os.path.realpath(store), read_mounts(Path(MOUNTINFO).read_text("utf-8", "surrogateescape")))


def share(module: AnsibleModule, store: Path) -> bool:
    """Let the group of a shared store read files of earlier deployments; whether any could not be read by it."""
    group = grp.getgrnam(module.params["readers"]).gr_gid
    found = [path for path in store.rglob("*") if not path.is_symlink()]
    changed = False
    for path in found:
        try:
            status = path.stat()
            wanted = status.st_mode | (SHARED_DIRECTORY if path.is_dir() else stat.S_IRGRP)
            if (status.st_gid, status.st_mode) == (group, wanted):
                continue
            changed = True
            if not module.check_mode:
                os.chown(path, -1, group)
                os.chmod(path, stat.S_IMODE(wanted))  # after the change of the group, which clears bits
        except FileNotFoundError:
            continue  # a broker that runs removes files
    return changed


def prepare(
    module: AnsibleModule, store: Path, instance: Path, wanted: StoreIdentity
) -> tuple[bool, StoreIdentity | None]:
    """Whether anything changed, and the identity of the store."""
    found = judge(store, instance, wanted) if store.is_dir() else None
    peers = [Elsewhere.from_result(host, result) for host, result in module.params["peers"].items()]
    refuse_unmounted(store, present_mount(store), found, module.params["mount_point"], peers)
    changed = make_directory(module, store, create=module.params["create"])
    found = judge(store, instance, wanted)
    for directory in subdirectories(store).values():
        changed |= make_directory(module, directory)
    if module.check_mode:
        return changed or found is None or (bool(module.params["readers"]) and share(module, store)), found
    if not os.access(store, os.W_OK | os.X_OK):
        raise StoreError(f"{store} cannot be written by the user that deploys it")
    if found is None:
        found, changed = claim(store, wanted), True
    changed |= set_owner(module, store / IDENTITY)
    if module.params["readers"]:
        changed |= share(module, store)
    changed |= note(instance, found, write_whole)
    changed |= set_group(module, instance / NOTE)
    return changed, judge(store, instance, wanted)


def main() -> None:
    module = AnsibleModule(
        argument_spec={
            "path": {"type": "path", "required": True},
            "instance": {"type": "path", "required": True},
            "cluster": {"type": "str", "required": True},
            "pair": {"type": "str", "required": True},
            "create": {"type": "bool", "default": True},
            "mount_point": {"type": "str", "default": ""},
            "readers": {"type": "str", "default": ""},
            "peers": {"type": "dict", "default": {}},
        },
        add_file_common_args=True,
        supports_check_mode=True,
    )
    store, instance = Path(module.params["path"]), Path(module.params["instance"])
    wanted = StoreIdentity(str(uuid.uuid4()), module.params["cluster"], module.params["pair"])
    try:
        changed, identity = prepare(module, store, instance, wanted)
    except (StoreError, OSError, ValueError) as error:
        module.fail_json(msg=f"broker_store_directory: {error}")
    module.exit_json(
        changed=changed,
        store_id=identity.store_id if identity else "",
        mount_point=asserted_mount_point(present_mount(store)),
        directories={name: str(path) for name, path in subdirectories(store).items()},
    )


if __name__ == "__main__":
    main()
