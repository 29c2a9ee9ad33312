"""PEM files of TLS: what they must have in them, and files of authorities that overlap during a rotation.

Pure. Faults name the file and never quote its content.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import re
from collections.abc import Mapping, Sequence

CERTIFICATE = "CERTIFICATE"
_BLOCK = re.compile(r"-----BEGIN ([A-Z0-9 ]{1,40})-----\n(.*?)\n-----END \1-----", re.DOTALL)
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}", re.ASCII)

TAKEN = (
    *("broker.xml", "artemis-users.properties", "artemis-roles.properties", "service.json", "management.token"),
    *("witness-secret", "cert-users.properties", "cert-roles.properties"),
)
"""Names in ``etc`` of an instance that other files have."""


def blocks(text: str) -> list[tuple[str, str]]:
    """Kind and whole text of each block of a PEM file."""
    normal = text.replace("\r\n", "\n")
    return [(match[1], f"{match[0]}\n") for match in _BLOCK.finditer(normal)]


def certificates(text: str) -> list[str]:
    """The certificates of a PEM file, each with its lines."""
    return [block for kind, block in blocks(text) if kind == CERTIFICATE]


def der_of(block: str) -> bytes:
    """The bytes of one block.

    Raises:
        ValueError: it is no base64.
    """
    lines = [line.strip() for line in block.strip().splitlines()[1:-1] if ":" not in line]
    try:
        return base64.b64decode("".join(lines), validate=True)
    except binascii.Error as error:
        raise ValueError(f"a {CERTIFICATE} is damaged: {error}") from error


def fingerprint(block: str) -> str:
    """SHA-256 of a certificate in hexadecimal digits.

    Raises:
        ValueError: it is damaged.
    """
    return hashlib.sha256(der_of(block)).hexdigest()


def union(present: str, wanted: str) -> str:
    """The wanted certificates, and after them those of the present file that are not among them.

    Raises:
        ValueError: a certificate is damaged.
    """
    found: dict[str, str] = {}
    for block in (*certificates(wanted), *certificates(present)):
        found.setdefault(fingerprint(block), block)
    return "".join(found.values())


def find_faults(files: Sequence[Mapping[str, object]]) -> list[str]:
    """What is wrong with ``broker_tls_files``; each fault names the entry."""
    faults: list[str] = []
    seen: set[str] = set()
    for index, entry in enumerate(files):
        name, content = str(entry.get("name") or ""), str(entry.get("content") or "")
        where = f"broker_tls_files[{index}] ({name})"
        if not _NAME.fullmatch(name) or name in TAKEN or name.endswith(".staged"):
            faults.append(f"{where}: cannot be the name of a file of TLS in etc; give a plain name such as broker.pem")
        if name in seen:
            faults.append(f"{where}: is given twice")
        seen.add(name)
        faults.extend(f"{where}: {problem}" for problem in _content_faults(content, bool(entry.get("authorities"))))
    return faults


def _content_faults(content: str, authorities: bool) -> list[str]:
    kinds = [kind for kind, _text in blocks(content)]
    if CERTIFICATE not in kinds:
        return ["has no certificate in PEM format"]
    found = []
    keys = [kind for kind in kinds if kind.endswith("PRIVATE KEY")]
    if authorities and keys:
        found.append("has a private key, which does not belong among certificates of authorities")
    if not authorities and len(keys) != 1:
        found.append(f"has {len(keys)} private keys; give the certificate, its intermediate issuers and one key")
    try:
        for block in certificates(content):
            fingerprint(block)
    except ValueError as error:
        found.append(str(error))
    return found
