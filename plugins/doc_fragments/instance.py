"""Options that every module about a broker instance shares."""

from __future__ import annotations


class ModuleDocFragment:
    """Documentation of the shared options."""

    DOCUMENTATION = r"""
options:
  directory:
    description:
      - Instance directory of the broker on the managed host, the one that holds C(etc), C(run) and C(log).
      - The role C(broker_service) writes C(etc/service.json) there, which says how this instance is run and where its
        management answers.
    type: path
"""

    MANAGED = r"""
options:
  passive:
    description:
      - Addresses and queues belong to the active node. V(fail) makes a node that is passive an error.
      - V(ignore) leaves a passive node alone, with RV(node_state=passive), so that one task may run on all nodes of a
        pair. That one of them is active is then for M(understudy.broker.gate) to see.
    type: str
    choices: [fail, ignore]
    default: fail
"""

    HOLD = r"""
options:
  holder:
    description:
      - The run that carries out a roll, C(holder) of RV(understudy.broker.rollout#module:plan). Rolls give it, so that
        their own hold of the node does not refuse the call.
    type: dict
    version_added: 0.2.0
  ignore_hold:
    description:
      - Whether the module acts although another run holds the node for a roll (M(understudy.broker.rollout_hold)). By
        default it fails then, and changes nothing.
    type: bool
    default: false
    version_added: 0.2.0
"""

    PREVIEW = r"""
options:
  preview:
    description:
      - Whether a difference is no change in check mode. The playbook C(plan) sets it, because it shows the differences
        itself and changes nothing.
    type: bool
    default: false
    version_added: 0.2.0
"""

    ATTRIBUTES = r"""
options: {}
attributes:
  check_mode:
    description: Can run in check mode and say what it would do, without doing it.
  diff_mode:
    description: Returns what has changed, or would change, in diff mode.
"""
