#!/usr/bin/python
# SPDX-License-Identifier: Apache-2.0
"""Module clock_info: documentation of the action plugin, which does all of the work on the controller."""

from __future__ import annotations

DOCUMENTATION = r"""
module: clock_info
short_description: Compare the clock of a host with that of the controller
description:
  - Asks the host for its time with C(date), several times, and takes the time of the controller before and after each
    question. The question with the shortest way counts.
  - The difference of two hosts is that of their results, whatever the clock of the controller says.
  - Changes nothing.
version_added: 0.2.0
author:
  - The Understudy authors (@understudy)
extends_documentation_fragment:
  - understudy.broker.instance.attributes
attributes:
  check_mode:
    support: full
  diff_mode:
    support: none
"""

EXAMPLES = r"""
- name: Compare the clock of this host
  understudy.broker.clock_info:
  register: clock

- name: Show it
  ansible.builtin.debug:
    msg: "{{ clock.offset_ms }} ms, at most {{ clock.uncertain_ms }} ms wrong"
"""

RETURN = r"""
offset_ms:
  description: Clock of the host minus clock of the controller, in milliseconds.
  returned: success
  type: int
uncertain_ms:
  description: How far RV(offset_ms) may be wrong, which is half of the time of the question.
  returned: success
  type: int
"""

from ansible.module_utils.basic import AnsibleModule


def main() -> None:
    module = AnsibleModule(argument_spec={}, supports_check_mode=True)
    module.fail_json(msg="clock_info is an action plugin; it runs on the controller")


if __name__ == "__main__":
    main()
