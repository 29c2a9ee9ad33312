"""Goal: the playbook render writes the files of hosts that nothing can connect to, without their secrets.

Method: the inventory of a pair with a witness, with addresses of documentation (RFC 5737) in the place of its hosts.
"""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
SECRETS = {
    "BROKER_WITNESS_SECRET": "the-secret-of-a-witness-in-a-test",
    "BROKER_CLUSTER_PASSWORD": "the-password-of-a-cluster",
    "BROKER_DRILL_PASSWORD": "the-password-of-a-drill",
}


def test_files_of_hosts_without_a_connection(tmp_path: Path) -> None:
    inventory = tmp_path / "hosts.yml"
    text = (ROOT / "inventories/quorum/hosts.yml").read_text(encoding="utf-8").replace("10.77.0.", "192.0.2.")
    inventory.write_text(text.replace("ansible_become: true", "ansible_become: true\n    broker_tls_files: []"))
    environment = {
        **os.environ,
        **SECRETS,
        "ANSIBLE_COLLECTIONS_PATH": str(ROOT / ".scratch/collections"),
        "ANSIBLE_LOCALHOST_WARNING": "false",
        "ANSIBLE_NOCOLOR": "1",
        "PATH": f"{ROOT / '.venv/bin'}:{os.environ['PATH']}",
    }
    target = tmp_path / "rendered"
    stale = target / "a1/etc/systemd/system/former.service"
    stale.parent.mkdir(parents=True)
    stale.write_text("of an earlier run")
    played = subprocess.run(
        [
            *(str(ROOT / ".venv/bin/ansible-playbook"), "--inventory", str(inventory)),
            *(str(ROOT / "playbooks/render.yml"), "--extra-vars", f"render_directory={target}"),
        ],
        env=environment,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert played.returncode == 0, played.stdout[-4000:] + played.stderr[-1000:]
    assert sorted(path.name for path in target.iterdir()) == ["a1", "a2", "witness"]
    files = {str(path.relative_to(target)): path.read_text() for path in target.rglob("*") if path.is_file()}
    assert not [name for name in files if name.endswith("former.service")]
    assert (
        "ExecStart=/opt/understudy/current/bin/understudy run" in files["a1/etc/systemd/system/understudy-a1.service"]
    )
    assert "tcp://192.0.2.12:61616" in files["a1/opt/understudy/instance/etc/broker.xml"]
    assert "0600 understudy:understudy /etc/understudy/witness-secret" in files["witness/files.txt"].splitlines()
    for name, content in files.items():
        for secret in SECRETS.values():
            assert secret not in content, name
    # every file of the list is there, and no other one
    for host in ("a1", "a2", "witness"):
        listed = [line.split(" ", 2)[2] for line in files[f"{host}/files.txt"].splitlines()[1:]]
        assert sorted([f"{host}{path}" for path in listed] + [f"{host}/files.txt"]) == sorted(
            name for name in files if name.startswith(f"{host}/")
        )
