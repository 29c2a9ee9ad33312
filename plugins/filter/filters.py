# SPDX-License-Identifier: Apache-2.0
"""Filters that bring the pure module_utils to the controller's templates."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TypeVar

from ansible.errors import AnsibleFilterError
from ansible_collections.understudy.broker.plugins.module_utils import credentials, drill, render
from ansible_collections.understudy.broker.plugins.module_utils import topology as topologies

RELEVANT = (
    *topologies.DEFAULTS,
    "broker_advertise_address",
    "broker_bind_address",
    "broker_instance_directory",
    "broker_store_directory",
    "ansible_host",
    "ansible_connection",
)


def topology(
    hosts: Iterable[str],
    hostvars: Mapping[str, Mapping[str, object]],
    here: str = "",
    given: Mapping[str, object] | None = None,
) -> dict[str, object]:
    """Nodes, pairs and faults of the hosts; see topology.yml."""
    names = list(hosts)
    # Only what a topology is made of is asked for: reading a host variable templates it.
    variables = {host: {name: hostvars[host][name] for name in RELEVANT if name in hostvars[host]} for host in names}
    built = topologies.build_topology(names, variables)
    result = built.as_dict()
    if here and given is not None:
        node = next((node for node in built.nodes if node.name == here), None)
        if node is None:
            raise AnsibleFilterError(f"{here} is not among the broker hosts {', '.join(sorted(names))}")
        result["faults"] = [*result["faults"], *map(str, topologies.find_strays(node, given))]  # type: ignore[misc]
    return result


def broker_xml(model: Mapping[str, object]) -> str:
    """The text of broker.xml; see broker_xml.yml."""
    try:
        return render.broker_xml(model)
    except (KeyError, TypeError, ValueError) as error:
        raise AnsibleFilterError(f"broker.xml cannot be rendered: {type(error).__name__}: {error}") from error


def drill_report(records: list[Mapping[str, object]], messages: int) -> dict[str, object]:
    """Rounds, summary and table of a drill; see drill_report.yml."""
    try:
        return drill.report(records, messages)
    except (KeyError, TypeError, ValueError) as error:
        raise AnsibleFilterError(f"the drill's records are incomplete: {type(error).__name__}: {error}") from error


def credential_faults(
    users: Sequence[Mapping[str, object]],
    roles: Sequence[Mapping[str, object]],
    cluster_user: str,
    cluster_password: str,
) -> list[str]:
    """Faults of users, roles and the cluster's login; see credential_faults.yml."""
    return _readable(lambda: credentials.find_faults(users, roles, cluster_user, cluster_password))


def users_file(users: Sequence[Mapping[str, object]], present: str = "") -> str:
    """The text of artemis-users.properties; see users_file.yml."""
    return _readable(lambda: credentials.users_text(users, present))


def roles_file(roles: Sequence[Mapping[str, object]]) -> str:
    """The text of artemis-roles.properties; see roles_file.yml."""
    return _readable(lambda: credentials.roles_text(roles))


Result = TypeVar("Result")


def _readable(make: Callable[[], Result]) -> Result:
    """The result, or an error of Ansible's own kind that quotes no value."""
    try:
        return make()
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise AnsibleFilterError(
            f"broker_users and broker_roles must be lists of mappings with 'name' ({type(error).__name__})"
        ) from None


class FilterModule:
    """The filters of this collection."""

    def filters(self) -> dict[str, object]:
        return {
            "topology": topology,
            "broker_xml": broker_xml,
            "drill_report": drill_report,
            "credential_faults": credential_faults,
            "users_file": users_file,
            "roles_file": roles_file,
        }
