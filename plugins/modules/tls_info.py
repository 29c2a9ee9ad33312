#!/usr/bin/python
# SPDX-License-Identifier: Apache-2.0
"""Module tls_info: which certificates sockets show to this host, and whether it trusts them."""

from __future__ import annotations

DOCUMENTATION = r"""
module: tls_info
short_description: Look from this host at the certificates that sockets of brokers show
description:
  - Makes a TLS handshake with each endpoint, checks its certificate and host name with the given authorities, and
    closes the connection.
  - Sends nothing. The broker logs a connection that ends without a request.
version_added: 0.2.0
author:
  - The Understudy authors (@understudy)
options:
  endpoints:
    description: The sockets to look at.
    type: list
    elements: dict
    required: true
    suboptions:
      name:
        description: Name of the socket, for messages.
        type: str
        required: true
      address:
        description: Address or host name, which the certificate must name.
        type: str
        required: true
      port:
        description: Port.
        type: int
        required: true
  authorities:
    description: Certificates of the trusted authorities, in PEM format.
    type: str
    required: true
  identity:
    description: File on this host with a certificate and its key, for brokers that ask for one.
    type: path
  timeout_s:
    description: Seconds that one handshake may take.
    type: float
    default: 10
extends_documentation_fragment:
  - understudy.broker.instance.attributes
attributes:
  check_mode:
    support: full
  diff_mode:
    support: none
"""

EXAMPLES = r"""
- name: Look whether the partner shows a certificate of our authority
  understudy.broker.tls_info:
    endpoints:
      - {name: a2 core, address: 192.0.2.12, port: 61616}
    authorities: "{{ lookup('ansible.builtin.file', 'ca.pem') }}"
    identity: /opt/understudy/instance/etc/broker.pem
  register: seen

- name: Expect it
  ansible.builtin.assert:
    that: seen.faults == []
"""

RETURN = r"""
certificates:
  description: SHA-256 of the certificate of each endpoint that is trusted, by name.
  returned: success
  type: dict
  sample: {a2 core: 6f0b1e...}
faults:
  description: Endpoints that are not trusted or do not answer, each with the reason.
  returned: success
  type: list
  elements: str
"""

import hashlib
import socket
import ssl
from collections.abc import Mapping

from ansible.module_utils.basic import AnsibleModule


def shown_certificate(endpoint: Mapping[str, object], context: ssl.SSLContext, timeout_s: float) -> str:
    """SHA-256 of the certificate that an endpoint shows.

    Raises:
        OSError: it is not trusted, or does not answer.
    """
    address = str(endpoint["address"])
    with (
        socket.create_connection((address, int(str(endpoint["port"]))), timeout_s) as plain,
        context.wrap_socket(plain, server_hostname=address) as secured,
    ):
        certificate = secured.getpeercert(binary_form=True)
    return hashlib.sha256(certificate or b"").hexdigest()


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
            "authorities": {"type": "str", "required": True},
            "identity": {"type": "path"},
            "timeout_s": {"type": "float", "default": 10},
        },
        supports_check_mode=True,
    )
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    try:
        context.load_verify_locations(cadata=module.params["authorities"])
    except ssl.SSLError as error:
        module.fail_json(msg=f"authorities: {error.reason or error}")
    # a certificate that is listed is trusted whether or not it is a root, as by the broker
    context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
    if module.params["identity"]:
        try:
            context.load_cert_chain(module.params["identity"])
        except OSError as error:
            module.fail_json(msg=f"{module.params['identity']}: {error}")
    certificates: dict[str, str] = {}
    faults: list[str] = []
    for each in module.params["endpoints"]:
        try:
            certificates[each["name"]] = shown_certificate(each, context, module.params["timeout_s"])
        except OSError as error:
            said = getattr(error, "verify_message", "") or str(error)
            faults.append(f"{each['name']} {each['address']}:{each['port']}: {said}")
    module.exit_json(changed=False, certificates=certificates, faults=faults)


if __name__ == "__main__":
    main()
