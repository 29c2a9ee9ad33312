"""Model of one node, in place of the modules that act on one: its state is a file, and faults come from another one.

Faults are by call, ``MODULE ARGUMENT`` or ``MODULE ARGUMENT RELEASE``: ``fail`` lets it fail, ``lose`` makes the host
unreachable after it.
"""

from __future__ import annotations

import json
from pathlib import Path

from ansible.module_utils.basic import AnsibleModule
from ansible_collections.understudy.broker.plugins.module_utils.rollout_record import Event, Phase, step

TEXTS = ("directory", "root", "step", "wave", "state", "wait_for", "condition", "direction")
SPEC = {
    **{name: {"type": "str"} for name in TEXTS},
    "plan": {"type": "dict"},
    "holder": {"type": "dict"},
    "served": {"type": "bool"},
    "timeout_s": {"type": "int"},
    "nodes": {"type": "list", "elements": "dict"},
}


def begin(node: dict[str, object], plan: dict[str, str]) -> None:
    node.update(phase=step(Phase(node["phase"]), Event.BEGIN).value, roll=plan["roll"], saved=node["release"])


def act(node: dict[str, object], params: dict[str, object]) -> dict[str, object]:
    """Carry one call out; its result."""
    if params["step"]:
        event = Event(params["step"])
        if event in (Event.APPLY, Event.RESTORE) and node["running"]:
            raise ValueError("the broker runs; stop it first")
        if event is Event.BEGIN:
            begin(node, params["plan"])
        else:
            phase = Phase(node["phase"])
            if event is Event.APPLY:
                phase, node["release"] = step(phase, Event.STOP), params["plan"]["target"]
            elif event is Event.FINISH:
                phase = step(phase, Event.START)
            elif event is Event.RESTORE:
                node["release"] = node["saved"]
            node["phase"] = step(phase, event).value
        return {"phase": node["phase"]}
    if params["state"]:
        node["running"] = params["state"] == "started"
    record = {"roll": node["roll"], "phase": node["phase"]} if node["roll"] else None
    state = {"active": "active", "passive": "passive"}.get(params["wait_for"] or "", "stopped")
    return {"service": {"running": node["running"]}, "rollout": {"record": record}, "broker": {"state": state}}


def main() -> None:
    module = AnsibleModule(argument_spec=SPEC)
    params = module.params
    name = Path(params["directory"] or params["nodes"][0]["directory"]).name
    home = Path(params["directory"] or params["nodes"][0]["directory"]).parent
    path = home / f"{name}.json"
    node = json.loads(path.read_text())
    said = next((str(params[key]) for key in ("step", "state", "condition", "direction") if params[key]), "look")
    call = f"{said} {params['wait_for']}" if params["wait_for"] else said
    node["calls"].append(call)
    faults = json.loads((home / "faults.json").read_text()).get(name, {})
    fault = faults.get(said, faults.get(f"{said} {node['release']}", ""))
    try:
        result = {} if fault == "fail" else act(node, params)
    except ValueError as error:
        module.fail_json(msg=str(error))
    finally:
        path.write_text(json.dumps(node))
    if fault == "fail":
        module.fail_json(msg=f"{call} fails on purpose")
    if fault == "lose":
        (home / f"{name}.lost").touch()
    module.exit_json(changed=True, **result)


if __name__ == "__main__":
    main()
