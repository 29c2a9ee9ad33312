"""The operations of the management CLI with their parameters, for checks and descriptions.

Not here: carrying them out (``operations``).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from understudy.dataclass import dataclass
from understudy.errors import ManagementError
from understudy.management.dmr.grammar import Operation
from understudy.management.dmr.kinds import ResourceType, Type
from understudy.management.dmr.values import Value


@dataclass(frozen=True, slots=True)
class Parameter:
    """A parameter of an operation."""

    name: str
    type: Type
    doc: str
    required: bool = False

    def described(self) -> Value:
        """The parameter as a description has it."""
        return {"type": self.type.value, "description": self.doc, "required": self.required}


@dataclass(frozen=True, slots=True)
class OperationKind:
    """An operation by its name."""

    doc: str
    parameters: tuple[Parameter, ...] = ()
    reads: bool = True
    """Whether it changes nothing."""
    takes_attributes: bool = False
    """Whether the attributes of its resource are parameters of it."""

    def described(self, name: str, resource: ResourceType | None) -> Value:
        """The description of the operation at a resource; None: at an address without attributes."""
        properties = {each.name: each.described() for each in self.parameters}
        if self.takes_attributes and resource is not None:
            written = [each for each in resource.attributes if not each.runtime and not each.unserved]
            properties |= {
                each.name: {"type": each.type.value, "required": each.required}
                for each in sorted(written, key=lambda each: each.name)
            }
        return {
            "operation-name": name,
            "description": self.doc,
            "request-properties": properties,
            "read-only": self.reads,
        }


_NAME: Final = Parameter("name", Type.STRING, "Name of the attribute.", required=True)
_ENTRY: Final = Parameter("value", Type.STRING, "The entry.", required=True)
_CHILD_TYPE: Final = Parameter("child-type", Type.STRING, "Type of the children.", required=True)
_DEFAULTS: Final = Parameter("include-defaults", Type.BOOLEAN, "Whether an attribute without a value has its default.")
_RUNTIME: Final = Parameter("include-runtime", Type.BOOLEAN, "Whether facts of the running node are read as well.")
_RECURSIVE: Final = Parameter("recursive", Type.BOOLEAN, "Whether children are read with their attributes.")

OPERATIONS: Final[Mapping[str, OperationKind]] = {
    "read-resource": OperationKind(
        "Read the attributes and children of a resource.",
        (
            _RECURSIVE,
            Parameter("recursive-depth", Type.INT, "Accepted for scripts; children are read to any depth."),
            _RUNTIME,
            _DEFAULTS,
        ),
    ),
    "read-attribute": OperationKind("Read an attribute.", (_NAME, _DEFAULTS)),
    "read-resource-description": OperationKind(
        "Describe the attributes of a resource.",
        tuple(
            Parameter(name, Type.BOOLEAN, "Accepted for scripts; changes nothing.")
            for name in ("recursive", "operations", "inherited")
        ),
    ),
    "read-operation-names": OperationKind("List the operations of a resource."),
    "read-operation-description": OperationKind(
        "Describe an operation with its parameters.",
        (Parameter("name", Type.STRING, "Name of the operation.", required=True),),
    ),
    "read-children-names": OperationKind("List the names of children of a type.", (_CHILD_TYPE,)),
    "read-children-types": OperationKind("List the types of the children of a resource."),
    "read-children-resources": OperationKind(
        "Read the children of a type.", (_CHILD_TYPE, _RECURSIVE, _RUNTIME, _DEFAULTS)
    ),
    "resolve-path": OperationKind("Read a path as an absolute one."),
    "client-url": OperationKind("Read the client URL of a connection factory."),
    "jndi-properties": OperationKind("Read the file jndi.properties of a connection factory."),
    "add": OperationKind("Add a resource.", reads=False, takes_attributes=True),
    "remove": OperationKind("Remove a resource.", reads=False),
    "write-attribute": OperationKind(
        "Change an attribute.",
        (_NAME, Parameter("value", Type.STRING, "The new value; none or undefined: its default.")),
        reads=False,
    ),
    "undefine-attribute": OperationKind("Give an attribute its default.", (_NAME,), reads=False),
    "list-add": OperationKind(
        "Add an entry to a list.",
        (_NAME, _ENTRY, Parameter("index", Type.INT, "Place of the entry, from 0; the end, if it is missing.")),
        reads=False,
    ),
    "list-remove": OperationKind(
        "Remove an entry of a list.",
        (
            _NAME,
            Parameter("value", Type.STRING, "The entry."),
            Parameter("index", Type.INT, "Place of the entry, from 0, if the entry itself is missing."),
        ),
        reads=False,
    ),
    "list-clear": OperationKind("Remove every entry of a list.", (_NAME,), reads=False),
    "reload": OperationKind(
        "Stop the server that answers, and start it again with the present files.",
        (Parameter("force", Type.BOOLEAN, "Whether it reloads although no node would serve meanwhile."),),
        reads=False,
    ),
    "composite": OperationKind(
        "Carry out several operations, of which all count or none.",
        (Parameter("steps", Type.LIST, "The operations.", required=True),),
        reads=False,
    ),
}
"""Every operation, by its name."""

READS: Final = frozenset(name for name, kind in OPERATIONS.items() if kind.reads)
"""Operations that change nothing."""
#: Operations on the root that the doors carry out.
ROOT_OPERATIONS: Final = ("composite", "reload")


def arguments_of(operation: Operation) -> Mapping[str, Value]:
    """The parameters of an operation without attributes. Raises ManagementError: one is unknown or missing."""
    parameters = OPERATIONS[operation.name].parameters
    known = [each.name for each in parameters]
    for name in operation.arguments:
        if name not in known:
            hint = f"it has {', '.join(known)}" if known else "it has none"
            raise ManagementError(f"operation '{operation.name}' has no parameter '{name}'", hint=hint)
    for each in parameters:
        if each.required and operation.arguments.get(each.name) is None:
            raise ManagementError(f"WFLYCTL0155: '{each.name}' may not be null")
    return operation.arguments
