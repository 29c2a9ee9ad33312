"""Goal: the command of the lab explains itself, and has every command that its page shows."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

LAB = Path(__file__).resolve().parents[2] / "lab"


def told(*arguments: str) -> str:
    done = subprocess.run([str(LAB / "lab"), *arguments], capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_the_help_names_every_command_of_the_page() -> None:
    text = told("--help")
    commands = set(re.findall(r"^  ([a-z][a-z-]+)  ", text.partition("Commands:")[2], re.MULTILINE))
    page = (LAB / "README.md").read_text()
    shown = set(re.findall(r"^tests/lab/lab ([a-z][a-z-]+)", page, re.MULTILINE))
    assert {"create", "list", "enter", "cut", "destroy", "faults"} <= shown
    assert shown <= commands
    assert "Exit codes: 0 done, 1 failed, 2 wrong usage, 77 cannot run here." in " ".join(text.split())


def test_the_table_of_faults_has_a_help_with_its_options() -> None:
    text = told("faults", "--help")
    for option in ("--list", "--json", "--page", "--keep"):
        assert option in text
