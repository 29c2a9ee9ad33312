"""Facts of X.509 certificates: the subject's distinguished name and the end of validity, from DER or PEM.

The certificates have been verified by OpenSSL, or are our own; this module only extracts fields (RFC 5280, s. 4.1).
Distinguished names are written as Java writes them: ``DistinguishedName.text`` like ``X500Name.getName()``, which
Artemis shows and compares, and ``rfc2253`` like ``X500Principal.getName()``.
"""

from __future__ import annotations

import re
from base64 import b64decode
from collections.abc import Iterator
from datetime import UTC, datetime
from hashlib import sha256
from typing import Final

from understudy.dataclass import dataclass

_SEQUENCE: Final = 0x30
_SET: Final = 0x31
_OID: Final = 0x06
_UTC_TIME: Final = 0x17
_GENERALIZED_TIME: Final = 0x18
_VERSION: Final = 0xA0
#: Longest length of a length in DER. Bytes.
_LENGTH_BYTES_MAX: Final = 4
#: Encodings of strings by tag: UTF8, Printable, T61, IA5, Universal, BMP.
_STRINGS: Final = {0x0C: "utf-8", 0x13: "ascii", 0x14: "latin-1", 0x16: "ascii", 0x1C: "utf-32-be", 0x1E: "utf-16-be"}
#: Keywords of RFC 2253 by object identifier.
_RFC2253: Final = {
    "2.5.4.3": "CN",
    "2.5.4.6": "C",
    "2.5.4.7": "L",
    "2.5.4.8": "ST",
    "2.5.4.9": "STREET",
    "2.5.4.10": "O",
    "2.5.4.11": "OU",
    "0.9.2342.19200300.100.1.25": "DC",
    "0.9.2342.19200300.100.1.1": "UID",
}
#: Further ones that Java writes.
_JAVA: Final = _RFC2253 | {
    "1.2.840.113549.1.9.1": "EMAILADDRESS",
    "2.5.4.4": "SURNAME",
    "2.5.4.5": "SERIALNUMBER",
    "2.5.4.12": "T",
    "2.5.4.42": "GIVENNAME",
    "2.5.4.43": "INITIALS",
    "2.5.4.44": "GENERATION",
    "2.5.4.46": "DNQUALIFIER",
}
_ALIASES: Final = {"S": "ST", "E": "EMAILADDRESS", "EMAIL": "EMAILADDRESS", "DNQ": "DNQUALIFIER", "TITLE": "T"}
_PEM: Final = re.compile(rb"-----BEGIN ([A-Z0-9 ]+)-----(.*?)-----END \1-----", re.DOTALL)


@dataclass(frozen=True, slots=True)
class DistinguishedName:
    """Subject of a certificate."""

    text: str
    """The name as Artemis shows it, most specific part first: ``CN=client, OU=systems, O=Example``."""
    rfc2253: str
    """Text of the name in the form of RFC 2253: ``CN=client,OU=systems,O=Example``."""


@dataclass(frozen=True, slots=True)
class CertificateFacts:
    """Facts of one certificate that are not secret."""

    subject: str
    not_after_ms: int
    """End of validity, wall time."""
    sha256: str
    """SHA-256 fingerprint of the certificate, hexadecimal."""


class _Der:
    """Reader of DER elements, one after the other."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._offset = 0

    def element(self) -> tuple[int, bytes, bytes]:
        """Tag, contents and whole encoding of the next element. Raises ValueError."""
        data, start = self._data, self._offset
        if start + 2 > len(data):
            raise ValueError("the certificate is truncated")
        tag, length, offset = data[start], data[start + 1], start + 2
        if length & 0x80:
            size = length & 0x7F
            if not 1 <= size <= _LENGTH_BYTES_MAX or offset + size > len(data):
                raise ValueError("the certificate has an invalid length")
            length, offset = int.from_bytes(data[offset : offset + size], "big"), offset + size
        end = offset + length
        if end > len(data):
            raise ValueError("the certificate is truncated")
        self._offset = end
        return tag, data[offset:end], data[start:end]

    def contents(self, tag: int) -> bytes:
        """Contents of the next element, which must have this tag. Raises ValueError."""
        found, contents, _ = self.element()
        if found != tag:
            raise ValueError(f"the certificate has an element {found:#x} in the place of {tag:#x}")
        return contents

    @property
    def next_tag(self) -> int | None:
        """Tag of the next element; None at the end."""
        return self._data[self._offset] if self._offset < len(self._data) else None


def facts_of(der: bytes) -> CertificateFacts:
    """Facts of a certificate. Raises ValueError: it is malformed."""
    subject, not_after_ms = _fields(der)
    return CertificateFacts(_name(subject).text, not_after_ms, sha256(der).hexdigest())


def subject_of(der: bytes) -> DistinguishedName:
    """Subject of a certificate. Raises ValueError: it is malformed."""
    return _name(_fields(der)[0])


def _fields(der: bytes) -> tuple[bytes, int]:
    """Contents of the subject, and the end of validity in milliseconds."""
    fields = _Der(_Der(_Der(der).contents(_SEQUENCE)).contents(_SEQUENCE))
    if fields.next_tag == _VERSION:
        fields.element()
    for _ in range(3):  # serial number, signature algorithm, issuer
        fields.element()
    validity = _Der(fields.contents(_SEQUENCE))
    validity.element()
    tag, time, _ = validity.element()
    return fields.contents(_SEQUENCE), _time_ms(tag, time)


def _time_ms(tag: int, text: bytes) -> int:
    if tag not in (_UTC_TIME, _GENERALIZED_TIME):
        raise ValueError("the certificate has no end of validity")
    digits = text.decode("ascii")
    if tag == _UTC_TIME:
        # RFC 5280, s. 4.1.2.5.1: two digits of the year mean 1950 to 2049
        digits = ("20" if digits[:2] < "50" else "19") + digits
    when = datetime.strptime(digits, "%Y%m%d%H%M%SZ").replace(tzinfo=UTC)
    return int(when.timestamp()) * 1000


def _name(contents: bytes) -> DistinguishedName:
    texts: list[str] = []
    standard: list[str] = []
    for parts in _relative_names(contents):
        texts.append(" + ".join(_java_part(*part) for part in parts))
        standard.append("+".join(_rfc2253_part(*part) for part in parts))
    # the least specific part comes first in a certificate, and last in the text
    return DistinguishedName(", ".join(reversed(texts)), ",".join(reversed(standard)))


def _relative_names(contents: bytes) -> Iterator[list[tuple[str, str | None, bytes]]]:
    """Parts of a name: object identifier, value as text (None: no string), encoding of the value."""
    names = _Der(contents)
    while names.next_tag is not None:
        members = _Der(names.contents(_SET))
        parts = []
        while members.next_tag is not None:
            attribute = _Der(members.contents(_SEQUENCE))
            identifier = _identifier(attribute.contents(_OID))
            tag, value, encoding = attribute.element()
            text = value.decode(_STRINGS[tag], "replace") if tag in _STRINGS else None
            parts.append((identifier, text, encoding))
        yield parts


def _identifier(data: bytes) -> str:
    numbers: list[int] = []
    value = 0
    for byte in data:
        value = value << 7 | byte & 0x7F
        if not byte & 0x80:
            numbers.append(value)
            value = 0
    if not numbers:
        raise ValueError("the certificate has an empty object identifier")
    first = min(numbers[0] // 40, 2)
    return ".".join(map(str, (first, numbers[0] - 40 * first, *numbers[1:])))


def _java_part(identifier: str, text: str | None, encoding: bytes) -> str:
    keyword = _JAVA.get(identifier, f"OID.{identifier}")
    if text is None:
        return f"{keyword}=#{encoding.hex()}"
    if any(character in ',+=\n<>#;\\"' for character in text) or text != text.strip() or "  " in text:
        escaped = text.replace("\\", "\\\\").replace('"', '\\"')
        return f'{keyword}="{escaped}"'
    return f"{keyword}={text}"


def _rfc2253_part(identifier: str, text: str | None, encoding: bytes) -> str:
    keyword = _RFC2253.get(identifier)
    if keyword is None or text is None:
        return f"{keyword or identifier}=#{encoding.hex()}"
    escaped = re.sub(r'([,=+<>#;"\\])', r"\\\1", text).replace("\0", "\\00")
    inner = escaped.strip(" ")
    before = len(escaped) - len(escaped.lstrip(" "))
    after = len(escaped) - before - len(inner)
    return f"{keyword}=" + "\\ " * before + inner + "\\ " * after


def normalised(name: str) -> str:
    """A distinguished name as text in a form that does not depend on spaces, quotes or the case of keywords.

    Two names of the same certificate, one as ``DistinguishedName.text`` and one as ``rfc2253`` writes it, are equal
    after this as long as all their keywords are standard ones.
    """
    parts = []
    for part in _split(name):
        keyword, equals, value = part.partition("=")
        word = keyword.strip().upper()
        parts.append(f"{_ALIASES.get(word, word)}{equals}{_unquoted(value)}")
    return "\n".join(parts)


def _split(name: str) -> Iterator[str]:
    """The parts between commas and plus signs that are neither quoted nor escaped."""
    part: list[str] = []
    quoted = escaped = False
    for character in name:
        if not escaped and not quoted and character in ",;+":
            yield "".join(part)
            part = []
            continue
        quoted ^= character == '"' and not escaped
        escaped = character == "\\" and not escaped
        part.append(character)
    yield "".join(part)


def _unquoted(value: str) -> str:
    value = value.lstrip(" ")
    bare = value.rstrip(" ")
    if bare.startswith('"') and bare.endswith('"') and len(bare) > 1:
        value = bare[1:-1]
    elif not bare.endswith("\\"):
        value = bare
    return re.sub(r"\\(.)", r"\1", value)


def pem_blocks(data: bytes, label: str) -> Iterator[bytes]:
    """DER of the PEM blocks with a label such as ``CERTIFICATE``. Raises ValueError: a block is not base64."""
    for match in _PEM.finditer(data):
        if match[1].decode().endswith(label):
            yield b64decode(match[2], validate=False)
