"""``python -m documents.pictures FOLDER``: pictures of commands for the pages, as SVG.

A pair is started on this machine in a network namespace of its own; the output of each command is drawn by rich as a
terminal shows it. The pictures show times and ids, so they are made by hand (``make pictures``) and looked at.
"""

from __future__ import annotations

import io
import re
import shlex
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Final

from rich.console import Console
from rich.text import Text

#: Name of a picture, and its command.
PICTURES: Final = {
    "ha": "understudy ha --instance a",
    "status": "understudy status --instance a",
    "explain": "understudy queue explain orders --instance a",
    "top": "understudy top --instance a --once",
}
COLUMNS: Final = 110
_PAIR: Final = """
set -e
ip link set lo up
echo a-long-cluster-password >cluster-password
common="--allow-anonymous --data $PWD/store --cluster-password-file cluster-password"
understudy create a $common --port 61616 --partner 127.0.0.1:61617
understudy create b $common --port 61617 --partner 127.0.0.1:61616 --backup
understudy run --instance a --http 127.0.0.1:8161 &
until understudy status --instance a; do sleep 0.2; done
understudy run --instance b --http 127.0.0.1:8162 &
until understudy ha --instance a; do sleep 0.2; done
understudy produce --queue orders --count 1200
understudy produce --queue invoices --count 40
understudy consume --queue invoices --count 40
understudy produce --queue parcels --rate 300 >/dev/null &
understudy produce --queue letters --rate 40 >/dev/null &
for queue in parcels parcels letters; do understudy consume --queue $queue --follow >/dev/null & done
until understudy queue show parcels --instance a; do sleep 0.2; done
"""
#: The font of the drawing is one of the reader: nothing is loaded from another host.
_FONTS: Final = re.compile(r"@font-face \{.*?\}\s*", re.DOTALL)


def outputs(directory: Path) -> dict[str, str]:
    """Output of each command, with the sequences that colour it, from a pair in a directory."""
    commands = [
        f"script --quiet --command {shlex.quote(f'stty columns {COLUMNS}; {command}')} /dev/null >{name}.out"
        for name, command in PICTURES.items()
    ]
    whole = "\n".join([_PAIR, *commands])
    own = ["unshare", "--net", "--pid", "--fork", "--kill-child", "--mount-proc"]
    subprocess.run([*own, "bash", "-c", whole], cwd=directory, check=True, stdout=subprocess.DEVNULL)
    return {name: (directory / f"{name}.out").read_text() for name in PICTURES}


def picture(command: str, output: str) -> str:
    """A terminal with a command and its output, as SVG."""
    console = Console(record=True, width=COLUMNS, file=io.StringIO(), force_terminal=True)
    console.print(Text(f"$ {command}", style="bold"))
    console.print(Text.from_ansi(output.replace("\r", "").rstrip()))
    return _FONTS.sub("", console.export_svg(title=command, unique_id=command.split()[1]))


def main(folder: Path) -> None:
    """Write a picture of each command into a folder."""
    with tempfile.TemporaryDirectory() as directory:
        found = outputs(Path(directory))
    folder.mkdir(parents=True, exist_ok=True)
    for name, command in PICTURES.items():
        (folder / f"{name}.svg").write_text(picture(command, found[name]))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
