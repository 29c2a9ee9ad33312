"""Goal: every platform has all that roles and modules ask for, and nothing else names a package of a distribution."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest
import yaml
from ansible_collections.understudy.broker.plugins.module_utils.platforms import (
    OTHER,
    PLATFORMS,
    PROGRAMS,
    Platform,
    as_dict,
    install_advice,
    platform_of,
    this_host,
)

ROOT = Path(__file__).resolve().parents[4]
ROLES = sorted((ROOT / "roles").iterdir())
SHARED_NAMES = {"nftables", "python3", ""}
"""Names that are also those of a program."""
INSTALLERS = ("apt", "dnf", "dnf5", "yum", "zypper", "package")
DEBIAN_12 = (
    'PRETTY_NAME="Debian GNU/Linux 12 (bookworm)"\nNAME="Debian GNU/Linux"\nVERSION_ID="12"\nID=debian\n# a comment\n'
)


@pytest.mark.parametrize("platform", PLATFORMS, ids=lambda each: each.name)
def test_a_platform_has_every_key(platform: Platform) -> None:
    assert set(platform.packages) == set(PROGRAMS)
    assert {name for name, package in platform.packages.items() if not package} <= {"zookeeper"}
    assert all((platform.title, platform.ids, platform.version, platform.interpreter))
    assert tuple(map(int, platform.python_version.split("."))) >= (3, 11)
    assert platform.interpreter in ("python3", f"python{platform.python_version}")


def test_the_families_are_those_that_the_page_promises() -> None:
    assert [each.name for each in PLATFORMS] == ["debian12", "debian13", "ubuntu2204", "ubuntu2404", "el9", "suse15"]


@pytest.mark.parametrize(
    ("text", "name"),
    [
        (DEBIAN_12, "debian12"),
        ("ID=debian\nVERSION_ID='13'\n", "debian13"),
        ('ID=ubuntu\nID_LIKE=debian\nVERSION_ID="22.04"\n', "ubuntu2204"),
        ('ID=ubuntu\nID_LIKE=debian\nVERSION_ID="24.04"\n', "ubuntu2404"),
        ('ID="rocky"\nID_LIKE="rhel centos fedora"\nVERSION_ID="9.4"\n', "el9"),
        ('ID="almalinux"\nID_LIKE="rhel centos fedora"\nVERSION_ID="9.5"\n', "el9"),
        ('ID="rhel"\nID_LIKE="fedora"\nVERSION_ID="9.2"\n', "el9"),
        ('ID="ol"\nID_LIKE="rhel fedora"\nVERSION_ID="9.4"\n', "el9"),
        ('ID="sles"\nID_LIKE="suse"\nVERSION_ID="15.6"\n', "suse15"),
        ('ID="opensuse-leap"\nID_LIKE="suse opensuse"\nVERSION_ID="15.6"\n', "suse15"),
        ('ID="rhel"\nVERSION_ID="90"\n', "other"),
        ("ID=debian\n", "other"),
        ('ID=gentoo\nVERSION_ID="2.17"\n', "other"),
        ('ID="unbalanced\nVERSION_ID=12\n', "other"),
        ("", "other"),
    ],
)
def test_a_host_has_the_row_of_its_distribution_and_version(text: str, name: str) -> None:
    assert platform_of(text).name == name


def test_a_host_without_the_file_has_no_row(tmp_path: Path) -> None:
    assert this_host(tmp_path / "none") == OTHER


def test_the_advice_names_the_package_or_says_that_none_is_known() -> None:
    assert install_advice(platform_of(DEBIAN_12), "nfs4") == "install the package nfs-common"
    assert install_advice(OTHER, "nfs4") == "install the package of this distribution that has it (nfs4)"
    assert set(as_dict(OTHER)["install"]) == set(PROGRAMS)  # type: ignore[call-overload]


def test_only_the_table_names_packages() -> None:
    names = {name for platform in PLATFORMS for name in platform.packages.values()} - SHARED_NAMES
    word = re.compile(rf"(?<![\w.-])(?:{'|'.join(map(re.escape, sorted(names)))})(?![\w-])")
    places = [path for top in ("roles", "playbooks", "plugins") for path in (ROOT / top).rglob("*") if path.is_file()]
    found = [
        f"{path.relative_to(ROOT)}: {match[0]}"
        for path in places
        if path.suffix in (".yml", ".py", ".j2") and path.name != "platforms.py"
        for match in word.finditer(path.read_text(encoding="utf-8"))
        # An interpreter of one version, in an example or a default of the controller.
        if not match[0].startswith("python3")
    ]
    assert found == []


def test_tasks_that_install_packages_take_their_names_from_variables() -> None:
    pattern = re.compile(rf"^\s*ansible\.builtin\.({'|'.join(INSTALLERS)}):", re.MULTILINE)
    files = [*(ROOT / "roles").rglob("tasks/*.yml"), *(ROOT / "playbooks").rglob("*.yml")]
    installing = [
        (path.relative_to(ROOT).as_posix(), match[1]) for path in files for match in pattern.finditer(path.read_text())
    ]
    assert installing == [("roles/broker_quorum/tasks/zookeeper.yml", "apt")]
    (task,) = [task for task in yaml.safe_load((ROOT / installing[0][0]).read_text()) if "ansible.builtin.apt" in task]
    assert task["ansible.builtin.apt"]["name"] == "{{ __broker_quorum_packages }}"
    # apt is the installer of every platform that has such packages.
    assert {each.name for each in PLATFORMS if each.packages["zookeeper"]} <= {
        each.name for each in PLATFORMS if {"debian", "ubuntu"} & set(each.ids)
    }


def test_roles_name_the_releases_of_debian_that_were_run() -> None:
    run = {"debian12": "bookworm", "debian13": "trixie"}
    wanted = [{"name": "Debian", "versions": [run[each.name] for each in PLATFORMS if each.run]}]
    for role in ROLES:
        assert yaml.safe_load((role / "meta" / "main.yml").read_text())["galaxy_info"]["platforms"] == wanted, role.name


def test_the_readme_names_each_platform_with_whether_it_was_run() -> None:
    text = " ".join((ROOT / "README.md").read_text().split())
    run, others = text.partition("Platforms that were run: ")[2].partition(". ")[0], text.partition("Not run: ")[2]
    for platform in PLATFORMS:
        assert platform.title in (run if platform.run else others.partition(". ")[0]), platform.title


def test_the_page_is_that_of_the_table() -> None:
    script = ROOT / ".ci" / "platforms_page.py"
    done = subprocess.run([sys.executable, str(script)], capture_output=True, text=True, check=True)
    assert (ROOT / "docs" / "operate" / "platforms.md").read_text() == done.stdout
