"""Goal: a cluster with TLS grows, and changes its authority, while the nodes that run are not restarted.

Method: a pair on loopback addresses, deployed by the playbooks with the release of this checkout; a third node is
added, then all certificates are replaced by those of another authority. Messages travel before and after. At the end
the backup takes over and shows its new certificate.
"""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from conftest import HOST_PYTHON, ROOT, UNDERSTUDY

PLAYBOOKS = ROOT / "playbooks"
ADDRESSES = {"east1": "127.0.0.131", "east2": "127.0.0.132", "west": "127.0.0.133"}
MESSAGES = 40


def openssl(*arguments: str) -> None:
    done = subprocess.run(["openssl", *arguments], capture_output=True, text=True, check=False, timeout=60)
    assert done.returncode == 0, done.stderr


class Authority:
    """An authority that signs certificates for addresses."""

    def __init__(self, directory: Path, name: str) -> None:
        self._directory = directory
        self._key, self.path = directory / f"{name}.key", directory / f"{name}.pem"
        names = ("-subj", f"/CN={name}", "-addext", "basicConstraints=critical,CA:TRUE")
        key = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-keyout", str(self._key))
        openssl("req", "-x509", *key, "-days", "2", *names, "-out", str(self.path))
        self._name = name
        self._signed: dict[str, str] = {}

    @property
    def certificate(self) -> str:
        return self.path.read_text()

    def sign(self, host: str, address: str) -> str:
        """Certificate and key of a host, the same each time."""
        if host in self._signed:
            return self._signed[host]
        base = self._directory / f"{self._name}-{host}"
        key, request, extensions, made = (base.with_suffix(each) for each in (".key", ".csr", ".ext", ".crt"))
        new = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-keyout", str(key))
        openssl("req", *new, "-subj", f"/CN={host}", "-out", str(request))
        extensions.write_text(f"subjectAltName=IP:{address}\nextendedKeyUsage=serverAuth,clientAuth\n")
        issuer = ("-CA", str(self.path), "-CAkey", str(self._key), "-CAcreateserial")
        openssl(
            *("x509", "-req", "-in", str(request), *issuer, "-days", "2"),
            *("-extfile", str(extensions), "-out", str(made)),
        )
        self._signed[host] = made.read_text() + key.read_text()
        return self._signed[host]


class Cluster:
    """The inventory, and what is done with it."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.inventory = directory / "hosts.json"

    def write(self, hosts: list[str], authority: Authority) -> None:
        """The inventory with these hosts and the certificates of this authority."""
        made = {}
        for host in hosts:
            role = "backup" if host == "east2" else "primary"
            pair = {"broker_ha_policy": "shared_store", "broker_pair": "east"} if host != "west" else {}
            store = self.directory / ("store-east" if host != "west" else "store-west")
            made[host] = {
                **pair,
                "broker_ha_role": role,
                "broker_store_directory": str(store),
                "broker_advertise_address": ADDRESSES[host],
                "broker_tls_files": [
                    {"name": "broker.pem", "content": authority.sign(host, ADDRESSES[host])},
                    {"name": "ca.pem", "content": authority.certificate, "authorities": True},
                ],
            }
        common = {
            "ansible_connection": "local",
            "ansible_python_interpreter": HOST_PYTHON,
            "broker_user": "",
            "broker_python": HOST_PYTHON,
            "broker_install_build_python": str(ROOT / ".venv/bin/python"),
            "broker_root": f"{self.directory}/{{{{ inventory_hostname }}}}",
            "broker_instance_directory": "{{ broker_root }}",
            "broker_service_backend": "process",
            "broker_management_address": "{{ broker_advertise_address }}",
            "broker_cluster_name": "growing",
            "broker_cluster_password": "a-password-of-a-test",
            "broker_security_enabled": False,
            "broker_sockets": {"core": {"parameters": {"sslEnabled": True, "keyStorePath": "broker.pem"}}},
            # relative to etc of the node that reads it: every member has the connectors of all others
            "broker_connector_parameters": {"sslEnabled": True, "trustStorePath": "ca.pem"},
            "broker_addresses": [{"name": "orders", "anycast": [{"name": "orders"}]}],
            "broker_address_settings": [{"match": "#", "settings": {"redistribution-delay": 0}}],
            "broker_gate_timeout_s": 240,
        }
        self.inventory.write_text(json.dumps({"broker": {"hosts": made, "vars": common}}))

    def play(self, name: str, *options: str, fails: bool = False) -> str:
        environment = {
            **os.environ,
            "ANSIBLE_COLLECTIONS_PATH": str(ROOT / ".scratch/collections"),
            "ANSIBLE_INJECT_FACT_VARS": "false",
            "ANSIBLE_CALLBACK_RESULT_FORMAT": "yaml",
            "ANSIBLE_DISPLAY_SKIPPED_HOSTS": "false",
            "ANSIBLE_NOCOLOR": "1",
            "ANSIBLE_PIPELINING": "true",
            "PATH": f"{ROOT / '.venv/bin'}:{os.environ['PATH']}",
        }
        command = [str(ROOT / ".venv/bin/ansible-playbook"), "--inventory", str(self.inventory)]
        played = subprocess.run(
            [*command, "--skip-tags", "broker_install", str(PLAYBOOKS / f"{name}.yml"), *options],
            env=environment,
            capture_output=True,
            text=True,
            timeout=1800,
            check=False,
        )
        assert (played.returncode != 0) is fails, played.stdout[-6000:] + played.stderr[-2000:]
        return played.stdout

    def understudy(self, *arguments: str) -> str:
        done = subprocess.run([str(UNDERSTUDY), *arguments], capture_output=True, text=True, timeout=240, check=False)
        assert done.returncode == 0, f"{arguments}: {done.stdout}{done.stderr}"
        return done.stdout

    def url(self, *hosts: str, trust: Path) -> str:
        nodes = ",".join(f"tcp://{ADDRESSES[host]}:61616" for host in hosts)
        options = "sslEnabled=true&ha=true&initialConnectAttempts=-1&reconnectAttempts=-1"
        return f"({nodes})?{options}&trustStorePath={trust}"

    def exchange(self, sends_to: str, takes_from: str) -> None:
        """Messages that are sent to one URL and all received from another one."""
        self.understudy("produce", "--url", sends_to, "--address", "orders", "--count", str(MESSAGES))
        # fails with fewer
        self.understudy(
            *("consume", "--url", takes_from, "--queue", "orders", "--ack", "auto"),
            *("--count", str(MESSAGES), "--idle-timeout", "60"),
        )

    def processes(self) -> dict[str, int]:
        """Process id of each broker that runs."""
        found = {}
        for host in ADDRESSES:
            state = self.directory / host / "run/supervisor.json"
            if state.exists():
                found[host] = json.loads(state.read_text())["broker"]["pid"]
        return found


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Cluster]:
    made = Cluster(tmp_path)
    for host in ADDRESSES:
        # the release of this checkout instead of an installation for each node
        (tmp_path / host).mkdir()
        (tmp_path / host / "current").symlink_to(ROOT / ".venv")
    yield made
    made.play("uninstall", "--extra-vars", '{"broker_uninstall_purge_data": true}')


def test_a_node_is_added_and_the_authority_is_changed_without_a_restart(cluster: Cluster, tmp_path: Path) -> None:
    former, new = Authority(tmp_path, "former"), Authority(tmp_path, "new")
    cluster.write(["east1", "east2"], former)
    cluster.play("site")
    before = cluster.processes()

    cluster.write(["east1", "east2", "west"], former)
    refused = cluster.play("add_node", "--extra-vars", "add_nodes=south", fails=True)
    assert "Give the new hosts with -e add_nodes=NAME,NAME" in refused
    added = cluster.play("add_node", "--extra-vars", "add_nodes=west")
    assert "etc/broker.xml" in added
    after = cluster.processes()
    assert {host: after[host] for host in before} == before
    # redistribution: the pair and the new node know each other, in both directions
    east, west = (cluster.url(*hosts, trust=former.path) for hosts in (["east1", "east2"], ["west"]))
    cluster.exchange(east, west)
    cluster.exchange(west, east)
    cluster.play("health")

    cluster.write(["east1", "east2", "west"], new)
    refused = cluster.play("site", fails=True)
    assert "The playbook rotate_tls replaces them" in refused
    cluster.play("rotate_tls")
    assert cluster.processes() == after
    cluster.exchange(cluster.url("west", trust=new.path), cluster.url("east1", "east2", trust=new.path))
    lone = f"tcp://{ADDRESSES['west']}:61616?sslEnabled=true&trustStorePath={former.path}"
    with pytest.raises(AssertionError, match=r"(?i)certificate"):
        cluster.understudy("produce", "--url", lone, "--address", "orders", "--count", "1")
    for host in ADDRESSES:
        assert (cluster.directory / host / "etc/ca.pem").read_text() == new.certificate
    assert "changed=0" in cluster.play("rotate_tls")

    # the passive node has read its new certificate as well
    cluster.play("failover", "--extra-vars", "switch_pair=east")
    cluster.exchange(cluster.url("east2", trust=new.path), cluster.url("east1", "east2", trust=new.path))
