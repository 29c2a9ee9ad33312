#!/usr/bin/python
# SPDX-License-Identifier: Apache-2.0
"""Module store_info: which mount the directory of a store is on, and which store it holds."""

from __future__ import annotations

DOCUMENTATION = r"""
module: store_info
short_description: Say which mount the directory of a store is on, and which store it holds
description:
  - Changes nothing. Neither the directory nor a store in it has to exist.
version_added: 0.1.0
author:
  - The Understudy authors (@understudy)
options:
  path:
    description: Directory of the store.
    type: path
    required: true
extends_documentation_fragment:
  - understudy.broker.instance.attributes
attributes:
  check_mode:
    support: full
  diff_mode:
    support: none
seealso:
  - module: understudy.broker.store
"""

EXAMPLES = r"""
- name: Look at the store on this host
  understudy.broker.store_info:
    path: /srv/orders
"""

RETURN = r"""
begun:
  description: Whether a node has begun the log of the store, so that there may be messages.
  returned: always
  type: bool
  version_added: 0.3.0
copies:
  description: Whether the node has begun to copy the store of another node of its pair, or is told to.
  returned: always
  type: bool
  version_added: 0.3.0
mount:
  description: The mount that the directory is on, or would be on.
  returned: always
  type: dict
  contains:
    point: {description: Where it is mounted., type: str}
    kind: {description: Type of the file system., type: str}
    source: {description: What is mounted., type: str}
store_id:
  description: Identity of the store in the directory; empty if there is none.
  returned: always
  type: str
"""

from pathlib import Path

from ansible.module_utils.basic import AnsibleModule
from ansible_collections.understudy.broker.plugins.module_utils.store import look_at_store


def main() -> None:
    module = AnsibleModule(argument_spec={"path": {"type": "path", "required": True}}, supports_check_mode=True)
    path = Path(module.params["path"])
    try:
        found = look_at_store(path)
    except (OSError, ValueError) as error:
        module.fail_json(msg=f"broker_store_directory: {path}: {error}")
        return
    module.exit_json(changed=False, **found)


if __name__ == "__main__":
    main()
