# SPDX-License-Identifier: Apache-2.0
"""The table of all inputs of the roles (``variables.yml``), and what is generated from it.

The topology and the renderer read the table when a play runs; ``files`` gives the text of the generated files, which
``make docs`` writes and a unit test compares. Used on the controller only.
"""

from __future__ import annotations

import functools
import math
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import yaml

CLUSTER, PAIR, NODE, HOST = SCOPES = ("cluster", "pair", "node", "host")
NOT_YET = "not yet"
ENTRY_ROLE = "broker"
"""The role whose inputs describe the cluster; the other roles take theirs from it or stand alone."""

_REFERENCE = re.compile(r"\{\{ (\w+) \}\}")
_BOOLEANS = {"true": True, "yes": True, "on": True, "1": True, "false": False, "no": False, "off": False, "0": False}


class Unusable(ValueError):
    """A value that an input cannot have; the message begins with "is"."""


@dataclass(frozen=True)
class Variable:
    """One row: an input of one role. ``variables.yml`` explains the fields."""

    name: str
    type: str
    description: tuple[str, ...]
    scope: str
    default: object = None
    required: bool = False
    elements: str = ""
    choices: tuple[str, ...] = ()
    options: Mapping[str, Mapping[str, object]] | None = None
    minimum: int | None = None
    maximum: int | None = None
    wanted: str = ""
    xml: tuple[str, ...] = ()
    votes_only: bool = False
    secret: bool = False
    default_text: str = ""
    given_by: str = ""
    since: str = ""

    @classmethod
    def from_row(cls, row: Mapping[str, object]) -> Variable:
        """The variable of a row of the table.

        Raises:
            TypeError: a key that no row has, or a missing one.
        """
        lists = {key: tuple(_texts(row.get(key, ()))) for key in ("description", "choices", "xml")}
        since = {"since": str(row["since"])} if "since" in row else {}
        return cls(**{**row, **lists, **since})  # type: ignore[arg-type]

    @property
    def key(self) -> str:
        """The name without the prefix of the role broker, by which a node of the topology has the value."""
        return self.name.removeprefix(f"{ENTRY_ROLE}_")

    @property
    def available(self) -> bool:
        return self.since != NOT_YET

    def default_for(self, others: Mapping[str, object]) -> object:
        """The default, with the values of the variables that its template names.

        Args:
            others: values by full name.
        """
        if isinstance(self.default, str):
            return _REFERENCE.sub(lambda match: str(others[match[1]]), self.default)
        return "" if self.default is None else self.default

    def read(self, value: object) -> object:
        """The value in the type of the variable.

        Raises:
            Unusable: it has another type, is not among the choices, or is beyond a limit.
        """
        readers = {
            "int": self._integer,
            "float": self._fraction,
            "bool": _boolean,
            "path": _path,
            "list": self._list,
            "dict": self._mapping,
        }
        reader = readers.get(self.type)
        if reader is not None:
            return reader(value)
        text = str(value).strip()
        if self.choices and text not in self.choices:
            raise Unusable(f"is {text!r}; give one of {', '.join(self.choices)}")
        return text

    def _integer(self, value: object) -> int:
        text = str(value).strip()
        low = 0 if self.minimum is None else self.minimum
        is_number = not isinstance(value, bool) and text.isascii() and text.removeprefix("-").isdigit()
        if is_number and low <= int(text) and (self.maximum is None or int(text) <= self.maximum):
            return int(text)
        limits = f"from {low} to {self.maximum}" if self.maximum is not None else f"of at least {low}"
        raise Unusable(f"is {text!r}; give {self.wanted or f'a whole number {limits}'}")

    def _fraction(self, value: object) -> float:
        try:
            number = float(str(value))
        except ValueError:
            number = math.nan
        if isinstance(value, bool) or not math.isfinite(number) or number < (self.minimum or 0):
            raise Unusable(f"is {str(value)!r}; give a number of at least {self.minimum or 0}")
        return number

    def _list(self, value: object) -> list[object]:
        if not isinstance(value, list):
            raise Unusable(f"is a {type(value).__name__}; give a list")
        for index, entry in enumerate(value):
            if self.elements == "dict":
                self._check_entry(f" at [{index}]", entry)
            elif not isinstance(entry, str) or not entry:
                raise Unusable(f"has {entry!r} at [{index}]; give a name")
        return value

    def _mapping(self, value: object) -> Mapping[str, object]:
        if not isinstance(value, Mapping):
            raise Unusable(f"is a {type(value).__name__}; give a mapping")
        if self.options:
            self._check_entry("", value)
        return value

    def _check_entry(self, where: str, entry: object) -> None:
        if not isinstance(entry, Mapping):
            raise Unusable(f"has{where} a {type(entry).__name__}; give a mapping")
        options = self.options or {}
        for name, option in options.items():
            if option.get("required") and entry.get(name) is None:
                raise Unusable(f"lacks {name!r}{where}")
        for name in entry:
            if name not in options:
                raise Unusable(f"has {name!r}{where}; give only {', '.join(options)}")


def _texts(value: object) -> list[str]:
    return [value] if isinstance(value, str) else [str(each) for each in value]  # type: ignore[attr-defined]


def _boolean(value: object) -> bool:
    text = str(value).strip().lower()
    if text not in _BOOLEANS:
        raise Unusable(f"is {text!r}; give true or false")
    return _BOOLEANS[text]


def _path(value: object) -> str:
    path = str(value).strip()
    if not path.startswith("/") or "/../" in f"{path}/":
        raise Unusable(f"is {path!r}; give an absolute path without '..'")
    return path.rstrip("/") or "/"


@dataclass(frozen=True)
class Role:
    """One role with its inputs, in sections, and the facts that it sets."""

    name: str
    short_description: str
    description: tuple[str, ...]
    entry_points: Mapping[str, Mapping[str, object]]
    sections: tuple[tuple[str, tuple[Variable, ...]], ...]
    outputs: tuple[Mapping[str, object], ...]

    @property
    def variables(self) -> tuple[Variable, ...]:
        """The inputs that exist; reserved ones are left out."""
        return tuple(each for section in self.sections for each in section[1] if each.available)


@dataclass(frozen=True)
class Table:
    """The whole table."""

    roles: Mapping[str, Role]
    renamed: Mapping[str, str]
    facts: tuple[str, ...] = ()
    """Facts that playbooks set, and inputs that only playbooks have."""

    @property
    def topology(self) -> tuple[Variable, ...]:
        """The inputs that describe a node to the whole cluster, in the order in which defaults can be resolved."""
        return tuple(each for each in self.roles[ENTRY_ROLE].variables if each.scope in (CLUSTER, PAIR, NODE))

    def known(self) -> frozenset[str]:
        """Every name with the prefix of the collection that a host may have."""
        found = {*self.facts, *(name for name, _reason in self.refusals())}
        for role in self.roles.values():
            found.update(variable.name for section in role.sections for variable in section[1])
            found.update(str(output["name"]) for output in role.outputs)
        return frozenset(found)

    def refusals(self) -> Iterator[tuple[str, str]]:
        """Names that an inventory for the role broker must not set, each with the reason."""
        for old, new in self.renamed.items():
            yield old, f"is a former name; set {new} instead"
        for role in self.roles.values():
            for section in role.sections:
                for variable in section[1]:
                    if not variable.available:
                        yield variable.name, "is not available in this version; remove it"
                    elif variable.given_by == "-":
                        yield variable.name, f"is set by the role {ENTRY_ROLE}; remove it"
                    elif variable.given_by:
                        yield variable.name, f"is set by the role {ENTRY_ROLE}; set {variable.given_by} instead"


def parse(text: str) -> Table:
    """The table of a document like ``variables.yml``."""
    content = yaml.safe_load(text)
    roles = {
        name: Role(
            name=name,
            short_description=role["short_description"],
            description=tuple(role["description"]),
            entry_points=role.get("entry_points", {}),
            sections=tuple(
                (section["title"], tuple(Variable.from_row(row) for row in section["variables"]))
                for section in role["sections"]
            ),
            outputs=tuple(role.get("outputs", ())),
        )
        for name, role in content["roles"].items()
    }
    return Table(roles=roles, renamed=content["renamed"], facts=tuple(content.get("facts", ())))


@functools.cache
def table() -> Table:
    """The table of this collection."""
    return parse(Path(__file__).with_name("variables.yml").read_text(encoding="utf-8"))


# --- generated files ---------------------------------------------------------------------------

_GENERATED = "# Generated from plugins/plugin_utils/variables.yml by `make docs`; do not edit.\n"


def files(given: Table) -> Iterator[tuple[str, str]]:
    """Path, relative to the collection, and text of every generated file."""
    for role in given.roles.values():
        yield f"roles/{role.name}/defaults/main.yml", _defaults(role)
        yield f"roles/{role.name}/meta/argument_specs.yml", _argument_specs(role)
    yield "docs/operate/variables.md", _reference(given)


def _dump(value: object) -> str:
    text: str = yaml.dump(value, Dumper=_Indented, sort_keys=False, width=118, allow_unicode=True)
    return text


class _Indented(yaml.SafeDumper):
    """Writes lists indented below their key, as the linters want, and without anchors."""

    def increase_indent(self, flow: bool = False, indentless: bool = False) -> None:
        super().increase_indent(flow, False)

    def ignore_aliases(self, data: object) -> bool:
        return True


def _represent_text(dumper: yaml.SafeDumper, text: str) -> yaml.ScalarNode:
    style = '"' if not text or (text.startswith("{{") and '"' not in text) else None
    return dumper.represent_scalar("tag:yaml.org,2002:str", text, style=style)


_Indented.add_representer(str, _represent_text)


def _defaults(role: Role) -> str:
    lines = ["---\n", _GENERATED]
    for title, group in role.sections:
        present = [each for each in group if each.available and not each.required]
        if present:
            lines.append(f"\n### {title}\n")
        lines.extend(_dump({each.name: each.default}) for each in present)
    return "".join(lines)


def _argument_specs(role: Role) -> str:
    options = {each.name: _option(each) for each in role.variables}
    entry_points: dict[str, object] = {
        "main": {"short_description": role.short_description, "description": list(role.description), "options": options}
    }
    for name, point in role.entry_points.items():
        entry_points[name] = {**point, "options": {}}
    return "---\n" + _GENERATED + _dump({"argument_specs": entry_points})


def _option(variable: Variable) -> dict[str, object]:
    option: dict[str, object] = {"type": variable.type}
    if variable.elements:
        option["elements"] = variable.elements
    if variable.required:
        option["required"] = True
    else:
        option["default"] = variable.default_text or variable.default
    if variable.choices:
        option["choices"] = list(variable.choices)
    if variable.secret:
        option["no_log"] = True
    if variable.since:
        option["version_added"] = variable.since
    option["description"] = list(variable.description)
    if variable.options:
        option["options"] = {name: dict(each) for name, each in variable.options.items()}
    return option


_MARKUP = re.compile(r"(?:RV|[CVOM])\((?:[\w.]+#\w+:)?([^)]*)\)")


def _plain(text: str) -> str:
    """Markdown of a description."""
    return _MARKUP.sub(r"`\1`", text).replace("|", "\\|")


_REFERENCE_HEAD = """# Variables of the collection

Generated from `plugins/plugin_utils/variables.yml` by `make docs`; do not edit.

`cluster`, `pair`: all nodes of the cluster or of the pair must agree. `node`: may differ from node to node and is known
to the whole cluster. `host`: used on its own host only. An element is below `core` of `broker.xml`; of colocated nodes
the elements below `primary` and `backup` are in `colocated`. With the role `broker` only its own variables and
those that are not marked as set by it are set; a role that is used alone takes all of its variables.

A name that begins with `broker_` and is not on this page is refused by `preflight`, `site`, `witness`, `pipeline` and
each roll, with the nearest known name. List variables of your own with this prefix in `broker_extra_variables`. A
variable that cannot be evaluated, such as one that names a missing entry of a vault, is refused with its hosts. All
faults of an inventory are shown at once, each one time.
"""
_TABLE_HEAD = "| Variable | Type | Default | Scope | Meaning |\n|---|---|---|---|---|\n"


def _reference(given: Table) -> str:
    lines = [_REFERENCE_HEAD]
    for role in given.roles.values():
        lines.append(f"\n## {role.name}\n\n{role.short_description}.\n")
        for title, group in role.sections:
            lines.append(f"\n### {role.name}: {title}\n\n{_TABLE_HEAD}")
            lines.extend(_reference_row(each) for each in group)
        if role.outputs:
            lines.append("\nFacts that it sets:\n\n| Fact | Type | Meaning |\n|---|---|---|\n")
            for output in role.outputs:
                meaning = _plain(" ".join(_texts(output["description"])))
                lines.append(f"| `{output['name']}` | {output['type']} | {meaning} |\n")
    lines.append("\n## Former names\n\n| Former name | Now |\n|---|---|\n")
    lines.extend(f"| `{old}` | {new} |\n" for old, new in given.renamed.items())
    return "".join(lines)


def _reference_row(variable: Variable) -> str:
    kind = f"{variable.type} of {variable.elements}" if variable.elements else variable.type
    meaning = [" ".join(variable.description)]
    if variable.choices:
        meaning.append(f"One of {', '.join(f'V({choice})' for choice in variable.choices)}.")
    if variable.xml:
        meaning.append(f"Element: {', '.join(f'C({path})' for path in variable.xml)}.")
    if variable.votes_only:
        meaning.append("Has no effect with a lock manager.")
    if variable.given_by:
        source = f"from C({variable.given_by})" if variable.given_by != "-" else "as needed"
        meaning.append(f"Set by the role broker, {source}.")
    if not variable.available:
        meaning.append("Not available in this version.")
    cells = (f"`{variable.name}`", kind, _reference_default(variable), variable.scope, _plain(" ".join(meaning)))
    return f"| {' | '.join(cells)} |\n"


def _reference_default(variable: Variable) -> str:
    if variable.required:
        return "required"
    if variable.default_text:
        return variable.default_text
    if variable.default == "":
        return "empty"
    if variable.default is None:
        return "none"
    shown = (
        variable.default
        if isinstance(variable.default, str)
        else yaml.safe_dump(variable.default, default_flow_style=True)
    )
    return f"`{shown.removesuffix('...' + chr(10)).strip()}`".replace("|", "\\|")
