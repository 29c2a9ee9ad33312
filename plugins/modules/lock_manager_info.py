#!/usr/bin/python
# SPDX-License-Identifier: Apache-2.0
"""Module lock_manager_info: whether this host can use the lock manager of its pair."""

from __future__ import annotations

DOCUMENTATION = r"""
module: lock_manager_info
short_description: Ask the lock manager of a replicated pair whether a node of this host could use it
description:
  - Connects to each witness and proves the shared secret, as a node does at its start. No release has to be installed.
  - For an ensemble of ZooKeeper only the connections are tried. A directory of locks is looked for.
  - Changes nothing.
version_added: 0.2.0
author:
  - The Understudy authors (@understudy)
options:
  manager:
    description: Kind of the lock manager.
    type: str
    choices: [witness, zookeeper, file]
    required: true
  properties:
    description: Properties of the lock manager, as in C(broker_lock_manager_properties).
    type: dict
    required: true
  secret:
    description: Secret of the witness. Without it, C(secret-file) of O(properties) is read.
    type: str
    default: ""
  timeout_s:
    description: Seconds for each connection and each answer. All places are asked at the same time.
    type: float
    default: 3
extends_documentation_fragment:
  - understudy.broker.instance.attributes
attributes:
  check_mode:
    support: full
  diff_mode:
    support: none
"""

EXAMPLES = r"""
- name: Ask the witness
  understudy.broker.lock_manager_info:
    manager: witness
    properties: {addresses: "192.0.2.13:61619"}
    secret: "{{ broker_witness_secret }}"
  register: asked

- name: Expect that it answers
  ansible.builtin.assert:
    that: asked.usable
"""

RETURN = r"""
usable:
  description: Whether a node could activate with it. A majority of several witnesses or servers is enough.
  returned: success
  type: bool
refused:
  description: Places that refuse this host until an operator changes something, each with the reason.
  returned: success
  type: list
  elements: str
silent:
  description: Places without an answer, each with the reason.
  returned: success
  type: list
  elements: str
places:
  description: All places.
  returned: success
  type: list
  elements: dict
  contains:
    place: {description: Address and port of the service., type: str}
    answers: {description: Whether it can be used., type: bool}
    identity: {description: Identity of a witness., type: str}
    version: {description: Release of a witness., type: str}
    configuration: {description: Number of the configuration of its group; 0 without one., type: int}
"""

import os
from collections.abc import Mapping, Sequence
from pathlib import Path

from ansible.module_utils.basic import AnsibleModule
from ansible_collections.understudy.broker.plugins.module_utils.witness import Seen, ask_all, connect, place_of, usable

WITNESS_PORT = 61619
ZOOKEEPER_PORT = 2181


def listed(value: object) -> list[str]:
    """The entries of a property that is a list or a text with commas."""
    entries = [str(each) for each in value] if isinstance(value, list) else str(value or "").split(",")
    return [each.strip().removeprefix("witness://") for each in entries if each.strip()]


def witnesses(properties: Mapping[str, object], secret: str, timeout_s: float) -> tuple[list[Seen], bool]:
    """All witnesses, and whether they are usable.

    Raises:
        OSError: the file of the secret cannot be read.
        ValueError: an address cannot be used.
    """
    group = bool(properties.get("members"))
    places = [place_of(each, WITNESS_PORT) for each in listed(properties.get("members") or properties.get("addresses"))]
    known = secret.encode() if secret else Path(str(properties.get("secret-file", ""))).read_bytes()
    identity = "" if group else str(properties.get("id") or "")
    seen = ask_all(places, known.strip(), identity, of_group=group, timeout_s=timeout_s)
    return seen, usable(seen, of_group=group)


def servers(connect_string: str, timeout_s: float) -> tuple[list[Seen], bool]:
    """The servers of an ensemble, and whether a majority takes connections.

    Raises:
        ValueError: an address cannot be used.
    """
    places = [place_of(each, ZOOKEEPER_PORT) for each in listed(connect_string.partition("/")[0])]
    seen = [connect(each, timeout_s) for each in places]
    return seen, usable(seen, of_group=True)


def look(manager: str, properties: Mapping[str, object], secret: str, timeout_s: float) -> tuple[Sequence[Seen], bool]:
    """All places of a lock manager, and whether it is usable.

    Raises:
        OSError: a file cannot be read.
        ValueError: an address cannot be used.
    """
    if manager == "witness":
        return witnesses(properties, secret, timeout_s)
    if manager == "zookeeper":
        return servers(str(properties.get("connect-string", "")), timeout_s)
    folder = str(properties.get("locks-folder", ""))
    there = os.path.isdir(folder)
    return [Seen(folder, answers=there, silent="" if there else "the directory is not there")], there


def main() -> None:
    module = AnsibleModule(
        argument_spec={
            "manager": {"type": "str", "required": True, "choices": ["witness", "zookeeper", "file"]},
            "properties": {"type": "dict", "required": True},
            "secret": {"type": "str", "default": "", "no_log": True},
            "timeout_s": {"type": "float", "default": 3},
        },
        supports_check_mode=True,
    )
    try:
        seen, enough = look(*(module.params[name] for name in ("manager", "properties", "secret", "timeout_s")))
    except (OSError, ValueError) as error:
        module.fail_json(msg=f"broker_lock_manager_properties: {error}")
        return
    shown = ("place", "answers", "identity", "version", "configuration")
    module.exit_json(
        changed=False,
        usable=enough,
        refused=[f"{each.place}: {each.refused}" for each in seen if each.refused],
        silent=[f"{each.place}: {each.silent}" for each in seen if each.silent],
        places=[{name: value for name, value in each.as_dict().items() if name in shown} for each in seen],
    )


if __name__ == "__main__":
    main()
