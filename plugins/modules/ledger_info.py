#!/usr/bin/python
# SPDX-License-Identifier: Apache-2.0
"""Module ledger_info: count a growing ledger, and measure the gaps in it."""

from __future__ import annotations

DOCUMENTATION = r"""
module: ledger_info
short_description: Count the rows of a message ledger, wait for confirmations, and measure times without one
description:
  - Reads a ledger that C(understudy produce --ledger) writes or has written. Changes nothing.
  - Lost and duplicated messages are not judged here but by C(understudy ledger check).
version_added: 0.1.0
author:
  - The Understudy authors (@understudy)
options:
  path:
    description: The ledger of a producer.
    type: path
    required: true
  wait_for_confirmed:
    description: Wait until this many messages are confirmed.
    type: int
    default: 0
  timeout_s:
    description: Seconds to wait for O(wait_for_confirmed).
    type: int
    default: 120
  stall_timeout_s:
    description:
      - Fail when no further message has been confirmed for this many seconds. V(0) means that only O(timeout_s) counts.
    type: int
    default: 0
  job_file:
    description:
      - Results file of the asynchronous task that runs the producer. The module fails as soon as that task has ended
        with fewer confirmations than O(wait_for_confirmed), and shows what the producer printed last.
    type: path
  windows:
    description: Stretches of time in which to look for the longest gap between two confirmations.
    type: list
    elements: dict
    default: []
    suboptions:
      name:
        description: Name under which the gap is returned.
        type: str
        required: true
      start_ms:
        description: Begin of the stretch, wall clock in milliseconds.
        type: int
        required: true
      end_ms:
        description: End of the stretch, wall clock in milliseconds.
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
- name: Wait for a third of the load
  understudy.broker.ledger_info:
    path: /tmp/drill/producer.jsonl
    wait_for_confirmed: 6666
    stall_timeout_s: 60
"""

RETURN = r"""
counts:
  description: Rows by kind.
  returned: always
  type: dict
confirmed:
  description: Number of confirmed messages.
  returned: always
  type: int
last_confirmed_ms:
  description: Wall clock of the last confirmation; null if there is none.
  returned: when windows are given
  type: int
gaps:
  description: The longest gap by window, with C(start_ms), C(end_ms) and C(duration_ms); null where there was no load.
  returned: when windows are given
  type: dict
elapsed_ms:
  description: Milliseconds waited.
  returned: always
  type: int
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from ansible.module_utils.basic import AnsibleModule
from ansible_collections.understudy.broker.plugins.module_utils.ledger import (
    Load,
    confirmed_at_ms,
    follow_load,
    longest_gap,
)
from ansible_collections.understudy.broker.plugins.module_utils.waiting import Clock


def measure(path: Path, windows: Sequence[Mapping[str, Any]]) -> dict[str, object]:
    """The longest gap of each window, and the last confirmation."""
    with path.open("rb") as source:
        moments_ms = confirmed_at_ms(source)
    gaps = {}
    for window in windows:
        gap = longest_gap(moments_ms, window["start_ms"], window["end_ms"])
        gaps[window["name"]] = gap and {
            "start_ms": gap.start_ms,
            "end_ms": gap.end_ms,
            "duration_ms": gap.duration_ms,
        }
    return {"gaps": gaps, "last_confirmed_ms": moments_ms[-1] if moments_ms else None}


def main() -> None:
    module = AnsibleModule(
        argument_spec={
            "path": {"type": "path", "required": True},
            "wait_for_confirmed": {"type": "int", "default": 0},
            "timeout_s": {"type": "int", "default": 120},
            "stall_timeout_s": {"type": "int", "default": 0},
            "job_file": {"type": "path"},
            "windows": {
                "type": "list",
                "elements": "dict",
                "default": [],
                "options": {
                    "name": {"type": "str", "required": True},
                    "start_ms": {"type": "int", "required": True},
                    "end_ms": {"type": "int", "required": True},
                },
            },
        },
        supports_check_mode=True,
    )
    path, given = Path(module.params["path"]), module.params
    load = Load(path, Path(given["job_file"]) if given["job_file"] else None)
    try:
        followed = follow_load(
            load, given["wait_for_confirmed"], given["timeout_s"], given["stall_timeout_s"] or None, Clock()
        )
        result = {
            "counts": followed.counts,
            "confirmed": followed.confirmed,
            "elapsed_ms": followed.elapsed_ms,
        }
        if followed.problem:
            module.fail_json(msg=f"{path}: {followed.problem}", **result)
        if given["windows"]:
            result.update(measure(path, given["windows"]))
    except (ValueError, OSError) as error:
        module.fail_json(msg=f"{path}: {error}")
    module.exit_json(changed=False, **result)


if __name__ == "__main__":
    main()
