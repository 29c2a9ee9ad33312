#!/usr/bin/python
# SPDX-License-Identifier: Apache-2.0
"""Module platform_info: what differs on the platform of this host."""

from __future__ import annotations

DOCUMENTATION = r"""
module: platform_info
short_description: Return the names of packages and the interpreter of the platform of a host
description:
  - Reads C(/etc/os-release) and returns the row of the table of platforms for it. A host without a row gets one with
    the standard names.
version_added: 0.3.0
author:
  - The Understudy authors (@understudy)
options: {}
extends_documentation_fragment:
  - understudy.broker.instance.attributes
attributes:
  check_mode:
    support: full
  diff_mode:
    support: none
"""

EXAMPLES = r"""
- name: Look at the platform
  understudy.broker.platform_info:
  register: platform

- name: Say what to install
  ansible.builtin.debug:
    msg: "For NFS: {{ platform.install.nfs4 }}"
"""

RETURN = r"""
name:
  description: Name of the family, V(other) if the table has no row for the host.
  returned: success
  type: str
  sample: debian12
title:
  description: The family in words.
  returned: success
  type: str
interpreter:
  description: Name of an interpreter that the broker runs with.
  returned: success
  type: str
packages:
  description: Name of the package with each program that a host may need; empty if the distribution has none.
  returned: success
  type: dict
install:
  description: What to install for each of these programs, in words.
  returned: success
  type: dict
firewalld:
  description: Whether firewalld runs by default.
  returned: success
  type: bool
selinux:
  description: Whether SELinux is enforcing by default.
  returned: success
  type: bool
run:
  description: How the family was run by the tests of the collection; empty if it was not.
  returned: success
  type: str
"""

from ansible.module_utils.basic import AnsibleModule
from ansible_collections.understudy.broker.plugins.module_utils.platforms import of_this_host


def main() -> None:
    module = AnsibleModule(argument_spec={}, supports_check_mode=True)
    module.exit_json(changed=False, **of_this_host())


if __name__ == "__main__":
    main()
