#!/usr/bin/python
# SPDX-License-Identifier: Apache-2.0
"""Module wheelhouse: build the wheels of a release on the controller."""

from __future__ import annotations

DOCUMENTATION = r"""
module: wheelhouse
short_description: Build all wheels of the broker into one archive
description:
  - Runs on the controller, the only host that may need a route to a package index.
  - Names the release C(<version>-<digest12>-<machine>) after the content of the sources and the architecture of the
    controller, and builds its archive only if the cache does not hold it yet.
  - Builds the native kernel, which is optional, if the controller has cargo, rustc 1.63 or later and a route to the
    crates. If it cannot, it warns, and the broker uses the same functions in Python.
  - pip's own settings apply (C(PIP_INDEX_URL), C(PIP_FIND_LINKS), C(pip.conf)).
version_added: 0.1.0
author:
  - The Understudy authors (@understudy)
options:
  source:
    description: Directory with the broker's C(pyproject.toml) and C(src).
    type: path
    required: true
  cache:
    description: Directory for the archives.
    type: path
    required: true
  python:
    description: Interpreter with pip. Its minor version must be that of the hosts' interpreter.
    type: path
    required: true
  constraints:
    description: A pip constraints file that pins the dependencies; empty for none.
    type: path
    default: ""
  extra:
    description:
      - Optional dependencies of the broker that the release has as well, such as V(spark), whose wheels are built
        into an archive of their own once. The name of the release then ends with a dash and this name.
    type: str
    default: ""
    version_added: 0.2.0
  progress:
    description:
      - File to which a line is appended at the beginning of each step. The action plugin of this module reads it and
        shows steps that take long.
    type: path
    version_added: 0.2.0
  keep:
    description: Number of archives that stay in the cache.
    type: int
    default: 5
extends_documentation_fragment:
  - understudy.broker.instance.attributes
  - understudy.broker.instance.preview
attributes:
  check_mode:
    support: full
  diff_mode:
    support: none
"""

EXAMPLES = r"""
- name: Build the wheelhouse on the controller
  understudy.broker.wheelhouse:
    source: /srv/understudy/broker
    cache: ~/.cache/understudy
    python: /usr/bin/python3
  delegate_to: localhost
  run_once: true
"""

RETURN = r"""
release:
  description: Name of the release.
  returned: success
  type: str
version:
  description: Version of the broker.
  returned: success
  type: str
archive:
  description: Path of the archive on the controller.
  returned: success
  type: str
extra_name:
  description: Name of the wheels of O(extra), after their requirements; empty without O(extra).
  returned: success
  type: str
extra_archive:
  description: Path of their archive on the controller; empty without O(extra).
  returned: success
  type: str
python_version:
  description: Minor version of Python that the wheels are for.
  returned: success
  type: str
kernel:
  description: C(native) if the release has the native kernel, else C(python).
  returned: success
  type: str
kernel_reason:
  description: Why the release has no native kernel; empty if it has one.
  returned: success
  type: str
built:
  description: Whether the archives exist; false only in check mode.
  returned: success
  type: bool
pruned:
  description: Archives removed from the cache.
  returned: success
  type: list
  elements: str
"""

import os
import platform
from pathlib import Path

from ansible.module_utils.basic import AnsibleModule
from ansible_collections.understudy.broker.plugins.module_utils.wheelhouse import (
    WheelhouseError,
    build,
    build_extra,
    make_kernel,
    plan,
    plan_extra,
    prune,
)


def main() -> None:
    module = AnsibleModule(
        argument_spec={
            "source": {"type": "path", "required": True},
            "cache": {"type": "path", "required": True},
            "python": {"type": "path", "required": True},
            "constraints": {"type": "path", "default": ""},
            "extra": {"type": "str", "default": ""},
            "progress": {"type": "path"},
            "keep": {"type": "int", "default": 5},
            "preview": {"type": "bool", "default": False},
        },
        supports_check_mode=True,
    )
    source, cache, python = Path(module.params["source"]), Path(module.params["cache"]), module.params["python"]
    constraints = module.params["constraints"]

    def say(step: str) -> None:
        if module.params["progress"]:
            with open(module.params["progress"], "a", encoding="utf-8") as file:
                file.write(f"{step}\n")

    code, output, error = module.run_command([python, "-c", "import sys; print('%d.%d' % sys.version_info[:2])"])
    if code != 0:
        module.fail_json(msg=f"{python} cannot be run on the controller: {error.strip()}")
    python_version = output.strip()
    try:
        pins = Path(constraints).read_text(encoding="utf-8") if constraints else ""
        say("building the native kernel, or taking it from the cache")
        kernel = make_kernel(source, cache, python, module.run_command, check_mode=module.check_mode)
        release, version, archive = plan(source, cache, python_version, pins, platform.machine(), kernel)
        extra = None
        if module.params["extra"]:
            name = module.params["extra"]
            extra = plan_extra(source, cache, name, python_version, pins, platform.machine())
            release = f"{release}-{name}"
        archives = [archive] if extra is None else [archive, extra.archive]
        missing = [path for path in archives if not path.exists()]
        pruned = []
        if not module.check_mode:
            if archive in missing:
                say(f"fetching and building the wheels of release {release}")
                build(source, archive, python, constraints, module.run_command, kernel)
            if extra is not None and extra.archive in missing:
                say(f"fetching the wheels of {extra.name}")
                build_extra(extra, python, constraints, module.run_command)
            for path in archives:
                os.utime(path)
            if missing:
                pruned = prune(cache, module.params["keep"], archive)
    except (WheelhouseError, OSError) as problem:
        module.fail_json(msg=str(problem))
    if kernel.reason:
        module.warn(f"release {release} has no native kernel: {kernel.reason}")
    module.exit_json(
        changed=bool(missing) and not (module.check_mode and module.params["preview"]),
        kernel="python" if kernel.reason else "native",
        kernel_reason=kernel.reason,
        release=release,
        version=version,
        archive=str(archive),
        built=all(path.exists() for path in archives),
        extra_name="" if extra is None else extra.name,
        extra_archive="" if extra is None else str(extra.archive),
        python_version=python_version,
        pruned=pruned,
    )


if __name__ == "__main__":
    main()
