"""Goal: the mount unit of a store has safe options by default, and names with special characters reach systemd whole.

Method: the templates are rendered with the variables of the role and nothing else.
"""

from __future__ import annotations

from pathlib import Path

import yaml
from ansible.parsing.dataloader import DataLoader
from ansible.template import Templar, trust_as_template

ROLE = Path(__file__).resolve().parents[3] / "roles" / "broker_store"


def trusted(value: object) -> object:
    """The same with every text a template, as Ansible reads it from a role."""
    if isinstance(value, str):
        return trust_as_template(value)
    if isinstance(value, list):
        return [trusted(each) for each in value]
    return {key: trusted(each) for key, each in value.items()} if isinstance(value, dict) else value


def rendered(template: str, **inputs: object) -> list[str]:
    """Lines of a unit."""
    variables: dict[str, object] = {"inventory_hostname": "east-1"}
    for name in ("defaults", "vars"):
        variables.update(yaml.safe_load((ROLE / name / "main.yml").read_text()))
    variables.update({"broker_store_mount_source": "nas:/orders", "broker_store_mount_point": "/srv/or-ders"})
    variables["__broker_store_unit"] = {"stdout": r"srv-or\x2dders.mount"}
    variables["__broker_store_retry_unit"] = r"srv-or\x2dders-retry.service"
    variables.update(inputs)
    templar = Templar(DataLoader(), {name: trusted(value) for name, value in variables.items()})
    return str(templar.template(trust_as_template((ROLE / "templates" / template).read_text()))).splitlines()


def test_an_outage_of_the_server_becomes_an_error_by_default() -> None:
    lines = rendered("store.mount.j2")
    assert "Options=vers=4.2,sync,soft,noac,lookupcache=none,timeo=50,retrans=1" in lines
    assert {"What=nas:/orders", "Where=/srv/or-ders", "Type=nfs4", "After=network-online.target"} <= set(lines)


def test_a_failed_mount_is_repeated() -> None:
    assert r"OnFailure=srv-or\x2dders-retry.service" in rendered("store.mount.j2")
    lines = rendered("store-retry.service.j2")
    assert [line for line in lines if line.endswith("' %N")]
    assert "WantedBy=multi-user.target" in lines, "it can be enabled for a device that appears late"


def test_a_cluster_file_system_needs_its_lock_manager_and_ends_a_host_that_loses_it() -> None:
    lines = rendered(
        "store.mount.j2", broker_store_mount_type="gfs2", broker_store_mount_source="/dev/disk/by-id/wwn-1"
    )
    assert {"Requires=dlm.service", "After=dlm.service", "Options=noatime,errors=panic,_netdev"} <= set(lines)
    assert not [line for line in rendered("store.mount.j2") if "dlm" in line]


def test_percent_signs_are_no_specifiers() -> None:
    assert "What=nas:/100%%" in rendered("store.mount.j2", broker_store_mount_source="nas:/100%")


def test_a_device_of_this_host_waits_for_no_network_unless_it_says_so() -> None:
    local = rendered("store.mount.j2", broker_store_mount_type="xfs", broker_store_mount_options=["noatime"])
    assert not [line for line in local if "network" in line]
    assert "After=network-online.target" in rendered("store.mount.j2", broker_store_mount_type="gfs2")
