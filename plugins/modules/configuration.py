#!/usr/bin/python
# SPDX-License-Identifier: Apache-2.0
"""Module configuration: write a file once it has been checked, and show the difference without its secrets."""

from __future__ import annotations

DOCUMENTATION = r"""
module: configuration
short_description: Put a configuration file in place after checking it, with a diff that shows no secret
description:
  - Writes the content beside its destination, has it checked there, and moves it into place in one step.
  - With O(apply=false) a content that differs is still checked, and is then staged beside the file, with the suffix
    C(.staged); RV(pending) reports it. A running broker finds no other file than the one it was started with, and
    M(understudy.broker.rollout_step) puts the staged one in place while the broker is stopped.
version_added: 0.1.0
author:
  - The Understudy authors (@understudy)
options:
  path:
    description: Where the file belongs. Its directory must exist, except in check mode.
    type: path
    required: true
  content:
    description: The whole content.
    type: str
    required: true
  secrets:
    description:
      - Values that must not be shown. They are masked in everything that this module returns or logs, also where the
        content spells them with XML or JSON escapes.
      - The value of every XML element, attribute and URL parameter named like a password, secret or token is masked
        besides.
    type: list
    elements: str
    default: []
  check:
    description: Command that checks the file; C(%s) stands for its path. Anything but exit status 0 refuses it.
    type: list
    elements: str
    default: []
  beside:
    description:
      - Files that the checking command must find in the same directory, by name, with their contents. They are written
        for the check only. This is how files that belong together are judged before any of them is replaced.
    type: dict
    default: {}
  beside_present:
    description:
      - Names of files in the directory of O(path) that the checking command must find as well, if they exist and
        O(beside) does not give them.
    type: list
    elements: str
    default: []
  origins:
    description:
      - By line of O(content), the input that it was made from. Where the checking command names a line of the file, as
        C(FILE:LINE), the input is added to its message.
    type: dict
    default: {}
  apply:
    description: Whether the file may be replaced.
    type: bool
    default: true
  parent_mode:
    description:
      - Mode of the directory of the file, which is made if it is missing and gets the group of the file. Without it the
        directory has to be there.
    type: raw
extends_documentation_fragment:
  - ansible.builtin.files
  - understudy.broker.instance.attributes
attributes:
  check_mode:
    support: full
  diff_mode:
    support: full
"""

EXAMPLES = r"""
- name: Write broker.xml
  understudy.broker.configuration:
    path: /opt/understudy/instance/etc/broker.xml
    content: "{{ rendered }}"
    secrets: ["{{ cluster_password }}"]
    check: [/opt/understudy/current/bin/understudy, run, --check, --config, "%s"]
    mode: "0600"
"""

RETURN = r"""
pending:
  description: Whether the file differs but was left alone, and the content staged, because O(apply=false).
  returned: success
  type: bool
warnings_of_check:
  description: What the checking command printed although it was content.
  returned: when the file was checked
  type: list
  elements: str
"""

import os
import re
import tempfile
from collections.abc import Mapping
from pathlib import Path

from ansible.module_utils.basic import AnsibleModule
from ansible_collections.understudy.broker.plugins.module_utils.generations import STAGED_SUFFIX
from ansible_collections.understudy.broker.plugins.module_utils.redaction import redact, spellings


def read(path: Path) -> str | None:
    """Present content, or None if there is no such file."""
    try:
        return path.read_text(encoding="utf-8")
    except (FileNotFoundError, NotADirectoryError):
        return None


def write_checked(module: AnsibleModule, path: Path, scratch: Path) -> tuple[Path, list[str]]:
    """Write the content into the directory ``scratch`` and check it; the copy's path and what the check printed."""
    copy = scratch / path.name
    present = {name: read(path.with_name(name)) for name in module.params["beside_present"]}
    found = {name: content for name, content in present.items() if content is not None}
    for name, content in {**found, **module.params["beside"], path.name: module.params["content"]}.items():
        with open(scratch / name, "w", encoding="utf-8", opener=private) as target:
            target.write(content)
    command = [argument.replace("%s", str(copy)) for argument in module.params["check"]]
    # Before the first installation, in check mode, the command that would check is not there yet.
    if not command or (module.check_mode and not os.path.exists(command[0])):
        return copy, []
    code, output, error = module.run_command(command)
    text = name_origins(output + error, str(copy), module.params["origins"])
    text = text.replace(str(scratch), str(path.parent))
    printed = [line for line in text.splitlines() if line.strip()]
    if code != 0:
        module.fail_json(msg=f"{path} is refused by {command[0]} ({code}): " + "\n".join(printed))
    return copy, printed


def name_origins(text: str, file: str, origins: Mapping[str, str]) -> str:
    """The text with the origin after every ``file:line`` for which there is one."""

    def add(match: re.Match[str]) -> str:
        origin = origins.get(match[1])
        return f"{match[0]} ({origin})" if origin else match[0]

    return re.sub(rf"{re.escape(file)}:([0-9]+)", add, text)


def unstage(module: AnsibleModule, staged: Path, needed: bool) -> bool:
    """Remove a staged file that is in place already, or is not wanted any more; whether there was one."""
    if needed or not staged.exists():
        return False
    if not module.check_mode:
        staged.unlink()
    return True


def make_parent(module: AnsibleModule, directory: Path) -> bool:
    """Make the directory of the file, or set its group and mode; whether that changed it."""
    missing = not directory.is_dir()
    if missing and module.check_mode:
        return True
    directory.mkdir(parents=True, exist_ok=True)
    wanted = {"path": str(directory), "owner": None, "mode": module.params["parent_mode"]}
    arguments = module.load_file_common_arguments({**module.params, **wanted})
    return bool(module.set_fs_attributes_if_different(arguments, missing))


def private(path: str, flags: int) -> int:
    """Opens a file that its owner alone may read."""
    return os.open(path, flags, 0o600)


def main() -> None:
    module = AnsibleModule(
        argument_spec={
            "path": {"type": "path", "required": True},
            "content": {"type": "str", "required": True, "no_log": False},
            "secrets": {"type": "list", "elements": "str", "default": [], "no_log": True},
            "check": {"type": "list", "elements": "str", "default": []},
            "beside": {"type": "dict", "default": {}, "no_log": True},
            "beside_present": {"type": "list", "elements": "str", "default": []},
            "origins": {"type": "dict", "default": {}},
            "apply": {"type": "bool", "default": True},
            "parent_mode": {"type": "raw"},
        },
        add_file_common_args=True,
        supports_check_mode=True,
    )
    path, secrets, apply = Path(module.params["path"]), module.params["secrets"], module.params["apply"]
    module.no_log_values |= spellings(secrets)
    before, after = read(path), module.params["content"]
    differs = before != after
    staged, placed = path.with_name(path.name + STAGED_SUFFIX), False
    made = module.params["parent_mode"] is not None and make_parent(module, path.parent)
    printed: list[str] = []
    if differs:
        # A directory of its own beside the destination: its owner's alone, on the same file system.
        with tempfile.TemporaryDirectory(
            dir=path.parent if path.parent.is_dir() else None, prefix=f".{path.name}."
        ) as scratch:
            copy, printed = write_checked(module, path, Path(scratch))
            if not module.check_mode and (apply or read(staged) != after):
                # Owner and mode before the move: a secret is at no moment where others can read it.
                arguments = module.load_file_common_arguments(module.params, path=str(copy))
                module.set_fs_attributes_if_different(arguments, True)
                os.replace(copy, path if apply else staged)
                placed = True
    removed = unstage(module, staged, differs and not apply)
    changed = made or placed or removed or (differs and module.check_mode)
    if path.exists():
        changed = module.set_fs_attributes_if_different(module.load_file_common_arguments(module.params), changed)
    module.exit_json(
        changed=changed,
        pending=differs and not apply,
        warnings_of_check=printed,
        diff={
            "before_header": str(path),
            "after_header": str(path),
            "before": redact(before or "", secrets),
            "after": redact(after, secrets),
        },
    )


if __name__ == "__main__":
    main()
