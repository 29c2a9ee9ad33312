"""The management CLI of an instance: lines for a running node, and the changes that the node keeps beside broker.xml.

Lines are carried out by the command ``understudy cli`` of the release in place, which knows their grammar. It gets the
address and the token of the service definition, not those in ``run``, which belongs to the user of the broker.
"""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ansible_collections.understudy.broker.plugins.module_utils.redaction import SECRET_PARAMETER, redact
from ansible_collections.understudy.broker.plugins.module_utils.service import (
    SEARCH_PATH,
    ServiceDefinition,
    ServiceError,
    account_of,
)

OVERLAY = "etc/broker.d/50-cli.json"
"""The file of changes below an instance directory (docs/operate/management-cli.md)."""
REPORT, KEEP, ADOPT, REMOVE = "report", "keep", "adopt", "remove"
POLICIES = (KEEP, REPORT, ADOPT, REMOVE)
"""Values of ``broker_cli_overrides``."""
_DIFFERENT = 1
"""Exit code of ``config diff`` where there are changes."""

RunScript = Callable[[Sequence[str], str, Mapping[str, str]], "tuple[int, str, str]"]
"""Runs a command with a standard input and additional environment; gives return code, stdout and stderr."""


@dataclass(frozen=True)
class Summary:
    """The answers to lines, and the configuration before and after them."""

    answers: tuple[object, ...]
    printed: tuple[str, ...]
    before: object
    after: object
    secret_written: bool
    """Whether a line had a secret, which no answer shows."""
    reloaded: bool
    """Whether a line has reloaded the node."""
    reload_required: bool
    problem: str
    """Why a line failed; the lines after it were not carried out. Empty if none did."""

    @property
    def changed(self) -> bool:
        """Whether the configuration is another one, or may be."""
        return self.before != self.after or self.secret_written

    @classmethod
    def parse(cls, text: str) -> Summary:
        """The summary that ``understudy cli --summary`` prints.

        Raises:
            ValueError: the text is none.
        """
        found = json.loads(text)
        if not isinstance(found, dict) or "before" not in found:
            raise ValueError("no summary")
        return cls(
            answers=tuple(found["answers"]),
            printed=tuple(map(str, found["printed"])),
            before=found["before"],
            after=found["after"],
            secret_written=found["secret_written"] is True,
            reloaded=found["reloaded"] is True,
            reload_required=found["reload_required"] is True,
            problem=str(found["problem"] or ""),
        )


class Console:
    """Carries out lines at the node of an instance."""

    def __init__(self, definition: ServiceDefinition, run: RunScript, timeout_s: int) -> None:
        """
        Args:
            definition: Definition of the service of the instance.
            run: Runs the command.
            timeout_s: Seconds that an answer or a reload may take.

        Raises:
            ServiceError: the management asks for a certificate of the client, which the command has no option for.
        """
        access = definition.access
        if access.client_cert is not None or not access.validate_certs:
            raise ServiceError(
                f"{definition.name}: broker_service_management_access has a client certificate, or checks none of the "
                "server; lines of the management CLI need an address without both"
            )
        self._definition = definition
        self._run = run
        self._timeout_s = timeout_s

    def carry_out(self, script: str, *, check: bool, if_needed: bool) -> Summary:
        """Carry out the lines of a script until one fails.

        Args:
            script: The lines.
            check: Whether they are validated only.
            if_needed: Whether additions of what is there, and removals of what is not, count as done.

        Raises:
            ServiceError: the node or the command does not answer.
        """
        definition = self._definition
        command = [
            *(definition.command[0], "cli", "--url", definition.management_url, "--token-file", definition.token_file),
            *("--timeout", str(self._timeout_s), "--summary"),
            *(["--check"] if check else []),
            *(["--if-needed"] if if_needed else []),
        ]
        environment = {"SSL_CERT_FILE": definition.access.ca_path} if definition.access.ca_path else {}
        code, output, error = self._run(command, script, environment)
        try:
            return Summary.parse(output)
        except (ValueError, KeyError, TypeError):
            said = error.strip() or output.strip() or f"it ended with {code}"
            raise ServiceError(f"{definition.name}: {' '.join(command[:2])}: {said}") from None


class Overrides:
    """The changes that an instance keeps beside its broker.xml.

    The commands run as the user of the broker, to whom the directory of the changes belongs: root would follow links
    that this user has put there.
    """

    def __init__(self, directory: Path, definition: ServiceDefinition) -> None:
        self._directory = directory
        self._definition = definition

    @property
    def exist(self) -> bool:
        """Whether there is a file of changes, which may be empty."""
        return os.path.lexists(self._directory / OVERLAY)

    def rows(self) -> list[dict[str, object]]:
        """The changes in their order, without secrets. Raises ServiceError."""
        if not self.exist:
            return []
        output = self._config("diff", "--json", accepted=(0, _DIFFERENT))
        try:
            return [dict(each) for each in json.loads(output)]
        except (ValueError, TypeError) as error:
            raise ServiceError(f"{self._definition.name}: config diff: {error}") from error

    def document(self) -> str:
        """The broker.xml that the node uses, with the changes; it has secrets. Raises ServiceError, OSError."""
        if not self.exist:
            return (self._directory / "etc/broker.xml").read_text(encoding="utf-8")
        return self._config("print")

    def drop(self, *, superfluous: bool) -> None:
        """Drop all changes, or those that broker.xml has as well. Raises ServiceError."""
        self._config("drop", "--superfluous" if superfluous else "--all")

    def _config(self, *arguments: str, accepted: Sequence[int] = (0,)) -> str:
        definition = self._definition
        command = [definition.command[0], "config", *arguments, "--instance", str(self._directory)]
        account: dict[str, Any] = {}
        if definition.user and os.geteuid() == 0:
            found = account_of(definition)
            account = {"user": found.pw_uid, "group": found.pw_gid, "extra_groups": ()}
        ended = subprocess.run(
            command,
            cwd="/",
            env={"HOME": str(self._directory), "LANG": "C.UTF-8", "PATH": SEARCH_PATH},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            check=False,
            **account,
        )
        if ended.returncode not in accepted:
            said = ended.stderr.decode("utf-8", "replace").strip() or f"it ended with {ended.returncode}"
            raise ServiceError(f"{definition.name}: understudy config {arguments[0]}: {said}")
        return str(ended.stdout.decode("utf-8"))


def is_to_drop(policy: str, rows: Sequence[Mapping[str, object]]) -> bool:
    """Whether a policy drops any of the changes."""
    if policy == REMOVE:
        return bool(rows)
    return policy == ADOPT and any(each["differs"] is False for each in rows)


def left(policy: str, rows: Sequence[Mapping[str, object]]) -> list[Mapping[str, object]]:
    """The changes that a policy leaves."""
    if policy == REMOVE:
        return []
    return [each for each in rows if policy != ADOPT or each["differs"] is not False]


def shown(row: Mapping[str, object]) -> str:
    """A change as a line for operators."""
    value = "" if row.get("value") is None else f" {row['value']}"
    same = "" if row.get("differs") else ", as in broker.xml"
    return f"{row['path']}: {row['state']}{value}{same} ({row.get('time')}, {row.get('user')})"


def without_secrets(value: Any) -> Any:
    """An answer without secrets in URLs; the node masks others itself."""
    if isinstance(value, dict):
        return {key: without_secrets(each) for key, each in value.items()}
    if isinstance(value, list):
        return [without_secrets(each) for each in value]
    return redact(value, ()) if isinstance(value, str) and SECRET_PARAMETER.search(value) else value
