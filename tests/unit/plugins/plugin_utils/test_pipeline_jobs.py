"""Goal: a job of the inventory becomes a command that the broker's own command line accepts, or is refused by name."""

from __future__ import annotations

from pathlib import Path

import pytest
from ansible_collections.understudy.broker.plugins.plugin_utils.pipeline_jobs import JOBS, Unusable, definitions
from click.testing import CliRunner
from understudy.cli.pipeline.commands import pipeline

SETTINGS: dict[str, object] = {
    "root": "/opt/pipeline",
    "directory": "/var/pipeline",
    "python": "/opt/pipeline/current/bin/python3",
    "master": "local[*]",
    "java_home": "",
    "keep": 30,
    "archive_keep_hours": 24,
    "backend": "systemd",
    "unit_prefix": "understudy-pipeline",
    "url": "tcp://a:61616",
    "user": "pipeline",
    "drill": False,
    "system_user": "understudy-pipeline",
    "reader_group": "understudy-readers",
}
PLACES = {
    "archive": ["{place}", "-o", "{place}/archive"],
    "audit": ["{place}/ledger.jsonl"],
    "consolidate": ["{place}", "-o", "{place}/new"],
    "flow": ["{place}"],
    "replay": ["{place}"],
    "verdict": ["{place}", "{place}"],
}


def one(**job: object) -> dict[str, object]:
    (found,) = definitions([{"name": "a", "job": "flow", **job}], SETTINGS)
    return found


@pytest.mark.parametrize("job", JOBS)
def test_the_command_line_accepts_every_job(job: str, tmp_path: Path) -> None:
    (tmp_path / "ledger.jsonl").touch()
    (tmp_path / "password").write_text("x\n")
    (tmp_path / "work/a").mkdir(parents=True)
    (tmp_path / "etc").mkdir()
    (tmp_path / "etc/password").write_text("x\n")
    arguments = [each.format(place=tmp_path) for each in PLACES[job]]
    settings = {**SETTINGS, "root": str(tmp_path), "directory": str(tmp_path)}
    (found,) = definitions([{"name": "a", "job": job, "arguments": arguments}], settings)
    program, group, name, *rest = [*found["command"], *found["arguments"]]  # type: ignore[misc]
    assert (program, group, name) == (f"{tmp_path}/current/bin/understudy", "pipeline", job)
    parsed = pipeline.commands[job].make_context(job, list(rest)).params
    assert parsed["as_json"] is True
    assert parsed["master"] == "local[*]"
    assert parsed["work_dir"] == tmp_path / "work/a"
    if job == "archive":
        assert parsed["keep_hours"] == 24
    if job == "replay":
        assert (parsed["url"], parsed["user"]) == ("tcp://a:61616", "pipeline")
        assert str(tmp_path / "etc/password") in map(str, parsed.values())


def test_the_jobs_are_those_of_the_command_line() -> None:
    assert set(pipeline.commands) - {"verify-report"} == set(JOBS)
    assert CliRunner().invoke(pipeline, ["--help"]).exit_code == 0


def test_the_job_of_the_drill_audits_the_ledgers_that_a_drill_brings() -> None:
    (found,) = definitions([], {**SETTINGS, "drill": True})
    assert (found["name"], found["job"]) == ("drill", "audit")
    assert "/var/pipeline/drill/*.jsonl" in found["arguments"]  # type: ignore[operator]


@pytest.mark.parametrize("arguments", [["--keep-hours=5"], ["--keep-hours", "5"]])
def test_hours_that_an_archive_keeps_replaced_files(arguments: list[str]) -> None:
    settings = {**SETTINGS, "archive_keep_hours": 72}
    (found,) = definitions([{"name": "a", "job": "archive", "arguments": ["/s", "-o", "/o"]}], settings)
    assert "--keep-hours=72" in found["command"]  # type: ignore[operator]
    (found,) = definitions([{"name": "a", "job": "archive", "arguments": ["/s", "-o", "/o", *arguments]}], settings)
    assert not any("--keep-hours" in each for each in found["command"])  # type: ignore[attr-defined]
    for hours in (-1, 8785):
        with pytest.raises(Unusable, match="broker_pipeline_archive_keep_hours is"):
            definitions([], {**settings, "archive_keep_hours": hours})


def test_values_of_the_job_come_before_those_of_the_role() -> None:
    found = one(master="spark://m:7077", keep=3, timeout_s=60, memory_mib=2048, schedule=" daily ")
    assert "--master=spark://m:7077" in found["command"]  # type: ignore[operator]
    assert (found["keep"], found["timeout_s"]) == (3, 60)
    assert found["environment"] == {"PYSPARK_SUBMIT_ARGS": "--driver-memory 1024m pyspark-shell"}
    assert found["service"] == {
        "file": "understudy-pipeline-a.service", "memory_mib": 2048, "timeout_s": 150, "on_failure": []
    }  # fmt: skip
    assert found["timer"] == {"file": "understudy-pipeline-a.timer", "schedule": "daily"}
    (process,) = definitions([{"name": "a", "job": "flow"}], {**SETTINGS, "backend": "process", "java_home": "/j"})
    assert process["unit"] == ""
    assert process["environment"]["JAVA_HOME"] == "/j"  # type: ignore[index]


def test_a_url_of_the_job_wins_and_a_login_is_given_only_to_replay() -> None:
    found = one(job="replay", arguments=["--url=tcp://b:1", "/archive"])
    assert not [each for each in found["command"] if str(each).startswith("--url")]  # type: ignore[attr-defined]
    assert not [each for each in one()["command"] if "password" in str(each)]  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    ("job", "problem"),
    [
        ({"name": "A"}, "lower-case letters"),
        ({"name": "-a"}, "lower-case letters"),
        ({"name": "a" * 41}, "lower-case letters"),
        ({"name": "a/../b"}, "lower-case letters"),
        ({"job": "count"}, "job is 'count'; give one of archive, audit"),
        ({"arguments": "--in-use"}, "arguments must be a list"),
        ({"arguments": ["--master=x"]}, "--master, which the role gives itself"),
        ({"arguments": ["--password-file", "/x"]}, "--password-file, which the role gives itself"),
        ({"arguments": ["--url=(tcp://a:1)?user=b&password=hidden"]}, "a URL with a password"),
        ({"arguments": ["--url=tcp://b:hidden@a:1"]}, "a URL with a password"),
        ({"arguments": ["--url=tcp://a:1?keyStorePassword=hidden"]}, "a URL with a password"),
        ({"arguments": ["a\nb"]}, "a line break"),
        (
            {"arguments": ["s3a://bucket/store", "-o", "/srv/a"]},
            "has s3a://bucket/store; files of the scheme s3a: are not",
        ),
        ({"arguments": ["/srv/a", "-o", "s3a://bucket/x"]}, "has s3a://bucket/x; files of the scheme s3a: are not"),
        ({"arguments": ["/srv/a", "--parquet=hdfs://n/x"]}, "has hdfs://n/x; files of the scheme hdfs: are not"),
        ({"memory_mib": 100}, "memory_mib is 100; give a whole number of at least 1024"),
        ({"timeout_s": 0}, "timeout_s is 0"),
        ({"keep": True}, "keep is True"),
        ({"accepted_exit_codes": [0]}, "numbers from 1 to 255"),
        ({"accepted_exit_codes": 3}, "numbers from 1 to 255"),
        ({"on_failure": ["mail me"]}, "names of systemd units"),
        ({"schedule": "daily\nExecStart=/bin/sh"}, "schedule must be one line"),
        ({"cron": "daily"}, "has cron; give only name, job"),
    ],
)
def test_a_job_that_cannot_be_set_up_is_named(job: dict[str, object], problem: str) -> None:
    with pytest.raises(Unusable, match=r"broker_pipeline_jobs\[0\]") as raised:
        one(**job)
    assert problem in str(raised.value)
    assert "hidden" not in str(raised.value)


def test_urls_of_brokers_and_of_local_files_are_no_paths_of_another_scheme() -> None:
    arguments = [
        "--url",
        "tcp://b:1",
        "--server=http://a:8161",
        "--filter",
        "x = 'a:/b'",
        "file:///srv/a",
        "--resume=/b",
    ]
    assert one(job="replay", arguments=arguments)["arguments"] == arguments


def test_names_are_unique_and_that_of_the_drill_is_taken() -> None:
    with pytest.raises(Unusable, match=r"\[1\]: the name 'a' is taken"):
        definitions([{"name": "a", "job": "flow"}, {"name": "a", "job": "audit"}], SETTINGS)
    with pytest.raises(Unusable, match="'drill' is taken"):
        definitions([{"name": "drill", "job": "flow"}], {**SETTINGS, "drill": True})
    with pytest.raises(Unusable, match="must be a list"):
        definitions("flow", SETTINGS)  # type: ignore[arg-type]
    with pytest.raises(Unusable, match="is a str"):
        definitions(["flow"], SETTINGS)  # type: ignore[list-item]
