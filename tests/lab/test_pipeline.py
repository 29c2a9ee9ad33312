"""Goal: on a host with systemd a job of the data pipeline runs when its timer says, reads the store of a running
broker, and can write nothing of it.

Method: one host has a broker and the pipeline. Java is taken from a package of Debian, because a host does not reach
an archive. The kernel of the host decides what the user of the jobs may do; the job's report shows that it has read
the messages.
"""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from understudy_lab import image as images
from understudy_lab.hosts import Lab
from understudy_lab.pair import PASSWORDS, UNDERSTUDY, await_that, play, record

HOSTS = 1
MEMORY_MIB = 2560
NODE = "h1"
INVENTORY = "tests/lab/inventories/pipeline.yml"
TABLE = "pipeline"
MESSAGES = 500
STORE = "/opt/understudy/instance/data"
ROOT = "/opt/understudy-pipeline"
REPORTS = "/var/lib/understudy-pipeline/reports/flow"
UNIT = "understudy-pipeline-flow"
INSTALL_TIMEOUT_S = 3000.0
JOB_TIMEOUT_S = 900.0
JAVA = {"12": "17", "13": "21"}
"""Version of Java of each release of Debian."""
AS_USER = "setpriv --reuid understudy-pipeline --regid understudy-pipeline --groups understudy-readers --"


def java_of(lab: Lab) -> str:
    """Name of the hosts' package with Java."""
    return f"openjdk-{JAVA[lab.image.release]}-jre-headless"


def with_java(lab: Lab) -> tuple[str, ...]:
    """Options of ansible-playbook: which Java the inventory names."""
    return ("--extra-vars", f"java_version={JAVA[lab.image.release]}")


@pytest.fixture(scope="module")
def java_package(lab: Lab) -> Path:
    """Debian's package with Java, downloaded once for an image."""
    return images.package(lab.image, java_of(lab))


def played(lab: Lab, *playbooks: str, options: tuple[str, ...] = ()) -> str:
    """Output of playbooks that must succeed."""
    done = play(lab, INVENTORY, *playbooks, options=(*with_java(lab), *options), timeout_s=INSTALL_TIMEOUT_S)
    assert done.code == 0, done.output[-3000:]
    record(TABLE, {"play": " ".join((*playbooks, *options)), "seconds": round(done.seconds, 1)})
    return done.output


@pytest.fixture(scope="module")
def host(lab: Lab, java_package: Path) -> Lab:
    """The host with a broker that has messages, and with the pipeline."""
    played(lab, "playbooks/site.yml")
    lab.output(
        NODE,
        f"""
        umask 077; echo {PASSWORDS["BROKER_DRILL_PASSWORD"]} >/root/password
        {UNDERSTUDY} produce --url tcp://10.77.0.11:61616 --user drill --password-file /root/password \\
            --queue drill --count {MESSAGES}
        """,
    )
    refused = play(lab, INVENTORY, "playbooks/pipeline.yml", options=with_java(lab))
    assert refused.code != 0
    assert f"{java_of(lab)}, or set broker_pipeline_java_home" in " ".join(refused.output.split())
    assert lab.execute(NODE, f"ls {ROOT}").code != 0, "nothing is made before the refusal"
    played(lab, "tests/lab/playbooks/java.yml", options=("--extra-vars", f"java_package={java_package}"))
    played(lab, "playbooks/pipeline.yml")
    return lab


def latest(lab: Lab) -> dict[str, object]:
    """The newest report of the job; empty if there is none."""
    done = lab.execute(NODE, f"cat {REPORTS}/latest.json")
    found = json.loads(done.output) if done.code == 0 else {}
    assert isinstance(found, dict)
    return found


def test_the_timer_runs_the_job_which_reads_the_messages_of_the_running_broker(host: Lab) -> None:
    await_that(lambda: bool(latest(host)), "the timer has run the job", JOB_TIMEOUT_S)
    report = latest(host)
    assert report["outcome"] == "done", report
    result = report["result"]
    assert isinstance(result, dict)
    (drill,) = (each for each in result["addresses"] if each["address"] == "drill")
    assert drill["messages"] == MESSAGES
    assert str(report["release"]).endswith("-spark")
    record(TABLE, {"job": "flow by its timer", "seconds": report["seconds"]})
    assert host.output(NODE, f"systemctl show -P Result {UNIT}").strip() == "success"
    owners = set(host.output(NODE, f"stat -c '%U %a' {REPORTS}/*.json {REPORTS}/*.html").split("\n")) - {""}
    assert owners <= {"understudy-pipeline 600", "understudy-pipeline 777"}, "reports, and the link to the newest one"


def test_the_user_reads_the_store_and_can_write_nothing_of_it(host: Lab) -> None:
    assert host.output(NODE, "id -nG understudy-pipeline").split() == ["understudy-pipeline"]
    files = host.output(NODE, f"find {STORE} -type f").split()
    assert any("segment-" in path for path in files)
    for path in files:
        assert host.execute(NODE, f"{AS_USER} head -c 1 {path} >/dev/null").code == 0, path
        assert host.execute(NODE, f"{AS_USER} test -w {path}").code != 0, path
    assert host.execute(NODE, f"{AS_USER} touch {STORE}/journal/new").code != 0
    # the group of readers is no group of the broker's configuration
    assert host.execute(NODE, f"{AS_USER} cat /opt/understudy/instance/etc/broker.xml").code != 0
    assert host.execute(NODE, f"setpriv --reuid 65534 --regid 65534 --clear-groups -- ls {STORE}").code != 0


def test_a_service_sees_the_store_read_only_even_as_root(host: Lab) -> None:
    """The settings of the unit are tried with commands of root, which no mode stops."""
    wanted = ("ProtectSystem", "ReadOnlyPaths", "ReadWritePaths", "InaccessiblePaths", "PrivateTmp")
    lines = host.output(NODE, f"grep -E '^({'|'.join(wanted)})=' /etc/systemd/system/{UNIT}.service").splitlines()
    properties = " ".join(f"-p '{line.replace(chr(34), '')}'" for line in lines)
    service = f"systemd-run --quiet --wait --pipe {properties}"
    assert host.execute(NODE, f"{service} touch {STORE}/journal/new").code != 0
    assert host.execute(NODE, f"{service} touch /etc/new").code != 0
    assert host.execute(NODE, f"{service} cat /opt/understudy/instance/etc/broker.xml").code != 0
    assert host.execute(NODE, f"{service} touch /var/lib/understudy-pipeline/new").code == 0
    assert host.execute(NODE, f"ls {STORE}/journal/new").code != 0


def test_the_playbook_runs_a_job_under_its_unit_and_shows_its_report(host: Lab) -> None:
    output = played(
        host, "playbooks/pipeline.yml", options=("--extra-vars", "pipeline_run=flow", "--tags", "pipeline_run")
    )
    assert "outcome: done, exit code 0" in output or '"outcome": "done, exit code 0' in output, output[-2000:]


def test_a_second_deployment_changes_nothing(host: Lab) -> None:
    assert "changed=0" in played(host, "playbooks/pipeline.yml")


def test_it_is_removed_with_its_units(host: Lab) -> None:
    played(host, "playbooks/pipeline.yml", options=("--extra-vars", "broker_pipeline_state=absent"))
    assert host.execute(NODE, f"ls {ROOT}").code != 0
    # exits with 1 where no unit has such a name
    assert host.execute(NODE, "systemctl list-unit-files --no-legend 'understudy-pipeline-*'").output.strip() == ""
    assert latest(host), "reports stay"
