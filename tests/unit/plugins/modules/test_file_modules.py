"""Goal: the modules that write files change what they say, once, nothing in check mode, and show no secret."""

from __future__ import annotations

import contextlib
import grp
import json
import os
import signal
import socket
import sys
import tarfile
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from ansible_collections.understudy.broker.plugins.module_utils import releases as releases_utils
from ansible_collections.understudy.broker.plugins.module_utils.platforms import PLATFORMS
from ansible_collections.understudy.broker.plugins.modules import (
    configuration,
    ledger_info,
    node_info,
    release,
    sockets_info,
    store,
    store_info,
    store_probe,
    wheelhouse,
)

SECRET = "s3cret<&>value"
ESCAPED = "s3cret&lt;&amp;&gt;value"


def written(path: Path) -> dict[str, str]:
    """Everything below a directory by name, for comparing before and after."""
    return {
        str(entry.relative_to(path)): entry.read_text() if entry.is_file() else "/" for entry in sorted(path.rglob("*"))
    }


class TestConfiguration:
    """Module configuration."""

    def arguments(self, path: Path, **changes: object) -> dict[str, object]:
        content = f"<core><cluster-password>{ESCAPED}</cluster-password><name>a</name></core>\n"
        return {"path": str(path), "content": content, "secrets": [SECRET], "mode": "0600", **changes}

    def test_it_lands_once(self, tmp_path: Path, run_module: Any) -> None:
        path = tmp_path / "broker.xml"
        preview = run_module(configuration, check_mode=True, **self.arguments(path))
        assert preview["changed"]
        assert written(tmp_path) == {}
        assert run_module(configuration, **self.arguments(path))["changed"]
        assert path.stat().st_mode & 0o777 == 0o600
        assert list(tmp_path.iterdir()) == [path]
        again = run_module(configuration, **self.arguments(path))
        assert not again["changed"]
        assert not again["pending"]

    def test_no_secret_is_shown_neither_the_new_nor_the_former(self, tmp_path: Path, run_module: Any) -> None:
        path = tmp_path / "broker.xml"
        path.write_text("<core><cluster-password>former</cluster-password><name>b</name></core>\n")
        result = run_module(configuration, **self.arguments(path))
        shown = json.dumps(result)
        for secret in (SECRET, ESCAPED, "former"):
            assert secret not in shown
        assert "<name>b</name>" in result["diff"]["before"]
        assert "<name>a</name>" in result["diff"]["after"]

    def test_a_refused_file_does_not_land_and_the_refusal_keeps_the_secret(
        self, tmp_path: Path, run_module: Any
    ) -> None:
        path = tmp_path / "broker.xml"
        path.write_text("good\n")
        command = [sys.executable, "-c", "import sys; print(sys.argv[1], open(sys.argv[1]).read()); sys.exit(2)", "%s"]
        result = run_module(configuration, **self.arguments(path, check=command))
        assert result["failed"]
        assert f"{path} is refused" in result["msg"]
        assert SECRET not in json.dumps(result)
        assert ESCAPED not in json.dumps(result)
        assert written(tmp_path) == {"broker.xml": "good\n"}

    def test_a_running_broker_keeps_its_file(self, tmp_path: Path, run_module: Any) -> None:
        path = tmp_path / "broker.xml"
        path.write_text("old\n")
        arguments = self.arguments(path, apply=False, mode="0600")
        result = run_module(configuration, **arguments)
        assert result["pending"]
        assert result["changed"]
        staged = tmp_path / "broker.xml.staged"
        assert path.read_text() == "old\n"
        assert staged.stat().st_mode & 0o777 == 0o600
        again = run_module(configuration, **arguments)
        assert again["pending"]
        assert not again["changed"]

    def test_a_staged_file_that_is_in_place_or_not_wanted_any_more_is_removed(
        self, tmp_path: Path, run_module: Any
    ) -> None:
        path, staged = tmp_path / "broker.xml", tmp_path / "broker.xml.staged"
        path.write_text("old\n")
        run_module(configuration, **self.arguments(path, apply=False, mode="0600"))
        content = staged.read_text()
        path.write_text(content)
        result = run_module(configuration, **self.arguments(path, apply=False, mode="0600"))
        assert (result["pending"], result["changed"]) == (False, True)
        assert written(tmp_path) == {"broker.xml": content}
        staged.write_text("other\n")
        path.write_text("old\n")
        assert run_module(configuration, **self.arguments(path, mode="0600"))["changed"]
        assert written(tmp_path) == {"broker.xml": content}

    def test_the_check_finds_the_files_beside_and_none_of_them_lands(self, tmp_path: Path, run_module: Any) -> None:
        path = tmp_path / "broker.xml"
        text = (
            "import pathlib, sys; found = pathlib.Path(sys.argv[1]).with_name('users'); print(found, found.read_text())"
        )
        command = [sys.executable, "-c", text + "; sys.exit(found.stat().st_mode & 0o077)", "%s"]
        arguments = self.arguments(path, check=command, beside={"users": "app = hash-of-app"})
        result = run_module(configuration, **arguments)
        assert result["changed"]
        assert list(tmp_path.iterdir()) == [path]
        assert result["warnings_of_check"][0].startswith(f"{tmp_path}/users ")
        assert "hash-of-app" not in json.dumps(result)

    def test_files_that_are_there_are_judged_where_no_content_is_given(self, tmp_path: Path, run_module: Any) -> None:
        (tmp_path / "users").write_text("present\n")
        text = "import pathlib, sys; print(len(pathlib.Path(sys.argv[1]).with_name('users').read_text()))"
        arguments = self.arguments(tmp_path / "broker.xml", check=[sys.executable, "-c", text, "%s"])
        names = ["users", "missing"]
        result = run_module(configuration, check_mode=True, **arguments, beside_present=names)
        assert result["warnings_of_check"] == ["8"]
        result = run_module(configuration, check_mode=True, **arguments, beside_present=names, beside={"users": "new"})
        assert result["warnings_of_check"] == ["3"]

    def test_files_in_a_directory_are_judged_as_well(self, tmp_path: Path, run_module: Any) -> None:
        (tmp_path / "more").mkdir()
        (tmp_path / "more/users").write_text("present\n")
        text = "import pathlib, sys; print((pathlib.Path(sys.argv[1]).parent / 'more/users').read_text())"
        arguments = self.arguments(tmp_path / "broker.xml", check=[sys.executable, "-c", text, "%s"])
        result = run_module(configuration, **arguments, beside_present=["more/users"])
        assert result["warnings_of_check"] == ["present"]
        assert sorted(each.name for each in tmp_path.iterdir()) == ["broker.xml", "more"]

    def test_a_refusal_names_the_input_of_the_line(self, tmp_path: Path, run_module: Any) -> None:
        path = tmp_path / "broker.xml"
        text = "import sys; print(f'{sys.argv[1]}:12 core/x: no; {sys.argv[1]}:1'); sys.exit(2)"
        arguments = self.arguments(path, check=[sys.executable, "-c", text, "%s"], origins={"12": "broker_x[3].y"})
        message = run_module(configuration, **arguments)["msg"]
        assert f"{path}:12 (broker_x[3].y) core/x: no; {path}:1" in message

    def test_what_a_content_check_prints_is_passed_on(self, tmp_path: Path, run_module: Any) -> None:
        command = [sys.executable, "-c", "print('warning: x')", "%s"]
        result = run_module(configuration, **self.arguments(tmp_path / "broker.xml", check=command))
        assert result["warnings_of_check"] == ["warning: x"]

    def test_check_mode_before_the_first_installation(self, tmp_path: Path, run_module: Any) -> None:
        path = tmp_path / "missing/broker.xml"
        result = run_module(configuration, check_mode=True, **self.arguments(path, check=["/no/such/understudy", "%s"]))
        assert result["changed"]

    def further(self, path: Path, **changes: object) -> dict[str, object]:
        return {"path": str(path), "content": "t0ken-that-is-new\n", "mode": "0600", **changes}

    def test_further_files_land_in_the_same_step_each_with_its_mode(self, tmp_path: Path, run_module: Any) -> None:
        path, other = tmp_path / "etc/broker.xml", tmp_path / "etc/other"
        text = "import pathlib, sys; sys.exit(not pathlib.Path(sys.argv[1]).exists())"
        arguments = self.arguments(
            path, check=[sys.executable, "-c", text, str(other)], parent_mode="0750", also=[self.further(other)]
        )
        preview = run_module(configuration, check_mode=True, **self.arguments(path, also=[self.further(other)]))
        assert preview["changed"]
        assert written(tmp_path) == {}
        first = run_module(configuration, **{**arguments, "mode": "0640"})
        assert first["changed"]
        assert [each["after_header"] for each in first["diff"]] == [str(other), str(path)]
        assert (path.stat().st_mode & 0o777, other.stat().st_mode & 0o777) == (0o640, 0o600)
        assert not run_module(configuration, **{**arguments, "mode": "0640"})["changed"]
        other.chmod(0o644)
        assert run_module(configuration, **{**arguments, "mode": "0640"})["changed"]
        assert other.stat().st_mode & 0o777 == 0o600

    def test_a_refused_file_names_itself_beside_further_ones(self, tmp_path: Path, run_module: Any) -> None:
        path = tmp_path / "broker.xml"
        refusal = [sys.executable, "-c", "import sys; sys.exit(2)", "%s"]
        arguments = self.arguments(path, check=refusal, also=[self.further(tmp_path / "other")])
        assert f"{path} is refused" in run_module(configuration, **arguments)["msg"]
        assert not path.exists()

    def test_a_running_broker_keeps_further_files(self, tmp_path: Path, run_module: Any) -> None:
        path, other = tmp_path / "broker.xml", tmp_path / "other"
        other.write_text("old\n")
        run_module(configuration, **self.arguments(path))
        result = run_module(configuration, **self.arguments(path, apply=False, also=[self.further(other)]))
        assert (result["pending"], result["pending_files"]) == (True, [str(other)])
        assert other.read_text() == "old\n"
        assert (tmp_path / "other.staged").stat().st_mode & 0o777 == 0o600

    def test_a_file_that_is_kept_is_made_once(self, tmp_path: Path, run_module: Any) -> None:
        path, token = tmp_path / "broker.xml", tmp_path / "token"
        first = self.arguments(path, also=[self.further(token, keep=True, secret=True)])
        assert run_module(configuration, **first)["changed"]
        second = self.arguments(path, also=[self.further(token, content="another\n", keep=True, secret=True)])
        again = run_module(configuration, **second)
        assert not again["changed"]
        assert token.read_text() == "t0ken-that-is-new\n"

    def test_nothing_is_shown_of_a_secret_file_neither_of_the_former_nor_of_the_new(
        self, tmp_path: Path, run_module: Any
    ) -> None:
        path, token = tmp_path / "broker.xml", tmp_path / "token"
        token.write_text("t0ken-that-was\n")
        result = run_module(configuration, **self.arguments(path, also=[self.further(token, secret=True)]))
        assert (result["diff"][0]["before"], result["diff"][0]["after"]) == ("a secret\n", "a new secret\n")
        assert "t0ken" not in json.dumps(result)


class TestStore:
    """Module store."""

    def arguments(self, tmp_path: Path, **changes: object) -> dict[str, object]:
        instance = tmp_path / "instance"
        (instance / "etc").mkdir(parents=True, exist_ok=True)
        path = str(tmp_path / "store")
        return {"path": path, "instance": str(instance), "cluster": "c", "pair": "p", "mode": "0750", **changes}

    def test_it_is_made_once_and_recognised_by_the_partner(self, tmp_path: Path, run_module: Any) -> None:
        first = run_module(store, **self.arguments(tmp_path))
        assert first["changed"]
        assert sorted(first["directories"]) == ["bindings", "journal", "large-messages", "node-manager-lock", "paging"]
        for directory in first["directories"].values():
            assert Path(directory).stat().st_mode & 0o777 == 0o750
        assert not run_module(store, **self.arguments(tmp_path))["changed"]
        (tmp_path / "other/etc").mkdir(parents=True)
        partner = run_module(store, **self.arguments(tmp_path, instance=str(tmp_path / "other")))
        assert partner["store_id"] == first["store_id"]
        assert not run_module(store, **self.arguments(tmp_path, instance=str(tmp_path / "other")))["changed"]

    def test_check_mode_makes_nothing(self, tmp_path: Path, run_module: Any) -> None:
        arguments = self.arguments(tmp_path)
        before = written(tmp_path)
        result = run_module(store, check_mode=True, **arguments)
        assert result["changed"]
        assert result["store_id"] == ""
        assert written(tmp_path) == before

    def test_a_mount_point_that_is_missing_is_not_made(self, tmp_path: Path, run_module: Any) -> None:
        result = run_module(store, **self.arguments(tmp_path, create=False))
        assert result["failed"]
        assert "does not exist; mount the store" in result["msg"]
        assert not (tmp_path / "store").exists()

    def test_the_note_can_be_read_by_the_broker_whatever_the_umask(self, tmp_path: Path, run_module: Any) -> None:
        before = os.umask(0o077)
        try:
            run_module(store, **self.arguments(tmp_path))
        finally:
            os.umask(before)
        assert (tmp_path / "instance/etc/store-seen.json").stat().st_mode & 0o777 == 0o640

    def test_nothing_is_made_where_another_host_has_the_path_mounted(self, tmp_path: Path, run_module: Any) -> None:
        deeper = {"point": str(tmp_path / "store" / "mounted" / "deep"), "kind": "nfs4", "source": "s:/x"}
        arguments = self.arguments(tmp_path, peers={"b": {"mount": deeper, "store_id": ""}})
        before = written(tmp_path)
        result = run_module(store, **arguments)
        assert "mount it here first" in result["msg"]
        assert written(tmp_path) == before

    def test_partners_that_make_a_store_at_the_same_time_make_the_same(
        self, tmp_path: Path, run_module: Any, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """The partner makes each directory after this node has looked and found none."""
        make = Path.mkdir

        def make_second(self: Path, *arguments: Any, **options: Any) -> None:
            make(self, parents=True, exist_ok=True)
            make(self, *arguments, **options)

        monkeypatch.setattr(Path, "mkdir", make_second)
        result = run_module(store, **self.arguments(tmp_path))
        assert not result.get("failed"), result

    def test_what_store_info_says_is_what_store_takes(self, tmp_path: Path, run_module: Any) -> None:
        arguments = self.arguments(tmp_path)
        seen = run_module(store_info, path=arguments["path"])
        assert seen["store_id"] == ""
        made = run_module(store, **arguments, peers={"b": seen})
        assert made["mount_point"] == ("" if seen["mount"]["point"] == "/" else seen["mount"]["point"])
        found = run_module(store_info, path=arguments["path"])
        assert found["store_id"] == made["store_id"]
        node = run_module(node_info, directory=str(tmp_path / "none"), store=arguments["path"])
        assert node["store"] == {"mount": found["mount"], "store_id": made["store_id"], "begun": False, "copies": False}

    @pytest.mark.parametrize(
        ("name", "begun", "copies"),
        [
            ("segment-000000000001-0000000001.log", True, False),
            ("replica.state", False, True),
            ("server.lock", False, False),
            ("oldreplica.1/segment-000000000001-0000000001.log", False, False),
        ],
    )
    def test_a_store_is_begun_with_its_first_segment(
        self, tmp_path: Path, run_module: Any, name: str, begun: bool, copies: bool
    ) -> None:
        file = tmp_path / "store/journal" / name
        file.parent.mkdir(parents=True)
        file.touch()
        found = run_module(store_info, path=str(tmp_path / "store"))
        assert (found["begun"], found["copies"]) == (begun, copies)

    def test_a_store_that_cannot_be_read_is_none_for_node_info(self, tmp_path: Path, run_module: Any) -> None:
        (tmp_path / "store").mkdir()
        (tmp_path / "store/store.json").mkdir()
        node = run_module(node_info, directory=str(tmp_path / "none"), store=str(tmp_path / "store"))
        assert node["store"] == {}
        assert run_module(store_info, path=str(tmp_path / "store"))["failed"]

    def test_a_group_that_may_read_gets_the_files_of_an_earlier_deployment(
        self, tmp_path: Path, run_module: Any
    ) -> None:
        run_module(store, **self.arguments(tmp_path, mode="0750"))
        segment = tmp_path / "store/journal/old/segment"
        segment.parent.mkdir(mode=0o700)
        segment.touch(0o600)
        # the group that deployed it, as that of the broker; any other one that this user may give files to
        readers = min({os.getgid(), *os.getgroups()}) if os.geteuid() else 65534
        shared = self.arguments(
            tmp_path, readers=grp.getgrgid(readers).gr_name, group=grp.getgrgid(os.getgid()).gr_name
        )
        assert run_module(store, check_mode=True, **shared)["changed"]
        assert segment.stat().st_mode & 0o777 == 0o600
        assert run_module(store, **shared)["changed"]
        assert segment.stat().st_mode & 0o7777 == 0o640
        assert segment.parent.stat().st_mode & 0o7777 == 0o2750
        assert (segment.stat().st_gid, segment.parent.stat().st_gid) == (readers, readers)
        # the broker reads it at every start, and is not in the group of readers
        assert (tmp_path / "instance/etc/store-seen.json").stat().st_gid == os.getgid()
        assert not run_module(store, **shared)["changed"]
        assert not run_module(store, check_mode=True, **shared)["changed"]
        assert run_module(store, **self.arguments(tmp_path, mode="0750"))["changed"]
        assert (tmp_path / "store").stat().st_mode & 0o7777 == 0o750

    def test_a_foreign_store_is_left_untouched(self, tmp_path: Path, run_module: Any) -> None:
        run_module(store, **self.arguments(tmp_path))
        before = written(tmp_path)
        result = run_module(store, **self.arguments(tmp_path, pair="west"))
        assert result["failed"]
        assert result["msg"].startswith("broker_store_directory: ")
        assert written(tmp_path) == before


class TestRelease:
    """Module release; the installation itself is tested with module_utils."""

    @pytest.fixture
    def root(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
        def install(
            releases: Any, name: str, archive: Path, python: str, run: Any, *, extra: str, extra_name: str
        ) -> None:
            assert not extra or releases.extra_wheels(extra_name).is_dir()
            with tarfile.open(archive):
                releases.path(name).mkdir(parents=True)
            (releases.path(name) / ".complete").touch()

        monkeypatch.setattr(releases_utils.Releases, "install", install)
        return tmp_path

    def arguments(self, root: Path, name: str, **changes: object) -> dict[str, object]:
        archive = root / "wheelhouse.tar"
        tarfile.open(archive, "w").close()
        version = f"{sys.version_info[0]}.{sys.version_info[1]}"
        base = {"root": str(root), "release": name, "archive": str(archive), "python": sys.executable}
        return {**base, "python_version": version, **changes}

    def test_it_is_installed_once_and_the_archive_is_used_up(self, root: Path, run_module: Any) -> None:
        arguments = self.arguments(root, "1-a")
        before = written(root)
        assert run_module(release, check_mode=True, **arguments)["changed"]
        assert written(root) == before
        assert run_module(release, **arguments)["changed"]
        assert (root / "current").resolve() == root / "releases/1-a"
        assert not (root / "wheelhouse.tar").exists()
        again = run_module(release, **arguments)
        assert not again["changed"]
        assert again["previous"] == "1-a"

    def test_the_wheels_of_an_extra_are_taken_once(self, root: Path, run_module: Any) -> None:
        extra = {"extra": "spark", "extra_name": "spark-1-x"}
        lacking = run_module(release, **self.arguments(root, "1-a-spark", **extra))
        assert "spark-1-x are not on this host" in lacking["msg"]
        archive = root / "extra.tar"
        tarfile.open(archive, "w").close()
        assert run_module(release, **self.arguments(root, "1-a-spark", extra_archive=str(archive), **extra))["changed"]
        assert not archive.exists()
        assert run_module(release, **self.arguments(root, "1-b-spark", **extra))["changed"]

    def test_a_running_broker_keeps_its_release(self, root: Path, run_module: Any) -> None:
        run_module(release, **self.arguments(root, "1-a"))
        result = run_module(release, **self.arguments(root, "2-b", switch=False))
        assert result["pending"]
        assert result["changed"]
        assert (root / "current").resolve() == root / "releases/1-a"
        assert not run_module(release, **self.arguments(root, "2-b", switch=False))["changed"]
        switched = run_module(release, **self.arguments(root, "2-b"))
        assert switched["changed"]
        assert not switched["pending"]

    def test_without_an_interpreter_that_of_the_platform_is_taken(
        self, root: Path, run_module: Any, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        platform = replace(PLATFORMS[0], interpreter=sys.executable)
        monkeypatch.setattr(release, "this_host", lambda: platform)
        assert run_module(release, **self.arguments(root, "1-a", python=""))["changed"]
        monkeypatch.setattr(release, "this_host", lambda: replace(platform, interpreter=f"{root}/none"))
        refused = run_module(release, **self.arguments(root, "2-b", python=""))["msg"]
        assert refused.startswith(f"broker_python: {root}/none cannot be run on this host")
        assert refused.endswith("; install the package python3, or set broker_python")

    def test_programs_get_their_contexts_where_selinux_is_enabled(
        self, root: Path, run_module: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
    ) -> None:
        found: list[str | None] = [None]
        monkeypatch.setattr(release, "SELINUX", (tmp_path, tmp_path / "none"))
        assert run_module(release, **self.arguments(root, "0-z"))["changed"]
        monkeypatch.setattr(release, "SELINUX", (tmp_path, tmp_path))
        monkeypatch.setattr(release.AnsibleModule, "get_bin_path", lambda *_arguments, **_options: found[0])
        refused = run_module(release, **self.arguments(root, "1-a"))
        assert refused["msg"].startswith("SELinux is enabled and restorecon is missing: install the package")
        restorecon, said = tmp_path / "restorecon", tmp_path / "said"
        found[0] = str(restorecon)
        restorecon.write_text(f'#!/bin/sh\necho "$@" >>{said}; exit 1\n')
        restorecon.chmod(0o755)
        refused = run_module(release, **self.arguments(root, "1-a"))
        assert refused["msg"].startswith(f"restorecon -R {root}/releases/1-a ended with 1")
        assert not (root / "releases/1-a").exists()
        restorecon.write_text(f'#!/bin/sh\necho "$@" >{said}\n')
        assert run_module(release, **self.arguments(root, "1-a"))["changed"]
        assert said.read_text() == f"-R {root}/releases/1-a\n"

    def test_old_ones_go(self, root: Path, run_module: Any) -> None:
        for name in ("1-a", "2-b", "3-c"):
            result = run_module(release, **self.arguments(root, name, keep=2))
        assert result["removed"] == ["1-a"]
        assert sorted(path.name for path in (root / "releases").iterdir()) == ["2-b", "3-c"]

    def test_wheels_for_another_python_are_refused(self, root: Path, run_module: Any) -> None:
        result = run_module(release, **self.arguments(root, "1-a", python_version="3.8"))
        assert result["failed"]
        assert "broker_install_build_python" in result["msg"]
        assert not (root / "releases").exists()

    def test_without_an_archive_nothing_can_be_installed(self, root: Path, run_module: Any) -> None:
        assert "no archive is given" in run_module(release, **self.arguments(root, "1-a", archive=None))["msg"]


class TestWheelhouse:
    """Module wheelhouse, with a python that pretends to be pip."""

    @pytest.fixture
    def arguments(self, tmp_path: Path) -> dict[str, object]:
        package = tmp_path / "broker/src/understudy"
        package.mkdir(parents=True)
        (package / "__init__.py").write_text('__version__ = "1.0.0"\n')
        (tmp_path / "broker/pyproject.toml").touch()
        (tmp_path / "broker/README.md").touch()
        python = tmp_path / "python"
        python.write_text(
            "#!/bin/sh\n"
            'if [ "$1" = -c ]; then echo 3.11; exit 0; fi\n'
            f'echo built >> {tmp_path}/builds\nwhile [ "$1" != --wheel-dir ]; do shift; done\n'
            'mkdir "$2" && touch "$2/a.whl"\n'
        )
        python.chmod(0o755)
        cache = str(tmp_path / "cache")
        return {"source": str(tmp_path / "broker"), "cache": cache, "python": str(python)}

    def test_it_is_built_once(self, tmp_path: Path, arguments: dict[str, object], run_module: Any) -> None:
        preview = run_module(wheelhouse, check_mode=True, **arguments)
        assert preview["changed"]
        assert not (tmp_path / "cache").exists()
        first = run_module(wheelhouse, **arguments)
        again = run_module(wheelhouse, **arguments)
        assert (first["changed"], again["changed"]) == (True, False)
        assert first["archive"] == again["archive"] == preview["archive"]
        assert first["python_version"] == "3.11"
        assert (tmp_path / "builds").read_text() == "built\n"

    def test_a_failure_is_told(self, tmp_path: Path, arguments: dict[str, object], run_module: Any) -> None:
        assert run_module(wheelhouse, **{**arguments, "python": "/no/python"})["failed"]
        assert "is not the source of the broker" in run_module(wheelhouse, **{**arguments, "source": "/etc"})["msg"]


class TestLedgerInfo:
    """Module ledger_info."""

    @pytest.fixture
    def path(self, tmp_path: Path) -> Path:
        rows = [{"kind": "CONFIRMED", "at_ms": moment} for moment in (0, 10, 20, 3020, 3030)]
        path = tmp_path / "ledger.jsonl"
        path.write_text("".join(json.dumps(row) + "\n" for row in [{"kind": "SENT", "at_ms": 0}, *rows]))
        return path

    def test_it_counts_and_measures(self, path: Path, run_module: Any) -> None:
        windows = [{"name": "kill", "start_ms": 25, "end_ms": 3000}, {"name": "late", "start_ms": 9000, "end_ms": 9001}]
        result = run_module(ledger_info, path=str(path), wait_for_confirmed=5, windows=windows, timeout_s=0)
        assert result["confirmed"] == 5
        assert result["gaps"] == {"kill": {"start_ms": 20, "end_ms": 3020, "duration_ms": 3000}, "late": None}
        assert result["last_confirmed_ms"] == 3030

    def test_too_few_in_time_is_a_failure(self, path: Path, run_module: Any) -> None:
        result = run_module(ledger_info, path=str(path), wait_for_confirmed=6, timeout_s=0)
        assert "5 of 6 messages confirmed" in result["msg"]

    def test_a_producer_that_failed_is_a_failure_at_once(self, path: Path, tmp_path: Path, run_module: Any) -> None:
        job = tmp_path / "job"
        job.write_text(json.dumps({"rc": 1, "stdout": "", "stderr": "login refused"}))
        result = run_module(ledger_info, path=str(path), wait_for_confirmed=6, timeout_s=600, job_file=str(job))
        assert "5 of 6 messages confirmed" in result["msg"]
        assert "login refused" in result["msg"]

    def test_a_damaged_ledger_is_a_failure(self, path: Path, run_module: Any) -> None:
        path.write_text("nonsense\n")
        assert "line 1 is no ledger row" in run_module(ledger_info, path=str(path), timeout_s=0)["msg"]


class TestSocketsInfo:
    """Module sockets_info, on loopback."""

    def test_a_socket_that_another_process_holds_is_found(self, run_module: Any) -> None:
        with socket.socket() as holder:
            holder.bind(("127.0.0.1", 0))
            holder.listen(1)
            port = holder.getsockname()[1]
            entries = [{"name": "core", "address": "127.0.0.1", "port": port}]
            result = run_module(sockets_info, check_mode=True, sockets=entries)
            assert result["in_use"] == [f"core 127.0.0.1:{port}"]
        result = run_module(sockets_info, sockets=entries)
        assert (result["in_use"], result["absent"], result["changed"]) == ([], [], False)

    def test_an_address_of_another_host_is_a_warning(self, run_module: Any) -> None:
        entries = [
            {"name": "floating", "address": "192.0.2.1", "port": 61616},
            {"name": "named", "address": "no such host", "port": 61616},
        ]
        result = run_module(sockets_info, sockets=entries)
        assert result["absent"] == ["floating 192.0.2.1:61616", "named no such host:61616"]


class TestStoreProbe:
    """Module store_probe."""

    def test_the_lock_of_another_process_is_seen_until_it_ends(self, tmp_path: Path, run_module: Any) -> None:
        arguments: dict[str, object] = {"path": str(tmp_path), "duration_s": 0.0, "min_free_mib": 0}
        held = run_module(store_probe, **arguments, lock="hold", lock_s=30.0)
        assert held["lock_seen"] is None
        name = held["lock_file"]
        again = run_module(store_probe, **arguments, lock="hold", lock_s=30.0)
        assert again["lock_file"] != name, "a second measurement does not wait for the end of the first one"
        seen = run_module(store_probe, **arguments, lock="expect_held", lock_file=name)
        assert seen["lock_seen"] is True
        (tmp_path / name).unlink()
        (tmp_path / name).touch()
        unseen = run_module(store_probe, **arguments, lock="expect_held", lock_file=name, shared=True)
        assert unseen["lock_seen"] is False
        assert any("both would be active" in fault for fault in unseen["faults"])
        for command in Path("/proc").glob("[0-9]*/cmdline"):
            with contextlib.suppress(FileNotFoundError, ProcessLookupError):  # a process that has just ended
                if str(tmp_path).encode() in command.read_bytes():  # the holder; only it has the path
                    os.kill(int(command.parent.name), signal.SIGKILL)

    def test_it_measures_and_leaves_nothing(self, tmp_path: Path, run_module: Any) -> None:
        result = run_module(store_probe, path=str(tmp_path), duration_s=0.01)
        assert not result["changed"]
        assert result["sync_ms"]["count"] >= 1
        assert result["mount"]["kind"]
        assert abs(result["skew_ms"]) < 60_000
        assert list(tmp_path.iterdir()) == []

    def test_a_missing_directory_is_named(self, tmp_path: Path, run_module: Any) -> None:
        result = run_module(store_probe, path=str(tmp_path / "absent"))
        assert result["failed"]
        assert str(tmp_path / "absent") in result["msg"]
