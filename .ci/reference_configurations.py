"""Read every broker.xml below some folders as ``understudy run --check`` does, and print a table of the results.

For the files of Apache ActiveMQ Artemis and its examples (docs/build/reliability.md):

    git clone https://github.com/apache/activemq-artemis && git clone https://github.com/apache/activemq-artemis-examples
    .venv/bin/python .ci/reference_configurations.py activemq-artemis activemq-artemis-examples

Users files and key stores are not looked at: most of them are made when the examples are built.
"""

from __future__ import annotations

import re
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

from lxml import etree
from understudy.cli.node.run import read_configuration
from understudy.errors import ConfigError

SHORT_PASSWORD = "a cluster password with less than 12 characters"
#: Beginning or part of an error, and the reason in the table.
REASONS = (
    ("cluster-password: is shorter", SHORT_PASSWORD),
    ("Java key store", "a key store that only Java reads (the error prints the `keytool` command)"),
    ("cannot be loaded here", "a class of one's own: transformer or password codec"),
    ("Java classes cannot be loaded", "a class of one's own: transformer or password codec"),
    ("unexpected text '${", "a template of `artemis create`, which is no XML configuration before it is filled in"),
    ("not well-formed XML", "no well-formed XML"),
)
OWN_PASSWORD = "<cluster-user>checked</cluster-user><cluster-password>a password of this check</cluster-password>"


def configurations(folder: Path) -> Iterator[Path]:
    """The files named like broker.xml whose root is ``configuration``, damaged ones included."""
    for path in sorted(folder.rglob("*[bB]roker*.xml")):
        try:
            root = etree.parse(path).getroot()
        except etree.XMLSyntaxError:
            yield path
            continue
        if etree.QName(root).localname == "configuration":
            yield path


def fault(path: Path, directory: Path) -> str | None:
    """Why a file cannot be used; None: it can."""
    try:
        read_configuration(path, directory, ())
    except ConfigError as error:
        text = str(error)
        return next((reason for part, reason in REASONS if part in text), text.replace(str(directory), ""))
    return None


def with_own_password(text: str) -> str:
    """A broker.xml with another cluster user and password."""
    text = re.sub(r"<cluster-(user|password)>[^<]*</cluster-\1>", "", text)
    return re.sub(r"(<core\b[^>]*>)", rf"\1{OWN_PASSWORD}", text, count=1)


def main(folders: list[str]) -> None:
    reasons: Counter[str] = Counter()
    count = usable_with_password = 0
    with tempfile.TemporaryDirectory() as scratch:
        for path in (path for folder in folders for path in configurations(Path(folder))):
            count += 1
            found = fault(path, path.parent)
            if found is None:
                continue
            reasons[found] += 1
            if found == SHORT_PASSWORD:
                copy = Path(scratch) / "broker.xml"
                copy.write_text(with_own_password(path.read_text()))
                left = fault(copy, path.parent)
                usable_with_password += left is None
                if left is not None:
                    print(f"{path}: also {left}", file=sys.stderr)
    refused = reasons.total()
    print(f"{count} files, {count - refused} usable, {usable_with_password} more with a longer cluster password\n")
    print("| Refused | Reason |\n|---|---|")
    for reason, number in reasons.most_common():
        print(f"| {number} | {reason} |")


if __name__ == "__main__":
    main(sys.argv[1:])
