#!/usr/bin/python
# SPDX-License-Identifier: Apache-2.0
"""Module journal_prune: remove old copies of replicated journals."""

from __future__ import annotations

DOCUMENTATION = r"""
module: journal_prune
short_description: Remove old copies of replicated journals, but never the current one and the newest old one
description:
  - A node that becomes a replica moves its former data aside. This module removes the oldest of these copies in all
    directories of a store.
  - A broker of this collection keeps C(max-saved-replicated-journals-size) copies by itself. The module is for nodes
    that keep all, for copies that a node has kept since it is primary again, and for stores of other brokers.
  - Nothing is removed if one of the directories is in use; then the module fails.
version_added: 0.2.0
author:
  - The Understudy authors (@understudy)
options:
  directory:
    required: false
    description:
      - Instance directory of the broker on this host. Its C(etc/broker.xml) names the directories of the store.
      - Either this or O(paths) is required.
  paths:
    description: Current directories of a store, such as its journal and its directory for large messages.
    type: list
    elements: path
  naming:
    description:
      - V(artemis) looks for C(oldreplica.N) in each directory of the store.
      - V(eap) looks for C(journal1), C(journal2) and so on beside C(journal), and likewise for the other directories.
        Make sure that no other broker has its current store there.
    type: str
    choices: [artemis, eap]
    default: artemis
  keep:
    description: Old copies that are kept, the newest ones by number and by time; at least one.
    type: int
    default: 1
extends_documentation_fragment:
  - understudy.broker.instance
  - understudy.broker.instance.attributes
attributes:
  check_mode:
    support: full
  diff_mode:
    support: full
notes:
  - Whether a directory is in use is seen on this host only. Do not use it on directories that other hosts mount.
  - Messages that only an old copy has are lost with it. M(understudy.broker.journal_compare) counts them.
seealso:
  - module: understudy.broker.journal_compare
"""

EXAMPLES = r"""
- name: See what would be removed
  understudy.broker.journal_prune:
    directory: /opt/understudy/instance
  check_mode: true
  register: old

- name: Remove all old copies but two of a broker in EAP
  understudy.broker.journal_prune:
    paths:
      - /opt/eap/standalone/data/activemq/journal
      - /opt/eap/standalone/data/activemq/bindings
      - /opt/eap/standalone/data/activemq/largemessages
      - /opt/eap/standalone/data/activemq/paging
    naming: eap
    keep: 2
"""

RETURN = r"""
removed:
  description: Directories that were removed, or would be, the oldest number first.
  returned: success
  type: list
  elements: str
kept:
  description: Directories of old copies that stay.
  returned: success
  type: list
  elements: str
freed_bytes:
  description: Space that this frees; files that the current store has too take none.
  returned: success
  type: int
"""

from pathlib import Path

from ansible.module_utils.basic import AnsibleModule
from ansible_collections.understudy.broker.plugins.module_utils.deployed import store_directories
from ansible_collections.understudy.broker.plugins.module_utils.mounts import MOUNTINFO, read_mounts
from ansible_collections.understudy.broker.plugins.module_utils.old_copies import (
    NAMINGS,
    STATE,
    Unsafe,
    choose,
    copy_under_way,
    find,
    judge,
    paths_of_processes,
    remove,
    size_of,
)
from ansible_collections.understudy.broker.plugins.module_utils.service import ServiceError


def protected(currents: list[Path]) -> list[int]:
    """Numbers of copies that a running copy moves files to."""
    found = []
    for current in currents:
        try:
            number = copy_under_way((current / STATE).read_bytes())
        except (FileNotFoundError, NotADirectoryError):
            continue
        if number is not None:
            found.append(number)
    return found


def prune(module: AnsibleModule, currents: list[Path]) -> None:
    """Remove what may go, and end the module."""
    given = module.params
    choice = choose(find(currents, given["naming"]), given["keep"], protected(currents))
    mounts = read_mounts(Path(MOUNTINFO).read_text(encoding="utf-8", errors="surrogateescape"))
    judge(choice.removed, currents, paths_of_processes(), [mount.point for mount in mounts])
    freed_bytes = sum(size_of(each) for each in choice.removed)
    if not module.check_mode:
        for each in choice.removed:
            remove(each)
    removed, kept = [each.path for each in choice.removed], [each.path for each in choice.kept]
    diff = {
        "before": "".join(f"{path}\n" for path in sorted(removed + kept)),
        "after": "".join(f"{path}\n" for path in kept),
    }
    module.exit_json(changed=bool(removed), removed=removed, kept=kept, freed_bytes=freed_bytes, diff=diff)


def main() -> None:
    module = AnsibleModule(
        argument_spec={
            "directory": {"type": "path"},
            "paths": {"type": "list", "elements": "path"},
            "naming": {"type": "str", "choices": list(NAMINGS), "default": "artemis"},
            "keep": {"type": "int", "default": 1},
        },
        mutually_exclusive=[("directory", "paths")],
        required_one_of=[("directory", "paths")],
        supports_check_mode=True,
    )
    given = module.params
    try:
        if given["paths"]:
            currents = [Path(path) for path in given["paths"]]
            missing = [str(path) for path in currents if not path.is_dir()]
            if missing:
                module.fail_json(msg=f"{', '.join(missing)}: no such directory; paths are those of the current store")
        else:
            currents = list(store_directories(Path(given["directory"])).values())
        prune(module, currents)
    except (Unsafe, ServiceError, ValueError, OSError) as error:
        module.fail_json(msg=str(error))


if __name__ == "__main__":
    main()
