#!/usr/bin/python
# SPDX-License-Identifier: Apache-2.0
"""Module endpoints_info: whether other hosts can be reached from this one at the addresses that they advertise."""

from __future__ import annotations

DOCUMENTATION = r"""
module: endpoints_info
short_description: Try from this host to connect to sockets of other hosts
description:
  - Opens a TCP connection to each endpoint and closes it at once. Changes nothing.
  - A refused connection shows that the way to the host is open and that nothing listens there. Silence shows that it is
    not, which a firewall or a wrong route may cause.
version_added: 0.2.0
author:
  - The Understudy authors (@understudy)
options:
  endpoints:
    description: The sockets to try.
    type: list
    elements: dict
    required: true
    suboptions:
      name:
        description: Name of the socket, for messages.
        type: str
        required: true
      address:
        description: Address or host name.
        type: str
        required: true
      port:
        description: Port.
        type: int
        required: true
  timeout_s:
    description: Seconds that one connection may take. All of them are tried at the same time.
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
- name: Look whether the partner answers
  understudy.broker.endpoints_info:
    endpoints:
      - {name: a2 core, address: 192.0.2.12, port: 61616}
  register: seen

- name: Expect an answer
  ansible.builtin.assert:
    that: seen.silent + seen.refused == []
"""

RETURN = r"""
answering:
  description: Endpoints that took the connection, as C(NAME ADDRESS:PORT).
  returned: success
  type: list
  elements: str
refused:
  description: Endpoints whose host refused it, because nothing listens there.
  returned: success
  type: list
  elements: str
silent:
  description: Endpoints that cannot be reached, each with the reason.
  returned: success
  type: list
  elements: str
"""

import socket
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor

from ansible.module_utils.basic import AnsibleModule
from ansible_collections.understudy.broker.plugins.module_utils.reaching import why_silent

ANSWERING = "answering"
REFUSED = "refused"
SILENT = "silent"
OUTCOMES = (ANSWERING, REFUSED, SILENT)
AT_ONCE_MAX = 32


def attempt(endpoint: Mapping[str, object], timeout_s: float) -> tuple[str, str]:
    """The outcome, and the endpoint as it is shown."""
    shown = f"{endpoint['name']} {endpoint['address']}:{endpoint['port']}"
    try:
        socket.create_connection((str(endpoint["address"]), int(str(endpoint["port"]))), timeout_s).close()
    except ConnectionRefusedError:
        return REFUSED, shown
    except OSError as error:
        return SILENT, f"{shown} ({why_silent(error, timeout_s)})"
    return ANSWERING, shown


def main() -> None:
    module = AnsibleModule(
        argument_spec={
            "endpoints": {
                "type": "list",
                "elements": "dict",
                "required": True,
                "options": {
                    "name": {"type": "str", "required": True},
                    "address": {"type": "str", "required": True},
                    "port": {"type": "int", "required": True},
                },
            },
            "timeout_s": {"type": "float", "default": 3},
        },
        supports_check_mode=True,
    )
    found: dict[str, list[str]] = {outcome: [] for outcome in OUTCOMES}
    timeout_s = module.params["timeout_s"]
    with ThreadPoolExecutor(max_workers=AT_ONCE_MAX) as workers:
        for outcome, shown in workers.map(lambda each: attempt(each, timeout_s), module.params["endpoints"]):
            found[outcome].append(shown)
    module.exit_json(changed=False, **found)


if __name__ == "__main__":
    main()
