"""Goal: the guide of a first-time operator works as it is printed.

Method: all blocks of docs/operate/first-cluster.md run in one shell, in their order; a block that names a host runs
there as the user that deploys, by ssh. Only the way to the hosts (ssh configuration) is added.
"""

from __future__ import annotations

import os
import re
import subprocess
from pathlib import Path

from understudy_lab.hosts import Lab
from understudy_lab.pair import ROOT

PAGE = ROOT / "docs" / "operate" / "first-cluster.md"
HOST_OF = {"store": "h1", "a1": "h2", "a2": "h3", "client": "h4"}
BLOCK = re.compile(r"^```bash(?: (?P<host>\w+))?\n(?P<text>.*?)^```$", re.MULTILINE | re.DOTALL)
TIMEOUT_S = 1500
# A disk of a lab host may stop completing syncs under load (tests/lab/README.md).
IN_MEMORY = """
mkdir -p /export && mount -t tmpfs -o size=300M,mode=755 tmpfs /export
saved=$(mktemp -d); cp -a /var/lib/nfs/. "$saved"
mount -t tmpfs -o size=16M,mode=755 tmpfs /var/lib/nfs && cp -a "$saved"/. /var/lib/nfs
"""


def script(page: str) -> str:
    """The blocks of the page as one shell script."""
    parts = ["set -euo pipefail"]
    for block in BLOCK.finditer(page):
        text = block["text"]
        parts.append(f"echo '+++ {(block['host'] or 'controller')}: {text.splitlines()[0][:60].replace(chr(39), '')}'")
        if block["host"]:
            host = HOST_OF[block["host"]]
            text = f'ssh -F "$LAB_SSH_CONFIG" {host} "bash -es" <<\'END_OF_BLOCK\'\n{text}END_OF_BLOCK'
        parts.append(text)
    return "\n".join(parts)


def test_the_guide_names_only_hosts_of_its_table() -> None:
    page = PAGE.read_text()
    blocks = list(BLOCK.finditer(page))
    assert len(blocks) == page.count("```bash")
    assert {block["host"] for block in blocks if block["host"]} <= set(HOST_OF)
    assert all(f"| {name} | 10.77.0.1{host[1]} |" in page for name, host in HOST_OF.items())


def test_the_guide_works_as_it_is_printed(lab: Lab, tmp_path: Path) -> None:
    lab.output("h1", IN_MEMORY)
    environment = {
        **os.environ,
        "LAB_SSH_CONFIG": str(lab.ssh_config),
        "ANSIBLE_SSH_COMMON_ARGS": f"-F {lab.ssh_config}",
        "ANSIBLE_COLLECTIONS_PATH": str(tmp_path / "collections"),
        "ANSIBLE_INJECT_FACT_VARS": "false",
        "ANSIBLE_LOCALHOST_WARNING": "false",
        "ANSIBLE_SSH_ARGS": "-o ControlMaster=auto -o ControlPersist=60s",
        "ANSIBLE_SSH_CONTROL_PATH_DIR": str(lab.directory / "control"),
    }
    transcript = ROOT / ".scratch" / "lab-results" / "first_cluster.log"
    transcript.parent.mkdir(parents=True, exist_ok=True)
    with transcript.open("w") as file:
        done = subprocess.run(
            ["bash", "-c", script(PAGE.read_text())],
            cwd=ROOT,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=file,
            stderr=subprocess.STDOUT,
            timeout=TIMEOUT_S,
            check=False,
        )
    output = transcript.read_text()
    assert done.returncode == 0, output[-4000:]
    assert "no message lost, doubled or out of order" in output, output[-4000:]
    # the page has the URL that site prints
    (url,) = re.findall(r"^URL='(.*)'$", PAGE.read_text(), re.MULTILINE)
    assert f'"clients": "{url}"' in output
