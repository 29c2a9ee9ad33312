#!/usr/bin/python
# SPDX-License-Identifier: Apache-2.0
"""Module release: install a release from its wheelhouse and point current to it."""

from __future__ import annotations

DOCUMENTATION = r"""
module: release
short_description: Install a release of the broker offline, switch to it, and drop old ones
description:
  - Makes one virtual environment per release under C(releases), from a wheelhouse archive and nothing else.
  - Installs the native kernel of the archive if it is for this platform. If the release runs without it, the module
    warns and says why.
  - Where SELinux is enabled, the files of the release get their contexts by C(restorecon).
  - The link C(current) is moved only with O(switch=true). Otherwise a difference is reported as RV(pending).
version_added: 0.1.0
author:
  - The Understudy authors (@understudy)
options:
  root:
    description: Directory that holds C(releases) and C(current). It must exist.
    type: path
    required: true
  release:
    description: Name of the release, as M(understudy.broker.wheelhouse) returns it.
    type: str
    required: true
  archive:
    description:
      - Wheelhouse archive on this host. Needed unless the release is installed already.
      - The archive is removed once it is installed.
    type: path
  extra:
    description: Optional dependencies that the release has as well, such as V(spark).
    type: str
    default: ""
    version_added: 0.2.0
  extra_name:
    description:
      - Name of their wheels, as M(understudy.broker.wheelhouse) returns it. They stay on this host under C(wheels)
        until those of another name come.
    type: str
    default: ""
    version_added: 0.2.0
  extra_archive:
    description: Archive of these wheels on this host, needed unless they are there already. It is removed once it is
      unpacked.
    type: path
    version_added: 0.2.0
  python:
    description: Interpreter that the virtual environment is made with. Empty means that of the platform of this host.
    type: str
    default: ""
  python_version:
    description: Minor version that the interpreter must have, because the wheels are for that one.
    type: str
    required: true
  keep:
    description: Number of releases that stay.
    type: int
    default: 3
  switch:
    description: Whether C(current) may be moved.
    type: bool
    default: true
  held_instance:
    description:
      - Instance directory of the node that the release is for. Without it no hold is looked at.
    type: path
    version_added: 0.2.0
extends_documentation_fragment:
  - understudy.broker.instance.hold
  - understudy.broker.instance.attributes
  - understudy.broker.instance.preview
attributes:
  check_mode:
    support: full
  diff_mode:
    support: full
"""

EXAMPLES = r"""
- name: Install the release and switch to it
  understudy.broker.release:
    root: /opt/understudy
    release: 0.1.0-0123456789ab
    archive: /opt/understudy/wheelhouse.tar
    python_version: "3.11"
"""

RETURN = r"""
kernel:
  description: C(native) or C(python); empty if the release is not installed.
  returned: success
  type: str
kernel_reason:
  description: Version of the native kernel, or why it is not used.
  returned: success
  type: str
pending:
  description: Whether C(current) still points elsewhere because O(switch=false).
  returned: success
  type: bool
previous:
  description: The release that C(current) pointed to before.
  returned: success
  type: str
removed:
  description: Releases removed.
  returned: success
  type: list
  elements: str
"""

from pathlib import Path

from ansible.module_utils.basic import AnsibleModule
from ansible_collections.understudy.broker.plugins.module_utils.platforms import install_advice, this_host
from ansible_collections.understudy.broker.plugins.module_utils.releases import ReleaseError, Releases
from ansible_collections.understudy.broker.plugins.module_utils.rollout_hold import (
    HOLD_OPTIONS,
    HeldByAnother,
    refuse_held,
)
from ansible_collections.understudy.broker.plugins.module_utils.waiting import Clock

SELINUX = (Path("/sys/fs/selinux/enforce"), Path("/etc/selinux/config"))
"""Both are there where SELinux is enabled and has a policy; kernels without a policy have the first one, too."""


def required_python(module: AnsibleModule) -> str:
    """The interpreter; fails unless it is of the version that the wheels are for."""
    platform = this_host()
    python, wanted = module.params["python"] or platform.interpreter, module.params["python_version"]
    question = [python, "-c", "import sys; print('%d.%d' % sys.version_info[:2])"]
    try:
        code, output, error = module.run_command(question, handle_exceptions=False)
    except OSError as missing:
        code, output, error = 1, "", str(missing)
    if code != 0:
        advice = "" if module.params["python"] else f"; {install_advice(platform, 'python')}, or set broker_python"
        module.fail_json(msg=f"broker_python: {python} cannot be run on this host: {error.strip()}{advice}")
    if output.strip() != wanted:
        module.fail_json(
            msg=f"broker_python: {python} is Python {output.strip()}, but the wheelhouse is for Python {wanted}; set "
            "broker_install_build_python to an interpreter of the controller that has the version of the hosts"
        )
    return python


def required_restorecon(module: AnsibleModule) -> str:
    """The program that labels files for SELinux; empty where it is not enabled. Fails if it is missing."""
    if not all(path.exists() for path in SELINUX):
        return ""
    found = module.get_bin_path("restorecon")
    if found is None:
        module.fail_json(
            msg=f"SELinux is enabled and restorecon is missing: {install_advice(this_host(), 'restorecon')}"
        )
    return str(found)


def label(module: AnsibleModule, restorecon: str, releases: Releases, release: str) -> None:
    """Give the files of a release their contexts, without which SELinux keeps systemd from starting its programs.

    A release that cannot be labelled is removed, so that the next run does not take it for a complete one.
    """
    directory = releases.path(release)
    code, output, error = module.run_command([restorecon, "-R", str(directory)])
    if code != 0:
        releases.remove(release)
        module.fail_json(msg=f"restorecon -R {directory} ended with {code}: {(error or output).strip()}")


def install(module: AnsibleModule, releases: Releases, release: str) -> None:
    """Install from the archive, which is used up by it."""
    archive = module.params["archive"]
    if archive is None:
        module.fail_json(msg=f"release {release} is not installed on this host, and no archive is given")
    python, restorecon = required_python(module), required_restorecon(module)
    extra, extra_name, extra_archive = (module.params[key] for key in ("extra", "extra_name", "extra_archive"))
    if extra and not releases.extra_wheels(extra_name).is_dir():
        if extra_archive is None:
            module.fail_json(msg=f"the wheels {extra_name} are not on this host, and no extra_archive is given")
        releases.take_extra(extra_name, Path(extra_archive))
        Path(extra_archive).unlink()
    releases.install(release, Path(archive), python, module.run_command, extra=extra, extra_name=extra_name)
    if restorecon:
        label(module, restorecon, releases, release)
    Path(archive).unlink(missing_ok=True)


def main() -> None:
    module = AnsibleModule(
        argument_spec={
            "root": {"type": "path", "required": True},
            "release": {"type": "str", "required": True},
            "archive": {"type": "path"},
            "extra": {"type": "str", "default": ""},
            "extra_name": {"type": "str", "default": ""},
            "extra_archive": {"type": "path"},
            "python": {"type": "str", "default": ""},
            "python_version": {"type": "str", "required": True},
            "keep": {"type": "int", "default": 3},
            "switch": {"type": "bool", "default": True},
            "preview": {"type": "bool", "default": False},
            "held_instance": {"type": "path"},
            **HOLD_OPTIONS,
        },
        supports_check_mode=True,
    )
    releases, release = Releases(Path(module.params["root"])), module.params["release"]
    previous = releases.current()
    missing = not releases.is_complete(release)
    differs = previous != release
    moves = differs and (module.params["switch"] or module.check_mode)
    held = module.params["held_instance"]
    try:
        if held and not module.check_mode:
            refuse_held(module.params, Path(held), module.params["root"], Clock().wall_ms())
        if missing and not module.check_mode:
            install(module, releases, release)
        if moves and not module.check_mode:
            releases.switch(release)
        removed = [] if missing and module.check_mode else releases.surplus(module.params["keep"], [release])
        if not module.check_mode:
            for name in removed:
                releases.remove(name)
    except (HeldByAnother, ReleaseError, ValueError, OSError) as error:
        module.fail_json(msg=str(error))
    kernel, reason = releases.kernel(release)
    if kernel == "python":
        module.warn(f"release {release} runs without the native kernel on this host: {reason}")
    module.exit_json(
        kernel=kernel,
        kernel_reason=reason,
        changed=(missing or moves or bool(removed)) and not (module.check_mode and module.params["preview"]),
        pending=differs and not module.params["switch"],
        previous=previous,
        removed=removed,
        diff={"before": f"current -> {previous}\n", "after": f"current -> {release if moves else previous}\n"},
    )


if __name__ == "__main__":
    main()
