"""A ``Protocol`` is needed where several classes implement it, or where a package must not import another one.

A class implements a protocol when it has all of its methods and attributes, those of its base classes included. Left
out are protocols in ``ports``, and those that are called like a function, because functions implement them.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

from support.architecture import Class, classes, report, shrinking
from unit.architecture.test_sizes import all_attributes, all_methods, with_bases

SECTION = "protocols with one implementer"


def is_protocol(each: Class) -> bool:
    return any(ast.unparse(base).partition("[")[0] in ("Protocol", "typing.Protocol") for base in each.node.bases)


def members(each: Class) -> set[str]:
    """Names that an instance has."""
    assigned = {
        target.id
        for node in with_bases(each)
        for statement in node.body
        if isinstance(statement, ast.Assign)
        for target in statement.targets
        if isinstance(target, ast.Name)
    }
    return all_attributes(each) | all_methods(each) | assigned


def lone_protocols() -> Iterator[str]:
    """Protocols with at most one implementer, which is in the same package."""
    having = [(each, members(each)) for each in classes() if not is_protocol(each)]
    for each in classes():
        wanted = members(each) if is_protocol(each) else set()
        if not wanted or each.module.package == "ports" or "__call__" in wanted:
            continue
        implementers = [other for other, names in having if wanted <= names]
        if len(implementers) < 2 and all(other.module.package == each.module.package for other in implementers):
            yield each.key


def test_a_protocol_has_two_implementers() -> None:
    report(shrinking(SECTION, dict.fromkeys(lone_protocols(), 1), 0))
