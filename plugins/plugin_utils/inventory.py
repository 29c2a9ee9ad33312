# SPDX-License-Identifier: Apache-2.0
"""Variables of the hosts of an inventory: which of them the collection knows, and which of them have a value.

Reading a variable of a host evaluates its template, which may name a variable that does not exist.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable, Iterator, Mapping

from ansible.errors import AnsibleError
from ansible_collections.understudy.broker.plugins.plugin_utils.model import Fault
from ansible_collections.understudy.broker.plugins.plugin_utils.topology import build_topology, relevant_names
from ansible_collections.understudy.broker.plugins.plugin_utils.variables import (
    HOST,
    Unusable,
    Variable,
    table,
)

PREFIX = "broker_"
EXTRA = "broker_extra_variables"
"""Names of the user's own variables with the prefix."""
LIKE = 0.6
"""Least similarity of a name that is proposed (``difflib``)."""

_UNDEFINED = re.compile(r"'(\w+)' is undefined")

HostVariables = Mapping[str, Mapping[str, object]]


def read_values(hosts: Iterable[str], hostvars: HostVariables) -> tuple[dict[str, dict[str, object]], list[Fault]]:
    """The values of which a topology is made, by host, and those that cannot be evaluated.

    Args:
        hosts: inventory names.
        hostvars: the variable ``hostvars``.
    """
    values: dict[str, dict[str, object]] = {}
    faults: list[Fault] = []
    relevant = relevant_names()
    for host in hosts:
        found, read = hostvars[host], values.setdefault(host, {})
        # Only what a topology is made of is read, because reading a host variable evaluates it.
        for name in sorted(each for each in relevant if each in found):
            try:
                read[name] = found[name]
            except AnsibleError as error:
                faults.append(Fault(host, name, f"cannot be evaluated: {_words(error)}"))
    return values, faults


def unknown_names(hosts: Iterable[str], hostvars: HostVariables) -> Iterator[Fault]:
    """Names with the prefix that neither the collection knows nor the user has declared.

    Args:
        hosts: inventory names.
        hostvars: the variable ``hostvars``.
    """
    known = table().known()
    for host in hosts:
        found = hostvars[host]
        given = found.get(EXTRA, [])
        own = {str(each) for each in given} if isinstance(given, list) else set()
        for name in sorted(each for each in found if str(each).startswith(PREFIX)):
            if name not in known and name not in own:
                unknown = f"is no variable of this collection{_proposal(name, known)}"
                yield Fault(host, name, f"{unknown}; list a variable of your own in {EXTRA}")


def undefined(hosts: Iterable[str], hostvars: HostVariables) -> Iterator[Fault]:
    """Variables of which no topology is made, and which name an undefined variable.

    A name of the collection may get its value from the defaults of a role, which the variables of a host do not show.

    Args:
        hosts: inventory names.
        hostvars: the variable ``hostvars``.
    """
    known = table().known()
    for host in hosts:
        found = hostvars[host]
        for name in sorted(each for each in known - relevant_names() if each in found):
            try:
                found[name]
            except AnsibleError as error:
                words = _words(error)
                missing = _UNDEFINED.search(words)
                if missing and missing[1] not in known:
                    yield Fault(host, name, f"cannot be evaluated: {words}")


def unusable(hosts: Iterable[str], hostvars: HostVariables) -> Iterator[Fault]:
    """Values of variables of which no topology is made: no number, neither true nor false, or not among the choices.

    The argument specification of a role refuses them as well, but Ansible prints that refusal for each host, with
    the whole specification.

    Args:
        hosts: inventory names.
        hostvars: the variable ``hostvars``.
    """
    inputs = (each for role in table().roles.values() for each in role.variables)
    checked = [each for each in inputs if each.scope == HOST and not (each.given_by or each.secret) and _is_plain(each)]
    for host in hosts:
        found = hostvars[host]
        for variable in (each for each in checked if each.name in found):
            try:
                value = found[variable.name]
            except AnsibleError:
                continue  # another fault (``undefined``), or a default of a role gives the value
            try:
                variable.read(value)
            except Unusable as error:
                yield Fault(host, variable.name, str(error))


def _is_plain(variable: Variable) -> bool:
    return (
        bool(variable.choices) or variable.type == "bool" or (variable.type == "int" and variable.minimum is not None)
    )


def find_faults(
    nodes: Iterable[str], witnesses: Iterable[str], others: Iterable[str], hostvars: HostVariables
) -> list[Fault]:
    """Everything that keeps an inventory from being deployed.

    Args:
        nodes: hosts with a broker.
        witnesses: hosts of witnesses.
        others: hosts of which only the names of variables are checked.
        hostvars: the variable ``hostvars``.
    """
    named, places = list(nodes), list(witnesses)
    values, faults = read_values([*named, *places], hostvars)
    faults.extend(undefined([*named, *places], hostvars))
    faults.extend(unusable([*named, *places], hostvars))
    if not faults:
        faults = list(build_topology(named, values, places).faults)
    return [*unknown_names(dict.fromkeys([*named, *places, *others]), hostvars), *faults]


def merged(faults: Iterable[Fault]) -> list[str]:
    """One sentence for each fault; hosts with the same one are listed together."""
    hosts: dict[tuple[str, str], list[str]] = {}
    for fault in faults:
        hosts.setdefault((fault.variable, fault.problem), []).append(fault.host)
    return [str(Fault(", ".join(names), *rest)) for rest, names in hosts.items()]


def _proposal(name: str, known: Iterable[str]) -> str:
    bare = {each.removeprefix(PREFIX): each for each in known}
    near = difflib.get_close_matches(name.removeprefix(PREFIX), bare, 1, LIKE)
    return f"; did you mean {bare[near[0]]}?" if near else ""


def _words(error: AnsibleError) -> str:
    """The cause at the end of a chain of errors, which names the missing variable."""
    cause: BaseException = error
    while cause.__cause__ is not None:
        cause = cause.__cause__
    return " ".join(str(cause).split())
