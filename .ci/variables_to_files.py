#!/usr/bin/env python3
"""Write docs/operate/variables-to-files.md: in which file, and in which element or line of it, each variable ends.

    PYTHONPATH=.scratch/collections .ci/variables_to_files.py

Elements of broker.xml are found by changing one variable of a sample inventory and comparing the two topologies. Lines
of other files are found by the names in the templates and variables of the roles, which are followed to the inputs of
the role broker.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path

import yaml
from ansible_collections.understudy.broker.plugins.filter.filters import topology
from ansible_collections.understudy.broker.plugins.plugin_utils.variables import ENTRY_ROLE, Variable, table

ROOT = Path(__file__).resolve().parents[1]
PAGE = ROOT / "docs/operate/variables-to-files.md"
BROKER_XML = "broker.xml"
PATH, OWNER, CONTENT, WHETHER = "(path)", "(owner)", "(content)", "(whether)"
MANY = 4
"""Elements of one group that are named; more of them are shown as the group."""

_TEMPLATE = re.compile(r"\{\{.*?\}\}|\{%.*?%\}", re.DOTALL)
_QUOTED = re.compile(r"'[^']*'")
_NAME = re.compile(r"(?<![\w.])(?:__)?broker_\w+")
_PROPERTY = r"'{name}': (.*?)(?:,\s*'\w+': |\s*\}}\))"
_NODE_KEY = re.compile(r"__broker_node\.(\w+)")

Place = tuple[str, str]
"""Name of a file, and element, line or property of it."""


@dataclass(frozen=True)
class File:
    """A file that a role writes, and the texts that decide about it."""

    role: str
    name: str
    variable: str
    """Variable of the role with the file, or with several."""
    template: str = ""
    keyed: str = ""
    """Variables of the role with a mapping, whose keys are those of the file."""
    index: int | None = None
    """Position in the list of ``variable``."""


FILES = (
    File("broker_store", "STORE.mount", "__broker_store_unit_files", "store.mount.j2"),
    File("broker_store", "STORE-retry.service", "__broker_store_unit_files", "store-retry.service.j2"),
    File("broker_security", "artemis-users.properties", "__broker_security_user_files", index=0),
    File("broker_security", "artemis-roles.properties", "__broker_security_user_files", index=1),
    File("broker_security", "files of TLS", "__broker_security_tls_rendered"),
    File("broker_config", BROKER_XML, "__broker_config_xml_file", keyed="__broker_config_document"),
    File("broker_config", "witness-secret", "__broker_config_witness_secret", index=0),
    File("broker_config", "management.token", "__broker_config_token", index=0),
    File(
        *("broker_service", "service.json", "__broker_service_definition_file"),
        keyed="__broker_service_definition __broker_service_access",
    ),
    File("broker_service", "understudy-HOST.service", "__broker_service_unit_file", "understudy.service.j2"),
    File("broker_service", "supervisor.py", "__broker_service_supervisor_files", index=1),
    File("broker_service", "fence.py", "__broker_service_fence_files", index=0),
    File(
        "broker_service", "understudy-HOST-fence.service", "__broker_service_fence_files", "fence.service.j2", index=1
    ),
    File("broker_network", "understudy-HOST.nft", "__broker_network_firewall_files", index=0),
    File(
        *("broker_network", "understudy-HOST-firewall.service", "__broker_network_firewall_files"),
        template="firewall.service.j2",
        index=1,
    ),
    File("broker_quorum", "witness-secret of a witness", "__broker_quorum_witness_files", index=0),
    File("broker_quorum", "unit of the witness", "__broker_quorum_witness_files", "witness.service.j2", index=1),
    File("broker_quorum", "myid", "__broker_quorum_zookeeper_files", index=0),
    File("broker_quorum", "zoo.cfg", "__broker_quorum_zookeeper_files", "zoo.cfg.j2", index=1),
    File("broker_pipeline", "pipeline_job.py", "__broker_pipeline_program_file"),
    File("broker_pipeline", "jobs/JOB.json", "__broker_pipeline_definition_files", keyed="__broker_pipeline_settings"),
    File(
        *("broker_pipeline", "understudy-pipeline-JOB.service", "__broker_pipeline_service_files"),
        template="pipeline.service.j2",
    ),
    File(
        *("broker_pipeline", "understudy-pipeline-JOB.timer", "__broker_pipeline_timer_files"),
        template="pipeline.timer.j2",
    ),
    File("broker_pipeline", "password", "__broker_pipeline_secret_files", index=0),
    File("broker_pipeline", "management.token of the pipeline", "__broker_pipeline_secret_files", index=1),
)

DECIDING: Mapping[str, tuple[str, ...]] = {
    "broker_store_mount_source": ("STORE.mount", "STORE-retry.service"),
    "broker_security_required": ("artemis-users.properties", "artemis-roles.properties"),
    "broker_config_witness_secret": ("witness-secret",),
    "broker_service_backend": ("understudy-HOST.service", "supervisor.py"),
    "broker_service_fence": ("fence.py", "understudy-HOST-fence.service"),
    "broker_network_firewall": ("understudy-HOST.nft", "understudy-HOST-firewall.service"),
    "broker_network_firewall_persist": ("understudy-HOST-firewall.service",),
    "broker_quorum_provider": ("witness-secret of a witness", "unit of the witness", "myid", "zoo.cfg"),
}
"""Inputs that decide whether a host has a file, with these files."""

FREE = {"broker_cluster_connection": {"cluster-connections/cluster-connection/..."}}
"""Variables that set any element of a group."""
LEFTOVER = ("address-settings/address-setting", "addresses/address")
ELEMENTS = {
    "dead_letter_address": LEFTOVER,
    "expiry_address": LEFTOVER,
    "extra": ("any element",),
}
"""Elements of keys of ``__broker_config_document`` that are not named like their element."""


def texts(value: object) -> Iterator[str]:
    """Every text in a value of YAML."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, Mapping):
        for each in value.values():
            yield from texts(each)
    elif isinstance(value, Sequence):
        for each in value:
            yield from texts(each)


def names(text: str) -> set[str]:
    """Names of variables in the templates of a text."""
    return {name for part in _TEMPLATE.findall(text) for name in _NAME.findall(_QUOTED.sub("''", part))}


def node_keys(text: str) -> set[str]:
    return {key for part in _TEMPLATE.findall(text) for key in _NODE_KEY.findall(part)}


@cache
def role_variables(role: str) -> dict[str, object]:
    path = ROOT / "roles" / role / "vars/main.yml"
    found: dict[str, object] = yaml.safe_load(path.read_text(encoding="utf-8")) if path.exists() else {}
    return found


def inputs_of(role: str, value: object) -> set[str]:
    """Inputs and facts that a value depends on, through the private variables of its role."""
    found: set[str] = set()
    todo = {name for text in texts(value) for name in names(text)}
    seen: set[str] = set()
    while todo:
        name = todo.pop()
        if name in seen:
            continue
        seen.add(name)
        if not name.startswith("__"):
            found.add(name)
        todo |= {each for text in texts(role_variables(role).get(name)) for each in names(text)}
    return found


def template_lines(text: str) -> Iterator[tuple[str, str]]:
    """Each line of a template that names variables, with its key; a condition counts for the lines that it is about."""
    conditions: list[str] = []
    for line in text.splitlines():
        stripped = line.strip()
        if re.match(r"\{%-? (if|for) ", stripped):
            conditions.append(stripped)
        elif re.match(r"\{%-? end(if|for) ", stripped) and conditions:
            conditions.pop()
        elif not stripped.startswith(("#", "{% macro")) and stripped:
            key, separator, _value = stripped.partition("=")
            yield (key if separator and "{" not in key else "(lines)"), " ".join([stripped, *conditions])


def places_of_inputs() -> dict[str, set[Place]]:
    """The places where each input of a role ends, by its name."""
    found: dict[str, set[Place]] = {}

    def note(role: str, value: object, file: str, label: str) -> None:
        for name in inputs_of(role, value):
            found.setdefault(name, set()).add((file, label))

    for file in FILES:
        declared = role_variables(file.role)[file.variable]
        if isinstance(declared, list):
            declared = declared[file.index or 0]
        if isinstance(declared, Mapping):
            note(file.role, declared.get("path"), file.name, PATH)
            note(file.role, [declared.get("owner"), declared.get("group")], file.name, OWNER)
        else:
            note(file.role, _property("path", declared), file.name, PATH)
            note(file.role, [_property(name, declared) for name in ("owner", "group")], file.name, OWNER)
        if file.template:
            path = ROOT / "roles" / file.role / "templates" / file.template
            for label, text in template_lines(path.read_text(encoding="utf-8")):
                note(file.role, text, file.name, label)
        elif file.keyed:
            for name in file.keyed.split():
                for key, text in _entries(role_variables(file.role)[name]):
                    for label in _elements(key) if file.name == BROKER_XML else (key,):
                        note(file.role, text, file.name, label)
        else:
            content = declared.get("content") if isinstance(declared, Mapping) else _loops(declared)
            note(file.role, content, file.name, CONTENT)
    for name, files in DECIDING.items():
        found.setdefault(name, set()).update((file, WHETHER) for file in files)
    for name in ("jobs/JOB.json", "understudy-pipeline-JOB.service", "understudy-pipeline-JOB.timer"):
        note("broker_pipeline", "{{ broker_pipeline_jobs }}", name, CONTENT)
    return found


def _property(name: str, text: object) -> str:
    """The expression of a property in a list of files that a template makes."""
    match = re.search(_PROPERTY.format(name=name), str(text), re.DOTALL)
    return "{{ " + match[1] + " }}" if match else ""


def _loops(text: object) -> str:
    """The lists that a template goes through."""
    return " ".join(re.findall(r"\{%-? for .*?%\}", str(text), re.DOTALL))


def _entries(mapping: object) -> Iterator[tuple[str, str]]:
    """Keys and values of a mapping of YAML, or of one that a template makes."""
    if isinstance(mapping, Mapping):
        for key, value in mapping.items():
            yield str(key), " ".join(texts(value))
    else:
        for key, name in re.findall(r"'([\w-]+)': (\w+)", str(mapping)):
            yield key, "{{ " + name + " }}"


def _elements(key: str) -> tuple[str, ...]:
    return ELEMENTS.get(key, () if key in ("core", "origins") else (key.replace("_", "-"),))


# --- the role broker ------------------------------------------------------------------------------


def passed_inputs() -> dict[str, str]:
    """The expression that the role broker gives to each input of another role, by its name."""
    found: dict[str, str] = {}
    for path in sorted((ROOT / "roles" / ENTRY_ROLE / "tasks").glob("*.yml")):
        for task in yaml.safe_load(path.read_text(encoding="utf-8")):
            if "ansible.builtin.include_role" in task and "topology" not in path.name:
                for name, expression in task.get("vars", {}).items():
                    found[name] = f"{found.get(name, '')} {expression}"
    return found


def expanded(text: str) -> str:
    """The text with the texts of the private variables of the role broker that it names."""
    seen: set[str] = set()
    parts, todo = [text], names(text)
    while todo:
        name = todo.pop()
        if name in seen or not name.startswith("__"):
            continue
        seen.add(name)
        for each in texts(role_variables(ENTRY_ROLE).get(name)):
            parts.append(each)
            todo |= names(each)
    return " ".join(parts)


# --- elements of broker.xml -----------------------------------------------------------------------


@dataclass(frozen=True)
class Sample:
    """A small inventory; ``more`` is what a variable needs besides, to have an effect."""

    policy: str
    more: Mapping[str, object] = field(default_factory=dict)

    def hosts(self) -> dict[str, dict[str, object]]:
        paired = self.policy in ("shared_store", "replication")
        hosts: dict[str, dict[str, object]] = {}
        for number, name in enumerate(("a1", "a2", "b1", "b2") if paired else ("a1", "a2")):
            host: dict[str, object] = {
                "broker_advertise_address": f"192.0.2.{number + 11}",
                "broker_ha_policy": self.policy,
                "broker_client_sources": ["192.0.2.0/24"],
                "broker_management_address": f"192.0.2.{number + 11}",
                "broker_firewall": True,
            }
            if paired:
                host["broker_pair"] = {"a": "east", "b": "west"}[name[0]]
                host["broker_ha_role"] = "primary" if name.endswith("1") else "backup"
            if self.policy.endswith("shared_store"):
                host["broker_store_directory"] = f"/srv/{host.get('broker_pair', name)}"
            if self.policy.endswith("replication"):
                host["broker_lock_manager_properties"] = {"addresses": "192.0.2.9:61619"}
            hosts[name] = {**host, **self.more}
        return hosts


VOTING = Sample("replication", {"broker_lock_manager": "votes", "broker_lock_manager_properties": {}})
SAMPLES = (
    *(Sample(policy) for policy in ("shared_store", "replication", "colocated_shared_store", "colocated_replication")),
    VOTING,
    Sample("primary_only"),
)
CONTEXTS: Mapping[str, Sample] = {
    "broker_scale_down_to": Sample("primary_only", {"broker_scale_down": True}),
    "broker_scale_down_group_name": Sample("primary_only", {"broker_scale_down": True}),
    "broker_scale_down_commit_interval": Sample("primary_only", {"broker_scale_down": True}),
    "broker_scale_down_discovered": Sample(
        "primary_only", {"broker_scale_down": True, "broker_cluster_discovery": {"address": "231.7.7.7", "port": 9876}}
    ),
    "broker_cluster_discovery_interface": Sample(
        "primary_only", {"broker_cluster_discovery": {"address": "231.7.7.7", "port": 9876}}
    ),
    "broker_interfaces": Sample(
        "primary_only",
        {
            "broker_interfaces": {"public": {"bind_address": "192.0.2.95"}},
            "broker_sockets": {"further": {"port": 5445, "interface": "public"}},
        },
    ),
    **{
        f"broker_grouping_{key}": Sample("primary_only", {"broker_grouping_owner": "a1"})
        for key in ("address", "timeout_ms", "idle_timeout_ms", "reaper_period_ms")
    },
    "broker_client_sources": Sample("shared_store"),
}
VALUES: Mapping[str, object] = {
    "broker_advertise_address": "192.0.2.99",
    "broker_backup_excludes": ["further"],
    "broker_client_sources": ["198.51.100.0/24"],
    "broker_cluster_connection": {"call-timeout": 77},
    "broker_cluster_discovery": {"address": "231.7.7.7", "port": 9876},
    "broker_cluster_members": ["a2"],
    "broker_cluster_addresses": "orders",
    "broker_connector_parameters": {"tcpNoDelay": True},
    "broker_connectors": [{"name": "further", "address": "192.0.2.98"}],
    "broker_grouping_owner": "a1",
    "broker_ha_policy": "primary_only",
    "broker_ha_role": "backup",
    "broker_interfaces": {"public": {"bind_address": "192.0.2.97"}},
    "broker_lock_manager": "file",
    "broker_lock_manager_properties": {"addresses": "192.0.2.8:61619"},
    "broker_management_sources": ["198.51.100.0/24"],
    "broker_scale_down_to": ["a2"],
    "broker_sockets": {"further": {"port": 5445}},
    "broker_source_addresses": ["192.0.2.96"],
}
"""Values that cannot be derived from the type and the default of a variable."""


def other_value(variable: Variable) -> object:
    """A value that the variable does not have in the samples."""
    if variable.name in VALUES:
        return VALUES[variable.name]
    if variable.type == "bool":
        return not variable.default
    if variable.type == "int":
        return int(str(variable.default or 0)) + 7
    if variable.type == "float":
        return float(str(variable.default)) + 1.5
    if variable.choices:
        return next(each for each in variable.choices if each != variable.default)
    if variable.type == "path":
        return "/changed/place"
    return ["changed"] if variable.type == "list" else "5M" if str(variable.default).endswith("M") else "changed"


def flattened(value: object, path: str = "") -> Iterator[tuple[str, object]]:
    """Leaves of structured YAML, each with the path of its element."""
    if isinstance(value, Mapping):
        for key, below in value.items():
            yield from flattened(below, path if key == "#text" else f"{path}/{key}".lstrip("/"))
    elif isinstance(value, list):
        for each in value:
            yield from flattened(each, path)
    else:
        yield path, str(value)


def changed_keys(variable: Variable) -> tuple[set[str], set[str]]:
    """Elements of ``core``, and other entries of a node of the topology, that a change of the variable changes."""
    elements: set[str] = set()
    keys: set[str] = set()
    for sample in [CONTEXTS[variable.name]] if variable.name in CONTEXTS else SAMPLES:
        hosts = sample.hosts()
        before = topology(hosts, hosts)["nodes"]
        for targets in [list(hosts)] if variable.scope in ("cluster", "pair") else [["a1"], ["a2"]]:
            changed = {name: dict(host) for name, host in hosts.items()}
            for name in targets:
                changed[name][variable.name] = other_value(variable)
            after = topology(changed, changed)["nodes"]
            assert isinstance(before, dict)
            assert isinstance(after, dict)
            for name, node in before.items():
                first, second = set(flattened(node["core"])), set(flattened(after[name]["core"]))
                elements |= {re.sub("/colocated/(primary|backup)/", r"/\1/", path) for path, _value in first ^ second}
                present = set(after[name]) - {"core", "origins"}
                keys |= {key for key in present if node[key] != after[name][key]}
    return elements, keys


# --- the page -------------------------------------------------------------------------------------


def places_of_variables() -> dict[str, set[Place]]:
    """The places where each variable of an inventory ends, by its name."""
    inputs, passed = places_of_inputs(), passed_inputs()
    by_name: dict[str, set[Place]] = {}
    by_key: dict[str, set[Place]] = {}
    for name, places in inputs.items():
        by_name.setdefault(name, set()).update(places)
        text = expanded(passed.get(name, ""))
        for key in node_keys(text):
            by_key.setdefault(key, set()).update(places)
        for each in names(text):
            by_name.setdefault(each, set()).update(places)
    for role in table().roles.values():
        for variable in role.variables:
            for each in names(str(variable.default)):
                by_name.setdefault(each, set()).update(by_name.get(variable.name, ()))
    found: dict[str, set[Place]] = {}
    judged = {variable.name for variable in table().topology}
    for variable in operator_variables():
        places = set(by_name.get(variable.name, ()))
        if variable.name in judged:
            elements, keys = changed_keys(variable)
            elements = FREE.get(variable.name, elements)
            places |= {(BROKER_XML, path) for path in elements}
            for key in {variable.key, *keys}:
                places |= by_key.get(key, set())
        found[variable.name] = places
    return found


def operator_variables() -> Iterator[Variable]:
    """Variables that an inventory for the playbooks may set."""
    for role in table().roles.values():
        yield from (variable for variable in role.variables if not variable.given_by)


def grouped(labels: Iterable[str]) -> list[str]:
    """The labels, with the group in the place of many elements of it."""
    groups: dict[str, list[str]] = {}
    for label in sorted(set(labels)):
        groups.setdefault(label.partition("/")[0], []).append(label)
    return [
        label for group, members in groups.items() for label in ([f"{group}/..."] if len(members) > MANY else members)
    ]


def shown(places: set[Place]) -> str:
    files: dict[str, set[str]] = {}
    for file, label in places:
        files.setdefault(file, set()).add(label)
    cells = []
    for file in [each.name for each in FILES]:
        if file in files:
            labels = ", ".join(label if label.startswith("(") else f"`{label}`" for label in grouped(files[file]))
            cells.append(f"`{file}`: {labels}")
    return "; ".join(cells)


def users(variable: Variable) -> str:
    """Files of the collection that use a variable which ends in no file of a host."""
    # A roll takes entries of the topology by a list of their keys.
    key = rf"(?:__broker_)?node\.{variable.key}\b|(?m:^  - {variable.key}$)"
    pattern = re.compile(rf"(?<![\w.])(?:{variable.name}\b|{key})")
    passed = {name for name, text in passed_inputs().items() if pattern.search(text)}
    patterns = [pattern, *(re.compile(rf"(?<![\w.]){name}\b") for name in passed)]
    found = []
    for folder in ("roles/*/tasks", "roles/*/vars", "playbooks", "playbooks/*"):
        for path in sorted(ROOT.glob(f"{folder}/*.yml")):
            text = path.read_text(encoding="utf-8")
            own = path.parts[-4:-2] == ("roles", ENTRY_ROLE) and pattern.search(text) and passed
            if not own and any(each.search(text) for each in patterns):
                found.append(str(path.relative_to(ROOT)))
    return ", ".join(f"`{each}`" for each in found)


HEAD = """# Where each variable ends

Generated from the table of variables, the roles and the topology by `make docs`; do not edit.

For each variable that an inventory sets, the files of a host that depend on it, and in them the element, the line or
the key. An element is below `core` of `broker.xml`; `GROUP/...` stands for more than four elements of a group, and
elements of `colocated` are shown as those of a pair. (path), (owner) and (content) are those of the whole file,
(whether) says that the variable decides whether the host has the file. A template of a variable counts, so
`broker_root` moves the instance, too, unless `broker_instance_directory` is given. HOST is the name in the inventory,
STORE the mount point and JOB the job. [variables.md](variables.md) says what each variable means.

`playbooks/render.yml` writes all these files of all hosts on the controller, without a connection to a host:

    ansible-playbook -i INVENTORY playbooks/render.yml

`rendered/HOST` then has each file at its path, and `files.txt` with modes and owners. Passwords, keys and tokens are
masked unless `-e render_secrets=true` is given; `-e render_directory=DIR` chooses another directory. A password that is
hashed with a new salt in each run, and the management token that a host makes for itself, are not those of the host. A
host is taken to run systemd unless `broker_service_backend` says otherwise. Programs of the release and the store of
the messages are no rendered files.
"""


def page() -> str:
    places = places_of_variables()
    lines = [HEAD]
    for role in table().roles.values():
        for title, section in role.sections:
            rows = [variable for variable in section if variable.available and not variable.given_by]
            if not rows:
                continue
            lines.append(f"\n## {role.name}: {title}\n\n| Variable | Ends in |\n|---|---|\n")
            for variable in rows:
                ends = shown(places[variable.name])
                if not ends:
                    used = users(variable)
                    ends = f"no file; used by {used or 'the checks of the inventory'}"
                lines.append(f"| `{variable.name}` | {ends} |\n")
    return "".join(lines)


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
