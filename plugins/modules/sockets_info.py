#!/usr/bin/python
# SPDX-License-Identifier: Apache-2.0
"""Module sockets_info: whether a process on this host could listen on given addresses and ports."""

from __future__ import annotations

DOCUMENTATION = r"""
module: sockets_info
short_description: Tell whether a process could listen on addresses and ports of this host
description:
  - Opens each socket as a broker does and closes it at once. Changes nothing.
  - An address that this host does not have is a warning, because a floating address may come later.
version_added: 0.2.0
author:
  - The Understudy authors (@understudy)
options:
  sockets:
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
extends_documentation_fragment:
  - understudy.broker.instance.attributes
attributes:
  check_mode:
    support: full
  diff_mode:
    support: none
"""

EXAMPLES = r"""
- name: Look whether the port is free
  understudy.broker.sockets_info:
    sockets:
      - {name: core, address: 192.0.2.11, port: 61616}
"""

RETURN = r"""
in_use:
  description: Sockets that another process holds, as C(NAME ADDRESS:PORT).
  returned: success
  type: list
  elements: str
absent:
  description: Sockets whose address this host does not have, or whose name it cannot resolve.
  returned: success
  type: list
  elements: str
"""

import errno
import os
import socket

from ansible.module_utils.basic import AnsibleModule


def bind_error(address: str, port: int) -> int:
    """Number of the error that a listener on the address and port would meet; 0 if there is none.

    Raises:
        OSError: the address cannot be resolved.
    """
    wanted = None if address == "*" else address
    found = socket.getaddrinfo(wanted, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    for each in found:
        family, kind, protocol = each[:3]
        with socket.socket(family, kind, protocol) as tried:
            tried.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            if family == socket.AF_INET6:
                tried.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
            try:
                tried.bind(each[4])
                tried.listen(1)
            except OSError as error:
                return error.errno or errno.EINVAL
    return 0


def main() -> None:
    module = AnsibleModule(
        argument_spec={
            "sockets": {
                "type": "list",
                "elements": "dict",
                "required": True,
                "options": {
                    "name": {"type": "str", "required": True},
                    "address": {"type": "str", "required": True},
                    "port": {"type": "int", "required": True},
                },
            }
        },
        supports_check_mode=True,
    )
    in_use: list[str] = []
    absent: list[str] = []
    for each in module.params["sockets"]:
        shown = f"{each['name']} {each['address']}:{each['port']}"
        try:
            number = bind_error(each["address"], each["port"])
        except OSError as error:
            absent.append(shown)
            module.warn(f"{shown}: {error}; the broker cannot listen there while that is so")
            continue
        if number == errno.EADDRINUSE:
            in_use.append(shown)
        elif number == errno.EADDRNOTAVAIL:
            absent.append(shown)
            module.warn(f"{shown}: this host does not have the address; the broker cannot listen there before it has")
        elif number:
            module.warn(f"{shown}: could not be tried: {os.strerror(number)}")
    module.exit_json(changed=False, in_use=in_use, absent=absent)


if __name__ == "__main__":
    main()
