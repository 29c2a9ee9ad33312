#!/usr/bin/python
# SPDX-License-Identifier: Apache-2.0
"""Module rollout_hold: hold a node for one roll."""

from __future__ import annotations

DOCUMENTATION = r"""
module: rollout_hold
short_description: Hold a node for a roll, so that no other roll begins with it
description:
  - The hold C(rollout/hold.json) in the instance directory names the run of Ansible that carries out the roll. Every
    M(understudy.broker.rollout_step) renews it, and refuses to go on if another run has taken over.
  - A hold is over when its run has ended, which a run on the same machine sees, or 15 minutes after its last step.
  - The broker is not touched.
version_added: 0.2.0
author:
  - The Understudy authors (@understudy)
options:
  directory:
    required: true
  plan:
    description:
      - RV(understudy.broker.rollout#module:plan); its C(roll), C(kind), C(target), C(holder) and C(over) are used.
    type: dict
    required: true
  node:
    description: Name of the node, for messages.
    type: str
    required: true
  state:
    description:
      - V(held) holds the node, and fails if another run holds it.
      - V(released) removes the hold, if it is that of this run.
    type: str
    default: held
    choices: [held, released]
extends_documentation_fragment:
  - understudy.broker.instance
  - understudy.broker.instance.attributes
attributes:
  check_mode:
    support: full
    details: In check mode nothing is held or released.
  diff_mode:
    support: none
seealso:
  - module: understudy.broker.rollout
"""

EXAMPLES = r"""
- name: Hold the node
  understudy.broker.rollout_hold:
    directory: /opt/understudy/instance
    node: "{{ inventory_hostname }}"
    plan: "{{ planned.plan }}"
"""

RETURN = r"""
held:
  description: Whether this run holds the node now.
  returned: success
  type: bool
"""

from pathlib import Path

from ansible.module_utils.basic import AnsibleModule
from ansible_collections.understudy.broker.plugins.module_utils.rollout_hold import (
    HeldByAnother,
    Hold,
    Holder,
    HoldFile,
)
from ansible_collections.understudy.broker.plugins.module_utils.waiting import Clock


def main() -> None:
    module = AnsibleModule(
        argument_spec={
            "directory": {"type": "path", "required": True},
            "plan": {"type": "dict", "required": True},
            "node": {"type": "str", "required": True},
            "state": {"type": "str", "default": "held", "choices": ["held", "released"]},
        },
        supports_check_mode=True,
    )
    directory, plan, node = (module.params[name] for name in ("directory", "plan", "node"))
    hold = HoldFile(Path(directory), Clock().wall_ms())
    holds = module.params["state"] == "held"
    try:
        holder = Holder.from_dict(plan["holder"])
        if not module.check_mode:
            if holds:
                hold.take(node, plan, holder, [Hold.from_dict(each) for each in plan["over"]])
            else:
                hold.release(holder)
    except KeyError as error:
        module.fail_json(msg=f"{directory}: plan lacks {error}")
    except HeldByAnother as error:
        module.fail_json(msg=str(error))
    except (ValueError, OSError) as error:
        module.fail_json(msg=f"{directory}: {error}")
    # it is no change of the host that a user has asked for
    module.exit_json(changed=False, held=holds and not module.check_mode)


if __name__ == "__main__":
    main()
