#!/usr/bin/python
# SPDX-License-Identifier: Apache-2.0
"""Module pipeline_job: run one job of the data pipeline now and return its report."""

from __future__ import annotations

DOCUMENTATION = r"""
module: pipeline_job
short_description: Run one job of the data pipeline now and return its report
description:
  - Runs a job that the role C(broker_pipeline) has set up, under its unit where systemd runs the host, with the same
    limits as on its schedule.
  - If the job runs already, waits for the end of that run.
  - Does not fail because of the exit code of the job. RV(accepted) says whether it is one of those that the job may
    end with.
version_added: 0.2.0
author:
  - The Understudy authors (@understudy)
options:
  root:
    description: Directory of the pipeline on this host, C(broker_pipeline_root).
    type: path
    required: true
  name:
    description: Name of the job.
    type: str
    required: true
extends_documentation_fragment:
  - understudy.broker.instance.attributes
attributes:
  check_mode:
    support: full
  diff_mode:
    support: none
notes:
  - In check mode the job must exist and is not run.
"""

EXAMPLES = r"""
- name: Compare the copies of the journal now
  understudy.broker.pipeline_job:
    root: /opt/understudy-pipeline
    name: copies
  register: copies

- name: Fail if they have diverged
  ansible.builtin.assert:
    that: copies.accepted
"""

RETURN = r"""
exit_code:
  description: Exit code of the job.
  returned: when it was run
  type: int
outcome:
  description: C(done), C(finding) (it has found something and printed a report), C(failed), C(timed out) or C(stopped).
  returned: when it was run
  type: str
accepted:
  description: Whether the exit code is 0 or one of C(accepted_exit_codes) of the job.
  returned: when it was run
  type: bool
result:
  description: What the job printed; none if it printed no report.
  returned: when it was run
  type: dict
errors:
  description: Last lines that it wrote to standard error.
  returned: when it was run
  type: list
  elements: str
seconds:
  description: How long it took.
  returned: when it was run
  type: float
release:
  description: Release that ran it.
  returned: when it was run
  type: str
report:
  description: Path of the report on this host.
  returned: when it was run
  type: str
files:
  description: Other files of the run.
  returned: when it was run
  type: list
  elements: str
"""

from pathlib import Path

from ansible.module_utils.basic import AnsibleModule
from ansible_collections.understudy.broker.plugins.module_utils.pipeline_runs import PipelineError, open_job


def main() -> None:
    module = AnsibleModule(
        argument_spec={"root": {"type": "path", "required": True}, "name": {"type": "str", "required": True}},
        supports_check_mode=True,
    )
    try:
        job = open_job(Path(module.params["root"]), module.params["name"])
        if module.check_mode:
            module.exit_json(changed=True, msg=f"would run {job.name}")
            return
        found = job.run(module.run_command)
    except (PipelineError, OSError) as error:
        module.fail_json(msg=str(error))
        return
    module.exit_json(changed=True, **found)


if __name__ == "__main__":
    main()
