#!/usr/bin/python
# SPDX-License-Identifier: Apache-2.0
"""Module reload: let a running broker read its files again."""

from __future__ import annotations

DOCUMENTATION = r"""
module: reload
short_description: Let a running broker read its configuration, users and certificates again
description:
  - The broker applies what needs no restart - addresses, address settings, security settings, diverts, users, roles,
    certificates of acceptors - and keeps its connections.
  - An active node is asked through its management interface and answers whether broker.xml is usable. A passive node
    gets the signal SIGHUP; errors are in its log.
version_added: 0.2.0
author:
  - The Understudy authors (@understudy)
options:
  directory:
    required: true
extends_documentation_fragment:
  - understudy.broker.instance
  - understudy.broker.instance.attributes
attributes:
  check_mode:
    support: full
  diff_mode:
    support: none
notes:
  - Not idempotent, since a broker does not say what it has read. A node that does not run is left alone.
"""

EXAMPLES = r"""
- name: Use the new certificates
  understudy.broker.reload:
    directory: /opt/understudy/instance
"""

RETURN = r"""
asked:
  description: V(management), V(signal), or V(nothing) where no broker runs.
  returned: success
  type: str
"""

import signal
from pathlib import Path

from ansible.module_utils.basic import AnsibleModule
from ansible_collections.understudy.broker.plugins.module_utils.administration import (
    Administration,
    NodeIsPassive,
    Refused,
)
from ansible_collections.understudy.broker.plugins.module_utils.deployed import open_instance
from ansible_collections.understudy.broker.plugins.module_utils.destinations import Call
from ansible_collections.understudy.broker.plugins.module_utils.process import ProcessTable
from ansible_collections.understudy.broker.plugins.module_utils.service import ServiceError
from ansible_collections.understudy.broker.plugins.module_utils.waiting import Clock

RELOAD = Call("broker", "reloadConfigurationFile")


def ask(module: AnsibleModule, directory: Path) -> str:
    """Let the broker read its files; how it was asked.

    Raises:
        Refused, ServiceError: it was not.
    """
    deployed = open_instance(directory, module.run_command, Clock())
    if deployed is None:
        raise ServiceError(f"nothing is deployed in {directory}; run the site playbook on this host first")
    seen = deployed.instance.see()
    pid = seen.service.pid
    if pid is None:
        return "nothing"
    if module.check_mode:
        return "signal" if seen.broker.state == "passive" else "management"
    processes = ProcessTable()
    identity = processes.identify(pid)
    try:
        Administration(deployed.management(), deployed.definition.name).perform(RELOAD)
    except NodeIsPassive:
        if identity is None or not processes.send(identity, signal.SIGHUP):
            raise ServiceError(f"the process {pid} of {deployed.definition.name} has ended") from None
        return "signal"
    return "management"


def main() -> None:
    module = AnsibleModule(argument_spec={"directory": {"type": "path", "required": True}}, supports_check_mode=True)
    try:
        asked = ask(module, Path(module.params["directory"]))
    except (Refused, ServiceError, OSError) as error:
        module.fail_json(msg=str(error))
    else:
        module.exit_json(changed=asked != "nothing", asked=asked)


if __name__ == "__main__":
    main()
