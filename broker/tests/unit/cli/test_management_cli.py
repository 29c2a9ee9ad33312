"""Sessions of ``understudy cli``: operations, commands, batches and blocks, carried out on a configuration."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from support.dmr import SERVER, Configured
from understudy.cli.console import prompt
from understudy.cli.console.command import management_cli
from understudy.cli.console.lines import joined, split_commands
from understudy.cli.console.rehearsal import Rehearsal
from understudy.cli.console.session import Failed, Session, failure_text
from understudy.cli.console.summary import Summary
from understudy.cli.main import jboss_cli
from understudy.cli.node.status import Place
from understudy.errors import BrokerError, ConfigError, Unreachable
from understudy.limits import COMPOSITE_STEPS_MAX
from understudy.management.dmr.batch import StepFailed
from understudy.management.dmr.grammar import Operation
from understudy.management.dmr.operations import VALIDATE_ONLY
from understudy.management.dmr.requests import failure
from understudy.management.dmr.values import Value, to_json

CLUSTER = f"{SERVER}/cluster-connection=my-cluster"
POLICY = f"{SERVER}/ha-policy=shared-store-slave"


class Terminal:
    """A session on a configuration, with the printed lines and answers."""

    def __init__(self, directory: Path) -> None:
        self.configured = Configured(directory)
        self.said: list[str] = []
        self.shown: list[object] = []
        self.asked: list[tuple[int, bool]] = []
        self.reloads: list[Operation] = []
        self.kept = 0
        """Rehearsed requests that changed the configuration."""
        self.session = Session(self.send, self.reload, self.show, self.said.append)

    def send(self, operations: Sequence[Operation], composite: bool) -> Mapping[str, Value]:
        """Answer as a node does."""
        self.asked.append((len(operations), composite))
        try:
            return self.configured.carry_out(*operations, composite=composite)
        except StepFailed as error:
            return failure(str(error), error.number if composite else None)
        except BrokerError as error:
            return failure(str(error))

    def rehearse(self, operations: Sequence[Operation], composite: bool) -> Mapping[str, Value]:
        """Answer as a node does, which keeps nothing of operations that are validated only."""
        before = self.configured.overrides
        answer = self.send(operations, composite)
        if any(each.headers.get(VALIDATE_ONLY) == "true" for each in operations):
            self.configured.overrides = before
        self.kept += self.configured.overrides != before
        return answer

    def reload(self, operation: Operation) -> Mapping[str, Value]:
        self.reloads.append(operation)
        return {"outcome": "success", "result": None}

    def show(self, answer: Mapping[str, Value]) -> None:
        self.shown.append(to_json(answer))

    def run(self, *lines: str) -> list[str]:
        """The lines that are printed for lines of a script."""
        self.said.clear()
        self.session.run(lines)
        return list(self.said)


def server_of(root: Any) -> Any:
    """The server of a configuration that was read as a whole."""
    return root["subsystem"]["messaging-activemq"]["server"]["default"]


@pytest.fixture
def terminal(tmp_path: Path) -> Terminal:
    return Terminal(tmp_path)


def test_lines_are_carried_out_until_one_fails(terminal: Terminal) -> None:
    with pytest.raises(Failed, match="WFLYCTL0201"):
        terminal.run(
            "# a comment", "", f"{POLICY}:add", f"{CLUSTER}:write-attribute(name=x,value=1)", f"{POLICY}:remove"
        )
    assert [each["outcome"] for each in terminal.shown] == ["success", "failed"]  # type: ignore[index]
    assert terminal.configured.loaded.configuration.ha_policy.is_backup


def test_the_current_node_is_where_addresses_start(terminal: Terminal) -> None:
    assert terminal.run(f"cd {CLUSTER}", "pwd", "read-attribute max-hops", "cd ..", "pwd", "cd", "cn /") == [
        CLUSTER,
        "1",
        SERVER,
        SERVER,
    ]
    assert "max-hops=1" in terminal.run(f"ls {CLUSTER}")
    assert "cluster-connection" in terminal.run(f"ls -l {SERVER}")
    with pytest.raises(Failed, match="WFLYCTL0216"):
        terminal.run(f"cd {SERVER}/cluster-connection=none")
    assert terminal.session.node == ()


@pytest.mark.parametrize(
    ("text", "number", "message"),
    [
        ("pwd\n\n/nope:x\npwd\n", 3, "column 6: "),
        ("pwd\\\n\nfly high\n", 3, "there is no command 'fly'"),
        ("if (outcome == success) of pwd\npwd\n", 2, "end-if is missing"),
        ("batch\n/path=x:add(path=y)\n", 2, "a batch of 1 operations was not run"),
    ],
)
def test_an_error_in_a_script_names_its_line(terminal: Terminal, text: str, number: int, message: str) -> None:
    with pytest.raises(ConfigError, match=f"^a.cli:{number}: {message}"):
        terminal.session.run(text.splitlines(), "a.cli")


def test_a_batch_is_one_request_of_which_all_counts_or_nothing(terminal: Terminal) -> None:
    said = terminal.run(
        "batch",
        f"{POLICY}:add",
        f"{POLICY}:write-attribute(name=restart-backup,value=false)",
        "list-batch",
        "run-batch",
    )
    assert said[:2] == [f"#1 {POLICY}:add", f"#2 {POLICY}:write-attribute(name=restart-backup,value=false)"]
    assert said[2] == "The batch executed successfully"
    assert terminal.asked == [(2, True)]
    before = terminal.configured.overrides
    with pytest.raises(Failed, match="Operation step-2"):
        terminal.run("batch", f"{POLICY}:remove", f"{POLICY}:fly", "run-batch")
    assert terminal.configured.overrides == before
    assert terminal.session.batch is not None
    assert len(terminal.session.batch) == 2
    terminal.run("clear-batch", "discard-batch")


@pytest.mark.parametrize(
    ("lines", "message"),
    [
        (["run-batch"], "no batch is open"),
        (["batch", "batch"], "open already"),
        (["batch", "run-batch"], "has no operation"),
        (["run-batch name"], r"run-batch \[--file=FILE\]"),
        (["batch", "run-batch --file=x"], "a batch is open already"),
        (["batch x y"], "one name or --file=FILE"),
        (["batch --verbose"], "has no option '--verbose'"),
        (["edit-batch-line 1 :x"], "no batch is open"),
        (["batch", "edit-batch-line 1 :x"], "the batch has no line '1'"),
        (["batch", f"{POLICY}:add", "edit-batch-line 1 pwd"], "'pwd' is no operation"),
        (["batch", f"{POLICY}:add", "edit-batch-line 1 :reload"], "reload is not possible in a batch"),
        (["batch", f"{POLICY}:add", "edit-batch-line 1"], "NUMBER OPERATION is expected"),
        (["batch", f"{POLICY}:add", "move-batch-line 1 2"], "the batch has no line '2'"),
        (["batch", f"{POLICY}:add", "move-batch-line 1"], "NUMBER NEW-NUMBER is expected"),
        (["batch", f"{POLICY}:add", "remove-batch-line 0"], "the batch has no line '0'"),
        (["batch", "holdback-batch x", "batch", "holdback-batch x"], "a batch 'x' is held back already"),
        (["history --all"], "history .* is expected"),
        (["read-operation a b"], "read-operation .* is expected"),
        (["batch", ":reload"], "not possible in a batch"),
        (["batch", "if (outcome == success) of :read-resource", "end-if"], "'if' is not possible in a batch"),
        (["batch", f"{POLICY}:add"], "a batch of 1 operations was not run"),
        (["fly"], "there is no command 'fly'"),
        (["if (outcome == success) of :read-resource"], "end-if is missing"),
        (["if outcome", "end-if"], r"if \(CONDITION\) of OPERATION is expected"),
        (["if (a == b) of pwd", "end-if"], "is no operation"),
        (["try", "end-try"], "try needs catch or finally"),
        (["try", "catch", "catch", "end-try"], "catch is not expected"),
        (["for x", "done"], "for NAME in OPERATION is expected"),
        ([f"for x in {CLUSTER}:read-resource", "done"], "does not give a list"),
        (["read-attribute"], "read-attribute NAME"),
        (["for x in :a"] * 30 + ["done"] * 30, "more than 20 blocks in one another"),
        (["set x"], "NAME=VALUE is expected"),
        (["unset x"], "is not set"),
        ([f"if (outcome == success) of {CLUSTER}:read-resource", "for x in y", "done", "end-if"], "runs as one batch"),
    ],
)
def test_a_line_that_is_out_of_place_is_an_error(terminal: Terminal, lines: list[str], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        terminal.run(*lines)


def test_the_lines_of_a_batch_are_edited(terminal: Terminal) -> None:
    said = terminal.run(
        "batch",
        f"{POLICY}:write-attribute(name=restart-backup,value=true)",
        f"{POLICY}:add",
        f"{CLUSTER}:fly",
        "move-batch-line 2 1",
        "edit-batch-line 2 " + f"{POLICY}:write-attribute(name=restart-backup, value=false)",
        "remove-batch-line 3",
        "list-batch",
        "run-batch",
    )
    assert said == [
        f"#2 {POLICY}:write-attribute(name=restart-backup,value=false)",
        f"#1 {POLICY}:add",
        f"#2 {POLICY}:write-attribute(name=restart-backup,value=false)",
        "The batch executed successfully",
    ]
    assert terminal.asked == [(2, True)]
    assert terminal.configured.result(f"{POLICY}:read-attribute(name=restart-backup)") is False


def test_batches_are_held_back_by_their_names(terminal: Terminal) -> None:
    said = terminal.run(
        "batch",
        f"{POLICY}:add",
        "holdback-batch first",
        "batch",
        f"{CLUSTER}:fly",
        "holdback-batch",
        "batch -l",
        "batch first",
        "list-batch",
        "run-batch",
        "batch",
        "list-batch",
        "discard-batch",
    )
    assert said == [
        "(without a name)",
        "first",
        f"#1 {POLICY}:add",
        "The batch executed successfully",
        f"#1 {CLUSTER}:fly",
    ]
    assert terminal.asked == [(1, True)]
    with pytest.raises(ConfigError, match="no batch 'first' is held back"):
        terminal.run("batch first")
    with pytest.raises(ConfigError, match="a batch of 1 operations was not run, but is held back"):
        terminal.run("batch", f"{POLICY}:remove", "holdback-batch other")


def test_a_batch_of_a_file_is_run_or_opened(terminal: Terminal, tmp_path: Path) -> None:
    file = tmp_path / "lines of a batch"
    adding = f"{POLICY}:add( \\\n  restart-backup=false)\n"
    file.write_text(f"# a comment\n\n{adding}{CLUSTER}:read-attribute(name=max-hops)\n")
    assert terminal.run(f'run-batch "--file={file}"') == ["The batch executed successfully"]
    assert terminal.asked == [(2, True)]
    said = terminal.run(f'batch "--file={file}"', "list-batch", "discard-batch")
    assert said[0] == f"#1 {POLICY}:add(restart-backup=false)"
    file.write_text(f"{POLICY}:remove\npwd\n")
    with pytest.raises(ConfigError, match="operation 2: 'pwd' is no operation"):
        terminal.run(f'run-batch "--file={file}"')
    assert terminal.asked == [(2, True)]
    with pytest.raises(ConfigError, match="cannot be read"):
        terminal.run("run-batch --file=none")


def test_a_batch_stays_if_the_node_does_not_answer(terminal: Terminal) -> None:
    def gone(operations: Sequence[Operation], composite: bool) -> Mapping[str, Value]:
        raise Unreachable("the node is gone")

    terminal.session = Session(gone, terminal.reload, terminal.show, terminal.said.append)
    with pytest.raises(Unreachable):
        terminal.run("batch", f"{POLICY}:add", "run-batch")
    assert terminal.session.batch is not None
    assert len(terminal.session.batch) == 1


def test_an_operation_is_described_with_its_parameters(terminal: Terminal) -> None:
    assert "list-add" in terminal.run(f"read-operation --node={CLUSTER}")
    terminal.run(f"cd {CLUSTER}", "read-operation write-attribute")
    (described,) = (each["result"] for each in terminal.shown)  # type: ignore[index]
    assert described["operation-name"] == "write-attribute"
    assert described["request-properties"]["name"] == {
        "type": "STRING", "description": "Name of the attribute.", "required": True,
    }  # fmt: skip
    with pytest.raises(Failed, match="WFLYCTL0031: No operation named 'fly'"):
        terminal.run("read-operation fly")


def test_the_history_has_the_lines_of_the_session(terminal: Terminal) -> None:
    assert terminal.run("echo one", "history") == ["one", "echo one", "history"]
    assert terminal.run("history --disable", "echo two", "history --enable", "history --clear", "history") == [
        "two",
        "history",
    ]


def test_if_adds_a_resource_only_where_it_is_missing(terminal: Terminal) -> None:
    script = (
        f"if (outcome != success) of {POLICY}:read-resource",
        "  echo added",
        f"  {POLICY}:add",
        f"  {POLICY}:write-attribute(name=restart-backup,value=false)",
        "else",
        "  echo there",
        "end-if",
    )
    assert terminal.run(*script) == ["added"]
    assert terminal.asked[-1] == (2, True)
    assert terminal.run(*script) == ["there"]


def test_try_has_catch_and_finally(terminal: Terminal) -> None:
    assert terminal.run("try", f"{CLUSTER}:fly", "catch", f"{POLICY}:add", "finally", "echo last", "end-try") == [
        "last"
    ]
    assert terminal.configured.result(f"{SERVER}:read-children-names(child-type=ha-policy)") == ["shared-store-slave"]
    with pytest.raises(Failed):
        terminal.run("try", f"{CLUSTER}:fly", "finally", "echo last", "end-try")
    assert terminal.said == ["last"]


def test_for_repeats_lines_with_blocks_in_them(terminal: Terminal) -> None:
    said = terminal.run(
        "set name=kept",
        f"for name in {SERVER}:read-children-names(child-type=path)",
        f"  if (result ~= data/j.*) of {SERVER}/path=$name:read-attribute(name=path)",
        "    echo found $name",
        "  end-if",
        "done",
        "echo ${name} $other",
    )
    assert said == ["found journal-directory", "kept $other"]


def test_reload_is_an_operation_and_a_command(terminal: Terminal) -> None:
    terminal.run(":reload", "reload --force")
    assert terminal.reloads == [Operation((), "reload"), Operation((), "reload", {"force": True})]


def test_quit_ends_a_script_and_echo_dmr_sends_nothing(terminal: Terminal) -> None:
    terminal.run(f"echo-dmr {POLICY}:add(restart-backup=false)", "quit", "fly")
    assert terminal.asked == []
    (shown,) = terminal.shown
    assert shown["operation"] == "add"  # type: ignore[index]
    assert terminal.session.ended


def test_lines_are_joined_and_commands_are_split() -> None:
    assert list(joined(["a \\\r\n", "b\r\n", "c\\"])) == ["a b", "c"]
    assert split_commands('/a=b:c(d=1,e="x,y"),pwd, :f([g,h])') == ['/a=b:c(d=1,e="x,y")', "pwd", " :f([g,h])"]


def test_completion_asks_the_node(terminal: Terminal) -> None:
    def words(text: str) -> list[str]:
        return [word for word, _ in prompt.completions(text, terminal.session, terminal.send)]

    assert words("disc") == ["discard-batch"]
    assert words("/sub") == ["subsystem="]
    assert words(f"{SERVER}/path=jour") == ["journal-directory"]
    assert words(f"{SERVER}/path=journal-directory:reso") == ["resolve-path"]
    assert words("/nothing=a:") == []


def test_options_that_exclude_each_other_are_a_usage_error(tmp_path: Path) -> None:
    for options in (["--command", "pwd", "--commands", "pwd"], ["--controller", "h:1", "--url", "http://h:1"]):
        found = CliRunner().invoke(management_cli, options)
        assert found.exit_code == 2, found.output
    missing = CliRunner().invoke(management_cli, ["--file", str(tmp_path / "none")])
    assert missing.exit_code == 2
    assert json.dumps("none") not in missing.output


PEER = {"role": "primary", "connector": "10.0.0.1:61616", "name": "a"}


@pytest.mark.parametrize(
    ("line", "outcome", "peer", "noted"),
    [
        (f"{SERVER}:write-attribute(name=id-cache-size,value=5)", "success", PEER, True),
        (f"{SERVER}:write-attribute(name=id-cache-size,value=5)", "success", None, False),
        (f"{SERVER}:write-attribute(name=id-cache-size,value=5)", "failed", PEER, False),
        (f"{SERVER}:read-resource", "success", PEER, False),
    ],
)
def test_a_change_of_a_node_of_a_pair_names_the_other_node(
    line: str, outcome: str, peer: object, noted: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Place, "talk", lambda *args, **more: f'{{"outcome" => "{outcome}"}}')
    monkeypatch.setattr(Place, "ask", lambda place, path: {"name": "b", "peer": peer})
    found = CliRunner().invoke(management_cli, ["--url", "http://127.0.0.1:1"], input=f"{line}\n{line}\n")
    assert found.exit_code == (outcome == "failed")
    assert found.output.count("note: b is changed, and a (10.0.0.1:61616) is not") == noted


def test_a_rehearsal_validates_each_line_after_those_before_it_and_changes_nothing(terminal: Terminal) -> None:
    rehearsal = Rehearsal(terminal.rehearse)
    terminal.session = Session(rehearsal.send, terminal.reload, terminal.show, terminal.said.append)
    said = terminal.run(
        f"{SERVER}:read-attribute(name=id-cache-size)",
        f"{POLICY}:add",
        "batch",
        f"{POLICY}:write-attribute(name=restart-backup,value=false)",
        f"{POLICY}:read-attribute(name=restart-backup)",
        "run-batch",
        f"if (result == false) of {POLICY}:read-attribute(name=restart-backup)",
        "  echo seen",
        "end-if",
    )
    assert said == ["The batch executed successfully", "seen"]
    assert terminal.shown[0] == {"outcome": "success", "result": 20000}
    assert terminal.shown[2]["result"] == {  # type: ignore[index]
        "step-1": {"outcome": "success"},
        "step-2": {"outcome": "success", "result": False},
    }
    assert terminal.configured.overrides == ()
    assert terminal.kept == 0


def test_a_failure_of_a_rehearsal_names_the_step_of_its_own_batch(terminal: Terminal) -> None:
    session = Session(Rehearsal(terminal.rehearse).send, terminal.reload, terminal.show, terminal.said.append)
    with pytest.raises(Failed, match=r"WFLYCTL0216: Management resource .* not found"):
        session.run([f"{SERVER}/cluster-connection=none:remove"])
    with pytest.raises(Failed, match="step-2"):
        session.run([f"{POLICY}:add", "batch", f"{POLICY}:remove", f"{POLICY}:remove", "run-batch"])


def test_a_rehearsal_has_a_limit(terminal: Terminal) -> None:
    send = Rehearsal(terminal.rehearse).send
    many = [Operation((), "composite")] * (COMPOSITE_STEPS_MAX + 1)
    with pytest.raises(ConfigError, match="cannot be validated together"):
        send(many, True)


def test_a_summary_has_answers_lines_and_the_configuration_before_and_after(terminal: Terminal) -> None:
    summary = Summary(terminal.send, terminal.reload)
    session = Session(summary.send, summary.reload, summary.show, summary.say)
    session.run(["echo hello", f"{POLICY}:add"])
    found = summary.finish(None)
    assert found["printed"] == ["hello"]
    assert [each["outcome"] for each in found["answers"]] == ["success"]
    before, after = (
        found[name]["subsystem"]["messaging-activemq"]["server"]["default"] for name in ("before", "after")
    )
    assert "ha-policy" not in before
    assert "shared-store-slave" in after["ha-policy"]
    assert (found["reload_required"], found["secret_written"], found["problem"]) == (False, False, None)
    session.run([f'{SERVER}:write-attribute(name=cluster-password,value="another password of ours")'])
    assert summary.finish(None)["secret_written"] is True
    assert summary.finish(None)["reloaded"] is False
    session.run([":reload"])
    assert summary.finish(None)["reloaded"] is True
    assert "another password" not in json.dumps(summary.finish(None))


def test_a_summary_of_a_rehearsal_says_whether_a_reload_would_be_needed(terminal: Terminal) -> None:
    rehearsal = Rehearsal(terminal.rehearse)
    summary = Summary(rehearsal.send, rehearsal.reload, rehearsed=True)
    session = Session(summary.send, summary.reload, summary.show, summary.say)
    session.run([f"{SERVER}:write-attribute(name=id-cache-size,value=20000)"])
    assert summary.finish(None)["reload_required"] is False
    session.run([f"{SERVER}:write-attribute(name=id-cache-size,value=1000)"])
    assert summary.finish(None)["reload_required"] is True


def test_a_summary_without_a_node_at_the_end_keeps_the_first_problem(terminal: Terminal) -> None:
    answers = [terminal.send]

    def send(operations: Sequence[Operation], composite: bool) -> Mapping[str, Value]:
        if not answers:
            raise Unreachable("the node is gone")
        return answers[0](operations, composite)

    summary = Summary(send, terminal.reload)
    answers.clear()
    assert summary.finish("the line failed")["problem"] == "the line failed"
    found = summary.finish(None)
    assert (found["problem"], found["after"]) == ("the node is gone", None)


def test_the_name_of_the_reference_product_is_the_same_command(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("sys.argv", ["jboss-cli.sh", "--help"])
    with pytest.raises(SystemExit) as ended:
        jboss_cli()
    assert ended.value.code == 0
    assert "Usage: jboss-cli.sh [OPTIONS]" in capsys.readouterr().out
    monkeypatch.setattr("sys.argv", ["jboss-cli.sh", "--url", "ftp://h", "--command", "pwd"])
    with pytest.raises(SystemExit) as ended:
        jboss_cli()
    assert ended.value.code == 2
    assert capsys.readouterr().err.startswith("jboss-cli.sh: ")


def test_a_failure_is_one_line_and_names_the_failed_steps_of_a_batch() -> None:
    assert failure_text(failure("no such queue")) == "no such queue"
    assert failure_text(failure("no such queue", 2)) == "Operation step-2: no such queue"
    assert failure_text({"outcome": "failed", "failure-description": {}}) == "{}"
