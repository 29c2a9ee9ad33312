"""The operations of the management CLI: each reads the tree, or makes the states that a change needs.

An operation changes nothing itself. Its outcome has states for the overlay of broker.xml, which count once the reader
of the broker has accepted the result. Failures are texts with the codes that scripts look for.
"""

from __future__ import annotations

import posixpath
from collections.abc import Callable, Mapping, Sequence
from dataclasses import field, replace
from typing import Final

from understudy.config.edit.changes import Clear, Ensure, Set, Target
from understudy.config.edit.paths import Step
from understudy.config.profiles.factory import ConnectionFactoryConfiguration
from understudy.dataclass import dataclass
from understudy.errors import ManagementError
from understudy.management.dmr.grammar import Address, Operation
from understudy.management.dmr.kinds import CORE, Attribute, Effect, ResourceType, Type
from understudy.management.dmr.parameters import OPERATIONS, ROOT_OPERATIONS, arguments_of
from understudy.management.dmr.resources import (
    ALL,
    CONNECTION_FACTORY,
    DEFAULT_SERVER,
    NAMED_PATH,
    SERVER,
    SUBSYSTEM,
)
from understudy.management.dmr.tree import Resource, Tree, not_found, shown_address
from understudy.management.dmr.values import Value
from understudy.texts import masked_url

#: Header that permits to change a directory of a store that has messages.
ALLOW_DATA_MOVE: Final = "allow-data-move"
#: Header that counts an add of a present resource and a remove of a missing one as done.
IF_NEEDED: Final = "if-needed"
#: Header that has operations validated, and nothing changed.
VALIDATE_ONLY: Final = "validate-only"
_FLAGS: Final = {"true": True, "false": False}


@dataclass(frozen=True, slots=True)
class Facts:
    """The running node, as far as operations read it."""

    version: str
    """Version of the broker."""
    directory: str
    """The instance directory."""
    reload_required: bool = False
    """Whether the configuration has changes that the node uses after a reload."""
    messages: Mapping[str, int | None] = field(default_factory=dict)
    """Messages in the queues of each server of the process, by the names of the CLI; None: the server is not active, so
    the number is unknown. A server that does not run yet has none.
    """
    in_sync: bool = False
    """Whether the replica of the node, or the node as a replica, has everything."""
    start_id: str = ""
    """A text that is another one after each start of the node."""
    factories: tuple[ConnectionFactoryConfiguration, ...] = ()
    """Connection factories of the node."""
    places: Mapping[str, str] = field(default_factory=dict)
    """Connectors of the node as parts of client URLs, by their names."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """The result of one operation."""

    result: Value = None
    targets: tuple[Target, ...] = ()
    """States of broker.xml that the operation asks for."""
    effect: Effect | None = None
    """When the change is used; None: the operation only reads."""
    old: Mapping[str, Value] = field(default_factory=dict)
    """The values before the change, by the names of their attributes; secrets are masked."""


class Operations:
    """Carries out operations on one tree."""

    def __init__(self, tree: Tree, facts: Facts) -> None:
        self._tree = tree
        self._facts = facts
        self._handlers: Mapping[str, Callable[[Operation], Outcome]] = {
            "read-resource": self._read_resource,
            "read-attribute": self._read_attribute,
            "read-resource-description": self._describe,
            "read-operation-names": self._operation_names,
            "read-operation-description": self._describe_operation,
            "read-children-names": self._children_names,
            "read-children-types": self._children_types,
            "read-children-resources": self._children_resources,
            "resolve-path": self._resolve_path,
            "client-url": self._client_url,
            "jndi-properties": self._jndi_properties,
            "add": self._add,
            "remove": self._remove,
            "write-attribute": self._write_attribute,
            "undefine-attribute": self._undefine_attribute,
            "list-add": self._list_add,
            "list-remove": self._list_remove,
            "list-clear": self._list_clear,
        }

    def carry_out(self, operation: Operation) -> Outcome:
        """The outcome of an operation.

        Raises:
            ManagementError: it cannot be carried out; the text is that of the failure-description.
        """
        handler = self._handlers.get(operation.name)
        if handler is None:
            raise _no_operation(operation.name, operation.address)
        return handler(operation)

    # --- reads -----------------------------------------------------------------------------------

    def _read_resource(self, operation: Operation) -> Outcome:
        given = arguments_of(operation)
        runtime, defaults = _flag(given, "include-runtime"), _flag(given, "include-defaults", default=True)
        recursive = _flag(given, "recursive")
        return Outcome(self._resource(operation.address, runtime=runtime, defaults=defaults, recursive=recursive))

    def _resource(self, address: Address, *, runtime: bool, defaults: bool, recursive: bool) -> Value:
        found: dict[str, Value] = {}
        if not _is_abstract(address):
            resource = self._tree.existing(address)
            for each in _shown(resource.type, runtime=runtime):
                value = self._value(resource, each)
                found[each.name] = value if defaults or resource.given(each) is not None else None
        elif not address and runtime:
            found = {name: self._root(name) for name in _ROOT}
        for kind, name in self._tree.children(address):
            child = (*address, (kind, name))
            children = found.setdefault(kind, {})
            assert isinstance(children, dict)
            read = self._resource(child, runtime=runtime, defaults=defaults, recursive=True) if recursive else None
            children[name] = read
        return dict(sorted(found.items()))

    def _value(self, resource: Resource, attribute: Attribute) -> Value:
        return self._facts.in_sync if attribute.runtime else resource.value(attribute)

    def _root(self, name: str) -> Value:
        if name == "server-state":
            return "reload-required" if self._facts.reload_required else "running"
        values = {
            "product-name": "Understudy",
            "release-version": self._facts.version,
            "start-id": self._facts.start_id,
        }
        return values[name]

    def _read_attribute(self, operation: Operation) -> Outcome:
        given = arguments_of(operation)
        name = str(given["name"])
        if not operation.address:
            if name not in _ROOT:
                raise ManagementError(f"WFLYCTL0201: Unknown attribute '{name}'", hint=", ".join(_ROOT))
            return Outcome(self._root(name))
        resource = self._resource_at(operation)
        attribute = resource.type.attribute(name)
        if _flag(given, "include-defaults", default=True) or attribute.runtime:
            return Outcome(self._value(resource, attribute))
        return Outcome(resource.given(attribute))

    def _describe(self, operation: Operation) -> Outcome:
        arguments_of(operation)
        if _is_abstract(operation.address):
            kinds = sorted({kind for kind, _ in self._tree.children(operation.address)})
            return Outcome({"description": "Resources of the broker.", "children": dict.fromkeys(kinds)})
        kind = self._tree.resource(operation.address).type
        return Outcome(
            {"description": kind.doc, "attributes": {each.name: _described(kind, each) for each in _sorted(kind)}}
        )

    def _operation_names(self, operation: Operation) -> Outcome:
        arguments_of(operation)
        return Outcome(list[Value](self._names(operation.address)))

    def _names(self, address: Address) -> list[str]:
        """Names of the operations at an address, sorted."""
        names = [name for name in self._handlers if name.startswith("read-")]
        if not _is_abstract(address):
            names = self._names_at(self._tree.resource(address), names)
        elif not address:
            names += [*ROOT_OPERATIONS]
        return sorted(names)

    def _describe_operation(self, operation: Operation) -> Outcome:
        name = str(arguments_of(operation)["name"])
        if name not in self._names(operation.address):
            raise _no_operation(name, operation.address)
        resource = None if _is_abstract(operation.address) else self._tree.resource(operation.address).type
        return Outcome(OPERATIONS[name].described(name, resource))

    def _names_at(self, resource: Resource, names: list[str]) -> list[str]:
        names = [*names, "write-attribute", "undefine-attribute"]
        if any(each.type is Type.LIST for each in resource.type.attributes):
            names += ["list-add", "list-remove", "list-clear"]
        if resource.type.type == "path":
            names.append("resolve-path")
        if resource.type is CONNECTION_FACTORY:
            names += ["client-url", "jndi-properties"]
        if not resource.type.fixed:
            names += ["add", "remove"]
        return names

    def _children_names(self, operation: Operation) -> Outcome:
        kind = _child_type(arguments_of(operation))
        return Outcome([name for each, name in self._tree.children(operation.address) if each == kind])

    def _children_types(self, operation: Operation) -> Outcome:
        arguments_of(operation)
        return Outcome(sorted({kind for kind, _ in self._tree.children(operation.address)}))

    def _children_resources(self, operation: Operation) -> Outcome:
        given = arguments_of(operation)
        runtime, defaults = _flag(given, "include-runtime"), _flag(given, "include-defaults", default=True)
        recursive = _flag(given, "recursive")
        wanted = _child_type(given)
        steps = [step for step in self._tree.children(operation.address) if step[0] == wanted]
        return Outcome(
            {
                name: self._resource(
                    (*operation.address, (kind, name)), runtime=runtime, defaults=defaults, recursive=recursive
                )
                for kind, name in steps
            }
        )

    def _resolve_path(self, operation: Operation) -> Outcome:
        arguments_of(operation)
        resource = self._resource_at(operation)
        if resource.type.type != "path":
            raise ManagementError(f"WFLYCTL0031: No operation named '{operation.name}' exists at this address")
        return Outcome(posixpath.normpath(posixpath.join(self._facts.directory, self._tree.directory(resource))))

    def _client_url(self, operation: Operation) -> Outcome:
        return Outcome(self._factory(operation).url(self._facts.places))

    def _jndi_properties(self, operation: Operation) -> Outcome:
        return Outcome(self._factory(operation).jndi_properties(self._facts.places))

    def _factory(self, operation: Operation) -> ConnectionFactoryConfiguration:
        """The connection factory of an operation, as the running server has it. Raises ManagementError."""
        arguments_of(operation)
        resource = self._resource_at(operation)
        name = operation.address[-1][1]
        if resource.type is not CONNECTION_FACTORY:
            raise ManagementError(f"WFLYCTL0031: No operation named '{operation.name}' exists at this address")
        for each in self._facts.factories:
            if each.name == name:
                return each
        raise ManagementError(
            f"connection-factory {name!r} is not used by the server that answers",
            hint="it waits for another line (`understudy config diff` shows for which), or is that of another server",
        )

    # --- changes ---------------------------------------------------------------------------------

    def _exists(self, address: Address) -> bool:
        return _is_abstract(address) or self._tree.resource(address).exists

    def _resource_at(self, operation: Operation) -> Resource:
        if _is_abstract(operation.address):
            raise ManagementError(f"'{operation.name}' needs the address of a broker or of a resource of one")
        return self._tree.existing(operation.address)

    def _add(self, operation: Operation) -> Outcome:
        address = operation.address
        if _is_abstract(address):
            raise not_found(address)
        resource = self._tree.resource(address)
        kind = resource.type
        if resource.exists and _has_header(operation, IF_NEEDED) and _has_values(resource, operation.arguments):
            return Outcome()
        if resource.exists or resource.taken:
            raise ManagementError(f"WFLYCTL0212: Duplicate resource {shown_address(address)}")
        if kind.alternatives and (present := self._tree.policy(resource)) is not None:
            raise ManagementError(
                f"WFLYCTL0212: the server has the ha-policy '{present}' already", hint="remove that one first"
            )
        targets: list[Target] = [Ensure(resource.path), *_first_settings(resource)]
        given: dict[str, Value] = {}
        for name, value in operation.arguments.items():
            attribute = kind.attribute(name)
            if attribute.name in given:
                raise ManagementError(f"'{attribute.name}' is given twice")
            given[attribute.name] = value
            if value is not None:
                targets += _written(resource, attribute, value)
        for each in kind.attributes:
            if each.required and given.get(each.name) is None:
                raise ManagementError(f"WFLYCTL0155: '{each.name}' may not be null")
        if kind.one_of and not any(given.get(name) is not None for name in kind.one_of):
            raise ManagementError(f"WFLYCTL0155: one of '{' and '.join(kind.one_of)}' may not be null")
        return Outcome(None, tuple(targets), kind.effect)

    def _remove(self, operation: Operation) -> Outcome:
        arguments_of(operation)
        if _has_header(operation, IF_NEEDED) and not self._exists(operation.address):
            return Outcome()
        resource = self._resource_at(operation)
        if resource.type.fixed or resource.address[-1] == (SERVER.type, DEFAULT_SERVER):
            raise ManagementError(f"'{resource.type.type}' cannot be removed")
        path = resource.path
        if resource.type.alternatives:
            # without its policy the element around it would be a wrong policy
            path = path[: path.index("/ha-policy/") + len("/ha-policy")]
        return Outcome(None, (Clear(path),), resource.type.effect)

    def _write_attribute(self, operation: Operation) -> Outcome:
        given = arguments_of(operation)
        resource = self._resource_at(operation)
        attribute = resource.type.attribute(str(given["name"]))
        value = given.get("value")
        self._check_data(operation, resource)
        if value is None or value == "undefined":
            return self._undefined(resource, attribute)
        return self._changed(resource, attribute, _written(resource, attribute, value))

    def _check_data(self, operation: Operation, resource: Resource) -> None:
        """Refuse another directory for a store with messages, which would be left where it is."""
        if resource.type.type != "path" or resource.type is NAMED_PATH:
            return
        if _has_header(operation, ALLOW_DATA_MOVE):
            return
        messages = self._facts.messages.get(resource.address[1][1], 0)
        if messages != 0:
            held = "the node is not active, so its messages cannot be counted"
            raise ManagementError(
                f"{held if messages is None else f'the store has {messages} messages'}: they would stay in the present"
                " directory and not be served after the reload",
                hint=f"move the directory while the node is stopped, and give the header {{{ALLOW_DATA_MOVE}=true}}",
            )

    def _undefine_attribute(self, operation: Operation) -> Outcome:
        given = arguments_of(operation)
        resource = self._resource_at(operation)
        self._check_data(operation, resource)
        return self._undefined(resource, resource.type.attribute(str(given["name"])))

    def _undefined(self, resource: Resource, attribute: Attribute) -> Outcome:
        _check_writable(attribute)
        if attribute.required:
            raise ManagementError(f"WFLYCTL0155: '{attribute.name}' may not be null")
        if attribute.type is Type.LIST:
            return self._changed(resource, attribute, _cleared(resource, attribute))
        if resource.type.type == "path":
            return self._changed(resource, attribute, [_without_place(resource, attribute)])
        return self._changed(resource, attribute, [Clear(_element_of(resource, attribute))])

    def _list_add(self, operation: Operation) -> Outcome:
        given = arguments_of(operation)
        resource, attribute, entries = self._list(operation, given)
        value = "".join(attribute.converted(str(given["value"])))
        if value in entries:
            if _has_header(operation, IF_NEEDED):
                return Outcome()
            raise ManagementError(f"'{attribute.name}' has {value!r} already")
        if "index" not in given:
            return self._changed(resource, attribute, [Ensure(_entry(resource, attribute, value))])
        index = _index(given, len(entries))
        return self._changed(
            resource, attribute, _written(resource, attribute, [*entries[:index], value, *entries[index:]])
        )

    def _list_remove(self, operation: Operation) -> Outcome:
        given = arguments_of(operation)
        resource, attribute, entries = self._list(operation, given)
        if "value" in given:
            value = str(given["value"])
            if value not in entries:
                if _has_header(operation, IF_NEEDED):
                    return Outcome()
                raise ManagementError(f"'{attribute.name}' has no {value!r}", hint=", ".join(entries) or None)
        else:
            index = _index(given, len(entries) - 1)
            value = entries[index]
        return self._changed(resource, attribute, [Clear(_entry(resource, attribute, value))])

    def _list_clear(self, operation: Operation) -> Outcome:
        given = arguments_of(operation)
        resource, attribute, _ = self._list(operation, given)
        return self._changed(resource, attribute, _cleared(resource, attribute))

    def _list(self, operation: Operation, given: Mapping[str, Value]) -> tuple[Resource, Attribute, list[str]]:
        resource = self._resource_at(operation)
        attribute = resource.type.attribute(str(given["name"]))
        if attribute.type is not Type.LIST:
            raise ManagementError(f"'{attribute.name}' is no list")
        return resource, attribute, _entries(resource, attribute)

    def _changed(self, resource: Resource, attribute: Attribute, targets: list[Target]) -> Outcome:
        return Outcome(None, tuple(targets), resource.type.effect, {attribute.name: resource.value(attribute)})


#: Names of the attributes whose values are not shown.
_SECRETS: Final = frozenset(name for kind in ALL for each in kind.attributes if each.secret for name in each.names)
#: Attributes of the root.
_ROOT: Final = ("product-name", "release-version", "server-state", "start-id")


def validates_only(operations: Sequence[Operation]) -> bool:
    """Whether operations are to be validated only."""
    return any(_has_header(each, VALIDATE_ONLY) for each in operations)


def _has_header(operation: Operation, name: str) -> bool:
    return operation.headers.get(name) == "true"


def _has_values(resource: Resource, given: Mapping[str, Value]) -> bool:
    """Whether a resource has values already. Raises ManagementError: it has no such attribute, or of another type."""
    for name, value in given.items():
        attribute = resource.type.attribute(name)
        present = resource.value(attribute)
        if value is None or present is None:
            if value is not present:
                return False
        elif attribute.converted(value) != attribute.converted(present):
            return False
    return True


def masked(operation: Operation) -> Operation:
    """The operation without the values of secrets, for logs and the overlay."""

    def shown(name: str, value: Value) -> Value:
        if name in _SECRETS:
            return "***"
        return masked_url(value) if isinstance(value, str) else value

    given = {name: shown(name, value) for name, value in operation.arguments.items()}
    if given.get("name") in _SECRETS and "value" in given:
        given["value"] = "***"
    return replace(operation, arguments=given)


def _no_operation(name: str, address: Address) -> ManagementError:
    """The failure of an operation that an address does not have."""
    return ManagementError(f"WFLYCTL0031: No operation named '{name}' exists at address {shown_address(address)}")


def _is_abstract(address: Address) -> bool:
    """Whether an address is the root or the subsystem, which have no attributes in broker.xml."""
    return len(address) < 2 and (not address or address[0][0] == "subsystem")


def _first_settings(resource: Resource) -> list[Target]:
    """The states that a new server needs: directories of its own, and the logins and permissions of the main one."""
    if resource.type is not SERVER:
        return []
    name = resource.address[-1][1]
    directories = ("bindings", "journal", "large-messages", "paging")
    return [
        Set(f"{resource.path}/@settings", CORE),
        *(Set(f"{resource.path}/{each}-directory", f"data/{name}/{each}") for each in directories),
    ]


def _sorted(kind: ResourceType) -> list[Attribute]:
    return sorted(kind.attributes, key=lambda each: each.name)


def _shown(kind: ResourceType, *, runtime: bool) -> list[Attribute]:
    return [each for each in _sorted(kind) if (runtime or not each.runtime) and not each.unserved]


def _described(kind: ResourceType, attribute: Attribute) -> Value:
    found: dict[str, Value] = {"type": attribute.type.value, "required": attribute.required}
    default = kind.default(attribute)
    if default is not None:
        found["default"] = default
    if attribute.aliases:
        found["aliases"] = list(attribute.aliases)
    found["access-type"] = "read-only" if attribute.runtime or attribute.unserved else "read-write"
    if found["access-type"] == "read-write":
        found["restart-required"] = kind.effect.value
    if attribute.unserved is not None:
        found["description"] = attribute.unserved
    return found


def _child_type(given: Mapping[str, Value]) -> str:
    """The parameter ``child-type``; another name of a type stands for the one of answers.

    Raises:
        ManagementError: no resource of this version has such a type.
    """
    wanted = str(given["child-type"])
    for kind in ALL:
        if wanted in (kind.type, *kind.type_aliases):
            return kind.type
    if wanted == SUBSYSTEM[0]:
        return wanted
    known = ", ".join(sorted({SUBSYSTEM[0], *(kind.type for kind in ALL)}))
    raise ManagementError(f"there are no resources of the type '{wanted}'", hint=f"types are {known}")


def _flag(given: Mapping[str, Value], name: str, *, default: bool = False) -> bool:
    value = given.get(name, default)
    found = value if isinstance(value, bool) else _FLAGS.get(str(value))
    if found is None:
        raise ManagementError(f"WFLYCTL0097: Wrong type for '{name}': BOOLEAN expected, not {value!r}")
    return found


def _index(given: Mapping[str, Value], most: int) -> int:
    text = str(given.get("index", ""))
    if not text.isdecimal() or not text.isascii() or not 0 <= int(text) <= most:
        raise ManagementError(f"index {text!r} is no number from 0 to {most}")
    return int(text)


def _check_writable(attribute: Attribute) -> None:
    if attribute.unserved is not None:
        raise ManagementError(f"'{attribute.name}': {attribute.unserved}")
    if attribute.runtime:
        raise ManagementError(f"WFLYCTL0048: Attribute {attribute.name} is not writable")


def _written(resource: Resource, attribute: Attribute, value: Value) -> list[Target]:
    """The states that give an attribute a value. Raises ManagementError: it has another type or is read-only."""
    _check_writable(attribute)
    converted = attribute.converted(value)
    if isinstance(converted, str):
        return [Set(resource.place(attribute), converted)]
    entries = list(dict.fromkeys(converted))
    return [*_cleared(resource, attribute), *(Ensure(_entry(resource, attribute, each)) for each in entries)]


def _entries(resource: Resource, attribute: Attribute) -> list[str]:
    found = resource.given(attribute)
    return [str(each) for each in found] if isinstance(found, list) else []


def _cleared(resource: Resource, attribute: Attribute) -> list[Target]:
    """The states that take away every entry of a list."""
    return [Clear(_entry(resource, attribute, each)) for each in _entries(resource, attribute)]


def _entry(resource: Resource, attribute: Attribute, value: str) -> str:
    """The path of an entry of a list."""
    if "'" in value and '"' in value:
        raise ManagementError(f"{value!r} has both kinds of quotes")
    around, _, name = attribute.element.rpartition("/")
    return "/".join(part for part in (resource.path, around, str(Step(name, None, value))) if part)


def _without_place(resource: Resource, attribute: Attribute) -> Target:
    """The state of a directory without its path or its start: the element goes if it has nothing else."""
    other = next(each for each in resource.type.attributes if each is not attribute)
    if resource.given(other) is None:
        return Clear(resource.path)
    return Clear(resource.place(attribute)) if attribute.element else Set(resource.path, "")


def _element_of(resource: Resource, attribute: Attribute) -> str:
    """The path to clear for an attribute without a value: a reference goes as a whole."""
    path, at, _ = attribute.element.rpartition("@")
    if at and path == "discovery-group-ref/":
        return f"{resource.path}/discovery-group-ref"
    return resource.place(attribute)
