"""Goal: unusable files of TLS are named without quoting them, and a rotation keeps every authority exactly once."""

from __future__ import annotations

import base64

import pytest
from ansible_collections.understudy.broker.plugins.module_utils.pem import certificates, find_faults, fingerprint, union
from hypothesis import given
from hypothesis import strategies as st


def block(data: bytes, kind: str = "CERTIFICATE") -> str:
    text = base64.encodebytes(data).decode().strip()
    return f"-----BEGIN {kind}-----\n{text}\n-----END {kind}-----\n"


NODE = block(b"certificate") + block(b"issuer") + block(b"a secret", "EC PRIVATE KEY")
AUTHORITY = block(b"authority")
DATA = st.lists(st.binary(min_size=1, max_size=80), max_size=5)


@given(DATA, DATA)
def test_a_union_has_each_certificate_once_the_wanted_ones_first(present: list[bytes], wanted: list[bytes]) -> None:
    comments = "".join(f"# authority\r\n{block(each)}" for each in present)
    found = [fingerprint(each) for each in certificates(union(comments, "".join(map(block, wanted))))]
    expected = list(dict.fromkeys(fingerprint(block(each)) for each in (*wanted, *present)))
    assert found == expected
    again = union("".join(map(block, wanted)), union(comments, "".join(map(block, wanted))))
    assert [fingerprint(each) for each in certificates(again)] == expected


def test_usable_files_have_no_fault() -> None:
    files = [{"name": "broker.pem", "content": NODE}, {"name": "ca.pem", "content": AUTHORITY, "authorities": True}]
    assert find_faults(files) == []


@pytest.mark.parametrize(
    ("files", "expected"),
    [
        ([{"name": "../x", "content": NODE}], ["cannot be the name of a file"]),
        ([{"name": "broker.xml", "content": NODE}], ["cannot be the name of a file"]),
        ([{"name": "a.staged", "content": NODE}], ["cannot be the name of a file"]),
        ([{"name": "a", "content": NODE}, {"name": "a", "content": NODE}], ["is given twice"]),
        ([{"name": "a", "content": "a secret"}], ["has no certificate in PEM format"]),
        ([{"name": "a", "content": AUTHORITY}], ["has 0 private keys"]),
        ([{"name": "a", "content": NODE + block(b"a secret", "PRIVATE KEY")}], ["has 2 private keys"]),
        ([{"name": "a", "content": NODE, "authorities": True}], ["has a private key, which does not belong"]),
        (
            [{"name": "a", "content": AUTHORITY.replace("\n", "\n*", 1), "authorities": True}],
            ["a CERTIFICATE is damaged"],
        ),
    ],
)
def test_a_fault_names_the_entry_and_quotes_nothing(files: list[dict[str, object]], expected: list[str]) -> None:
    found = find_faults(files)
    assert len(found) == len(expected)
    for fault, part in zip(found, expected, strict=True):
        assert part in fault
        assert fault.startswith(f"broker_tls_files[{len(files) - 1}]")
        assert base64.b64encode(b"a secret").decode() not in fault
        assert "a secret" not in fault
