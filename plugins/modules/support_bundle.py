#!/usr/bin/python
# SPDX-License-Identifier: Apache-2.0
"""Module support_bundle: pack what describes a broker and its host into one archive, without secrets."""

from __future__ import annotations

DOCUMENTATION = r"""
module: support_bundle
short_description: Pack what describes a broker and its host into one archive, without secrets
description:
  - Writes a compressed archive with the state of the broker, its queues, configuration, unit and journal, the files of
    its store by name and size, and sockets, mounts, space and memory of the host. Changes nothing else; a broker that
    does not run is described as well.
  - Messages are no part of it. Values of elements, attributes and parameters that are named like secrets are masked,
    and so are all O(secrets).
version_added: 0.1.0
author:
  - The Understudy authors (@understudy)
options:
  directory:
    description: Instance directory of the broker on the managed host.
    type: path
    required: true
  node:
    description: Name of the node; the directory in the archive.
    type: str
    required: true
  destination:
    description: The archive on the host. It is readable by its owner only.
    type: path
    required: true
  command:
    description: Path of the command C(understudy) of the release that the broker runs.
    type: path
    required: true
  unit:
    description: The systemd unit of the broker; empty where a supervisor runs it.
    type: str
    default: ""
  store:
    description: Directory of the store.
    type: path
  log_lines:
    description: How many lines of the journal, or of the log file, are packed.
    type: int
    default: 5000
  secrets:
    description: Texts that must not be in the archive.
    type: list
    elements: str
    default: []
extends_documentation_fragment:
  - understudy.broker.instance.attributes
attributes:
  check_mode:
    support: full
  diff_mode:
    support: none
"""

EXAMPLES = r"""
- name: Pack a bundle
  understudy.broker.support_bundle:
    node: a1
    directory: /opt/understudy/instance
    destination: /tmp/a1.tar.gz
    command: /opt/understudy/current/bin/understudy
    unit: understudy-a1.service
"""

RETURN = r"""
files:
  description: Files of the archive.
  returned: success
  type: list
  elements: str
size:
  description: Size of the archive in bytes; 0 in check mode.
  returned: success
  type: int
"""

import os
from pathlib import Path

from ansible.module_utils.basic import AnsibleModule
from ansible_collections.understudy.broker.plugins.module_utils.service import LOG_FILE
from ansible_collections.understudy.broker.plugins.module_utils.support import (
    CONFIGURATION,
    archive,
    commands,
    outcome,
)


def texts_of_files(instance: Path, log_lines: int) -> dict[str, str]:
    """Files that describe the instance, by their name in the bundle; a missing one is left out."""
    found = {"mounts.txt": Path("/proc/self/mountinfo"), **{name: instance / "etc" / name for name in CONFIGURATION}}
    texts = {name: path.read_text("utf-8", "replace") for name, path in found.items() if path.is_file()}
    log = instance / LOG_FILE
    if log.is_file() and not log.is_symlink():  # the broker may write that directory
        texts["log.txt"] = "".join(log.read_text("utf-8", "replace").splitlines(keepends=True)[-log_lines:])
    return texts


def main() -> None:
    module = AnsibleModule(
        argument_spec={
            "directory": {"type": "path", "required": True},
            "node": {"type": "str", "required": True},
            "destination": {"type": "path", "required": True},
            "command": {"type": "path", "required": True},
            "unit": {"type": "str", "default": ""},
            "store": {"type": "path"},
            "log_lines": {"type": "int", "default": 5000},
            "secrets": {"type": "list", "elements": "str", "default": [], "no_log": True},
        },
        supports_check_mode=True,
    )
    given = module.params
    instance, destination = Path(given["directory"]), Path(given["destination"])
    try:
        texts = texts_of_files(instance, given["log_lines"])
        for command in commands(
            given["command"], str(instance), given["unit"], given["store"] or "", given["log_lines"]
        ):
            # A program that is missing on the host is no reason to have no bundle.
            code, output, errors = module.run_command(list(command.arguments), handle_exceptions=True)
            texts[command.name] = outcome(command, code, output, errors)
        packed = archive(given["node"], texts, given["secrets"])
        if not module.check_mode:
            descriptor = os.open(destination, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW, 0o600)
            with os.fdopen(descriptor, "wb") as file:
                file.write(packed)
    except OSError as error:
        module.fail_json(msg=str(error))
    module.exit_json(changed=False, files=sorted(texts), size=0 if module.check_mode else len(packed))


if __name__ == "__main__":
    main()
