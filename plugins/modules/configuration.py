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
      - Names of files in the directory of O(path), or in a directory of it, that the checking command must find as
        well, if they exist and O(beside) does not give them.
    type: list
    elements: str
    default: []
  origins:
    description:
      - Input that each line of O(content) was made from, by the number of the line. Where the checking command names a
        line of the file, as C(FILE:LINE), the input is added to its message.
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
  also:
    description:
      - Further files, which are written in the same step before the one of O(path), as O(apply) says. O(secrets) are
        masked in them as well. Their directories must exist, except in check mode.
    type: list
    elements: dict
    default: []
    version_added: 0.2.0
    suboptions:
      path:
        description: Where the file belongs.
        type: path
        required: true
      content:
        description: The whole content.
        type: str
        required: true
      keep:
        description: Whether a file that exists keeps its content.
        type: bool
        default: false
      secret:
        description: Whether the whole content is a secret. The difference says only that it has changed.
        type: bool
        default: false
      owner:
        description: Name of its owner. Without it the present one stays.
        type: str
      group:
        description: Name of its group. Without it the present one stays.
        type: str
      mode:
        description: Mode of the file, as M(ansible.builtin.file) takes it.
        type: raw
        required: true
extends_documentation_fragment:
  - ansible.builtin.files
  - understudy.broker.instance.attributes
  - understudy.broker.instance.preview
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
    also:
      - path: /opt/understudy/instance/etc/management.token
        content: "{{ token }}"
        keep: true
        secret: true
        mode: "0600"
"""

RETURN = r"""
pending:
  description: Whether a file differs but was left alone, and the content staged, because O(apply=false).
  returned: success
  type: bool
pending_files:
  description: Paths of these files.
  returned: success
  type: list
  elements: str
  version_added: 0.2.0
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
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ansible.module_utils.basic import AnsibleModule
from ansible_collections.understudy.broker.plugins.module_utils.generations import STAGED_SUFFIX
from ansible_collections.understudy.broker.plugins.module_utils.redaction import redact, spellings

#: Keys of a difference that name the file.
HEADERS = ("before_header", "after_header")


@dataclass
class Written:
    """What became of one file."""

    changed: bool
    pending: bool
    printed: list[str]
    """Lines that the check printed."""
    difference: dict[str, str]


def read(path: Path) -> str | None:
    """Present content, or None if there is no such file."""
    try:
        return path.read_text(encoding="utf-8")
    except (FileNotFoundError, NotADirectoryError):
        return None


def write_copies(module: AnsibleModule, path: Path, copy: Path, content: str, *, checked: bool) -> list[str]:
    """Write the content of the file ``path`` to ``copy`` and have it checked there; what the check printed."""
    files = {copy.name: content}
    if checked:
        present = {name: read(path.parent / name) for name in module.params["beside_present"]}
        found = {name: text for name, text in present.items() if text is not None}
        files = {**found, **module.params["beside"], **files}
    for name, text in files.items():
        beside = copy.parent / name
        beside.parent.mkdir(mode=0o700, exist_ok=True)
        with open(beside, "w", encoding="utf-8", opener=private) as target:
            target.write(text)
    command = [argument.replace("%s", str(copy)) for argument in module.params["check"]] if checked else []
    # Before the first installation, in check mode, the command that would check is not there yet.
    if not command or (module.check_mode and not os.path.exists(command[0])):
        return []
    code, output, error = module.run_command(command)
    text = name_origins(output + error, str(copy), module.params["origins"])
    text = text.replace(str(copy.parent), str(path.parent))
    printed = [line for line in text.splitlines() if line.strip()]
    if code != 0:
        module.fail_json(msg=f"{path} is refused by {command[0]} ({code}): " + "\n".join(printed))
    return printed


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


def write(module: AnsibleModule, wanted: Mapping[str, Any], *, checked: bool) -> Written:
    """Put one file in place, or stage it, and give it its owner and mode.

    Args:
        wanted: Parameters of the module, or one element of ``also``.
        checked: Whether the command has to accept the content.
    """
    path, apply = Path(wanted["path"]), module.params["apply"]
    before, after = read(path), wanted["content"]
    if before is not None and wanted.get("keep"):
        after = before
    differs = before != after
    staged, placed = path.with_name(path.name + STAGED_SUFFIX), False
    printed: list[str] = []
    if differs:
        # A directory of its own beside the destination: its owner's alone, on the same file system.
        with tempfile.TemporaryDirectory(
            dir=path.parent if path.parent.is_dir() else None, prefix=f".{path.name}."
        ) as scratch:
            copy = Path(scratch) / path.name
            printed = write_copies(module, path, copy, after, checked=checked)
            if not module.check_mode and (apply or read(staged) != after):
                # Owner and mode before the move: a secret is at no moment where others can read it.
                arguments = module.load_file_common_arguments({**module.params, **wanted}, path=str(copy))
                module.set_fs_attributes_if_different(arguments, True)
                os.replace(copy, path if apply else staged)
                placed = True
    removed = unstage(module, staged, differs and not apply)
    changed = placed or removed or (differs and module.check_mode)
    if path.exists():
        arguments = module.load_file_common_arguments({**module.params, **wanted})
        changed = module.set_fs_attributes_if_different(arguments, changed)
    shown = difference(before, after, module.params["secrets"], secret=wanted.get("secret", False))
    return Written(changed, differs and not apply, printed, {**dict.fromkeys(HEADERS, str(path)), **shown})


def difference(before: str | None, after: str, secrets: list[str], *, secret: bool) -> dict[str, str]:
    """Both contents as they may be shown.

    Args:
        secrets: Parts of them that may not.
        secret: Whether nothing of them may.
    """
    if secret:
        former = "" if before is None else "a secret\n"
        return {"before": former, "after": former if before == after else "a new secret\n"}
    return {"before": redact(before or "", secrets), "after": redact(after, secrets)}


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
            "preview": {"type": "bool", "default": False},
            "parent_mode": {"type": "raw"},
            "also": {
                "type": "list",
                "elements": "dict",
                "default": [],
                "options": {
                    "path": {"type": "path", "required": True},
                    "content": {"type": "str", "required": True, "no_log": False},
                    "keep": {"type": "bool", "default": False},
                    "secret": {"type": "bool", "default": False, "no_log": False},
                    "owner": {"type": "str"},
                    "group": {"type": "str"},
                    "mode": {"type": "raw", "required": True},
                },
            },
        },
        add_file_common_args=True,
        supports_check_mode=True,
    )
    path, also = Path(module.params["path"]), module.params["also"]
    whole = [each["content"].strip() for each in also if each["secret"]]
    module.no_log_values |= spellings([*module.params["secrets"], *whole])
    made = module.params["parent_mode"] is not None and make_parent(module, path.parent)
    # The others first: the check of the file may read them.
    written = {each["path"]: write(module, each, checked=False) for each in also}
    written[str(path)] = last = write(module, module.params, checked=True)
    pending = [name for name, each in written.items() if each.pending]
    differences = [each.difference for each in written.values()]
    changed = made or any(each.changed for each in written.values())
    module.exit_json(
        changed=changed and not (module.check_mode and module.params["preview"]),
        pending=bool(pending),
        pending_files=pending,
        warnings_of_check=last.printed,
        diff=differences if also else last.difference,
    )


if __name__ == "__main__":
    main()
