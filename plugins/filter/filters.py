# SPDX-License-Identifier: Apache-2.0
"""Filters: what templates on the controller use of the pure modules."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TypeVar

from ansible.errors import AnsibleFilterError
from ansible_collections.understudy.broker.plugins.module_utils import (
    credentials,
    drill,
    files,
    health,
    packet_filter,
    pairs,
    pem,
    roll_guard,
    store_copies,
    units,
)
from ansible_collections.understudy.broker.plugins.module_utils.process import ProcessTable
from ansible_collections.understudy.broker.plugins.module_utils.rollout_hold import Holder
from ansible_collections.understudy.broker.plugins.plugin_utils import (
    clocks,
    firewall,
    grants,
    inventory,
    pipeline_jobs,
    render,
    rendering,
    sockets,
)
from ansible_collections.understudy.broker.plugins.plugin_utils import topology as topologies


def topology(
    hosts: Iterable[str], hostvars: Mapping[str, Mapping[str, object]], witnesses: Iterable[str] = ()
) -> dict[str, object]:
    """Nodes, pairs, clusters and faults of the hosts; see topology.yml."""
    names, places = list(hosts), list(witnesses)
    variables, unread = inventory.read_values([*names, *places], hostvars)
    if unread:
        raise AnsibleFilterError("\n".join(["variables that cannot be evaluated", *inventory.merged(unread)]))
    built = topologies.build_topology(names, variables, places)
    nodes: dict[str, dict[str, object]]
    result = built.as_dict()
    if not built.faults:
        nodes = result["nodes"]  # type: ignore[assignment]
        for node in built.nodes:
            nodes[node.name]["firewall_ports"] = firewall.ports_of(node, built.cluster_of(node))
    return result


def broker_xml(inputs: Mapping[str, object]) -> dict[str, object]:
    """The text of broker.xml, its secrets and the origin of each line; see broker_xml.yml."""
    try:
        return render.broker_xml(inputs).as_dict()
    except (KeyError, TypeError, ValueError) as error:
        problem = str(error) if isinstance(error, render.Misplaced) else f"{type(error).__name__}: {error}"
        raise AnsibleFilterError(f"broker.xml cannot be rendered: {problem}") from error


def broker_sockets(values: Mapping[str, object], name: str, prefix: str) -> dict[str, object]:
    """Acceptors, connectors and management socket of one node; see broker_sockets.yml."""
    try:
        opened = sockets.open_sockets(name, values, prefix)
        core = sockets.core_elements(opened)[0]
    except (KeyError, TypeError, ValueError) as error:
        raise AnsibleFilterError(f"{prefix}*: {type(error).__name__}: {error}") from error
    listening = [{"name": each.name, "address": each.address, "port": each.port} for each in opened.acceptors]
    management = {"name": "management", "address": opened.management_address, "port": opened.management_port}
    return {
        "core": core,
        "listening": [*listening, management],
        "management_url": opened.management_url,
        "faults": [f"{prefix}{variable}: {problem}" for variable, problem in opened.faults],
    }


def management_options(address: str, port: int, token_file: str) -> list[str]:
    """Options of understudy run for the management interface; see management_options.yml."""
    return sockets.management_options(str(address), int(port), str(token_file))


def client_url(url: str, protocol: str, trusted: str = "") -> str:
    """URL of the same sockets over a protocol; see client_url.yml."""
    try:
        return sockets.client_url(str(url), str(protocol), str(trusted))
    except ValueError as error:
        raise AnsibleFilterError(f"client_url: {error}") from error


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
    cluster_password: str | None,
) -> list[str]:
    """Faults of users, roles and the cluster's login; see credential_faults.yml."""
    return _readable(lambda: credentials.find_faults(users, roles, cluster_user, cluster_password))


def users_file(users: Sequence[Mapping[str, object]], present: str = "") -> str:
    """The text of artemis-users.properties; see users_file.yml."""
    return _readable(lambda: credentials.users_text(users, present))


def roles_file(roles: Sequence[Mapping[str, object]]) -> str:
    """The text of artemis-roles.properties; see roles_file.yml."""
    return _readable(lambda: credentials.roles_text(roles))


def tls_faults(files: Sequence[Mapping[str, object]]) -> list[str]:
    """Faults of files of certificates and keys; see tls_faults.yml."""
    return pem.find_faults(files)


def pem_union(present: str, wanted: str) -> str:
    """Certificates of two PEM files; see pem_union.yml."""
    try:
        return pem.union(present, wanted)
    except ValueError as error:
        raise AnsibleFilterError(f"the certificates cannot be joined: {error}") from error


def certificate_fingerprints(content: str) -> list[str]:
    """SHA-256 of the certificates of a PEM file; see certificate_fingerprints.yml."""
    try:
        return [pem.fingerprint(block) for block in pem.certificates(content)]
    except ValueError as error:
        raise AnsibleFilterError(f"a certificate cannot be read: {error}") from error


def with_grants(
    settings: Sequence[Mapping[str, object]], role: str, granted: Sequence[Mapping[str, object]]
) -> list[dict[str, object]]:
    """Security settings with permissions of one more role; see with_grants.yml."""
    try:
        return grants.with_grants(settings, role, granted)
    except grants.Ungranted as error:
        raise AnsibleFilterError(f"broker_spark_permissions: {error}") from error
    except (AttributeError, KeyError, TypeError) as error:
        raise AnsibleFilterError(
            "broker_security_settings and broker_spark_permissions must be lists of mappings with 'match' and "
            f"'permissions' ({type(error).__name__}: {error})"
        ) from error


def pipeline_definitions(
    jobs: Sequence[Mapping[str, object]], settings: Mapping[str, object]
) -> list[dict[str, object]]:
    """Definitions of the jobs of a pipeline host; see pipeline_definitions.yml."""
    try:
        return pipeline_jobs.definitions(jobs, settings)
    except pipeline_jobs.Unusable as error:
        raise AnsibleFilterError(str(error)) from error


def mount_unit_name(path: str) -> str:
    """Name of the unit that mounts a path; see mount_unit_name.yml."""
    try:
        return units.mount_unit_name(str(path))
    except ValueError as error:
        raise AnsibleFilterError(f"mount_unit_name: {error}") from error


def in_place(wanted: Sequence[Mapping[str, object]], found: Mapping[str, Mapping[str, object]]) -> bool:
    """Whether files and directories are as wanted; see in_place.yml."""
    try:
        return files.in_place(wanted, found)
    except (KeyError, TypeError, ValueError) as error:
        raise AnsibleFilterError(f"in_place: {type(error).__name__}: {error}") from error


def units_in_place(wanted: Sequence[Mapping[str, object]], node: Mapping[str, Mapping[str, object]]) -> bool:
    """Whether nothing is to be done for units; see units_in_place.yml."""
    try:
        return units.in_place(wanted, node.get("files", {}), node.get("units", {}))  # type: ignore[arg-type]
    except (KeyError, TypeError, ValueError) as error:
        raise AnsibleFilterError(f"units_in_place: {type(error).__name__}: {error}") from error


def clock_differences(
    found: Mapping[str, Mapping[str, object]], pairs: Mapping[str, Sequence[str]]
) -> dict[str, list[str]]:
    """Sentences about clocks of pairs that differ; see clock_differences.yml."""
    try:
        return clocks.differences(found, pairs)
    except (KeyError, TypeError, ValueError) as error:
        raise AnsibleFilterError(f"clock_differences: {type(error).__name__}: {error}") from error


def roll_verdict(results: Mapping[str, Mapping[str, object]], inventory: Iterable[str]) -> dict[str, object]:
    """Rolls that must not be crossed; see roll_verdict.yml."""
    table = ProcessTable()
    try:
        found = [roll_guard.RollState.from_result(name, result) for name, result in results.items()]
        states = [state for state in found if state is not None]
        complete = {state.name for state in states} >= set(inventory)
        return roll_guard.judge(states, Holder.present(table, os.getpid()), table, complete=complete).as_dict()
    except (AttributeError, TypeError, ValueError) as error:
        raise AnsibleFilterError(f"roll_verdict: {error}") from error


def health_report(
    results: Mapping[str, Mapping[str, object]], topology: Mapping[str, object], rolls: Mapping[str, object]
) -> dict[str, object]:
    """What is known of every node and pair, and what is to be done; see health_report.yml."""
    try:
        return health.report(results, topology, rolls).as_dict()
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise AnsibleFilterError(f"health_report: {type(error).__name__}: {error}") from error


def release_drift(results: Mapping[str, Mapping[str, object]]) -> list[str]:
    """Releases that differ between nodes, or are in place and not run; see release_drift.yml."""
    return health.drift(results)


def store_sources(nodes: Sequence[Mapping[str, object]], pairs: Sequence[str] = ()) -> list[str]:
    """Nodes whose stores are copied; see store_sources.yml."""
    try:
        return store_copies.sources([store_copies.Holder.of(node) for node in nodes], pairs)
    except store_copies.Refused as error:
        raise AnsibleFilterError(str(error)) from error


def newer_stores(others: Mapping[str, Mapping[str, object]], copy: Mapping[str, object]) -> list[str]:
    """Stores that are newer than a copy; see newer_stores.yml."""
    try:
        return store_copies.newer_than(copy, others)
    except (KeyError, TypeError, ValueError) as error:
        raise AnsibleFilterError(f"newer_stores: {type(error).__name__}: {error}") from error


def stores_of_partners(answers: Mapping[str, Mapping[str, object]]) -> dict[str, list[str]]:
    """Partners that have a store of their pair, and those of which it is not known; see stores_of_partners.yml."""
    try:
        begun, unknown = pairs.stores_of_partners(answers)
    except (AttributeError, TypeError, ValueError) as error:
        raise AnsibleFilterError(f"stores_of_partners: {type(error).__name__}: {error}") from error
    return {"begun": begun, "unknown": unknown}


def rendered_files(files: Sequence[Mapping[str, object]], secrets: bool = False) -> list[dict[str, str]]:
    """Files of a host below its directory on the controller; see rendered_files.yml."""
    try:
        found = rendering.rendered(files, secrets=bool(secrets))
    except (KeyError, TypeError, ValueError) as error:
        raise AnsibleFilterError(f"rendered_files: {type(error).__name__}: {error}") from error
    return [{"path": each.path, "directory": each.directory, "content": each.content} for each in found]


def firewall_rules(ports: Sequence[Mapping[str, object]], name: str) -> str:
    """The file of nftables that the module packet_filter loads; see firewall_rules.yml."""
    try:
        admitted = {int(each["port"]): list(each["sources"]) for each in ports}  # type: ignore[call-overload]
        return packet_filter.ruleset(packet_filter.table_name(name), packet_filter.wanted_rules(admitted))
    except (KeyError, TypeError, ValueError) as error:
        raise AnsibleFilterError(f"firewall_rules: {error}") from error


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
            "broker_sockets": broker_sockets,
            "management_options": management_options,
            "client_url": client_url,
            "drill_report": drill_report,
            "credential_faults": credential_faults,
            "users_file": users_file,
            "roles_file": roles_file,
            "tls_faults": tls_faults,
            "pem_union": pem_union,
            "certificate_fingerprints": certificate_fingerprints,
            "with_grants": with_grants,
            "pipeline_definitions": pipeline_definitions,
            "mount_unit_name": mount_unit_name,
            "in_place": in_place,
            "roll_verdict": roll_verdict,
            "health_report": health_report,
            "release_drift": release_drift,
            "units_in_place": units_in_place,
            "clock_differences": clock_differences,
            "store_sources": store_sources,
            "newer_stores": newer_stores,
            "stores_of_partners": stores_of_partners,
            "rendered_files": rendered_files,
            "firewall_rules": firewall_rules,
        }
