"""Masked passwords: the bytes of Artemis' default codec, its keys, and refused inputs."""

from __future__ import annotations

import json
from typing import NoReturn

import click.testing
import pytest
from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives.ciphers import Cipher, modes
from hypothesis import given
from hypothesis import strategies as st

from support.config import FILE, core
from understudy.cli.mask import mask
from understudy.config.model import Configuration
from understudy.config.password_codec import CODEC_CLASS, KEY_VARIABLE, PasswordCodec, codec_of
from understudy.config.reading.reader import read_broker_xml
from understudy.errors import ConfigError

#: Of Artemis' manual and tests: key (None is the default), password, masked.
ARTEMIS = [
    (None, "guest", "80cf731af62c290"),
    (None, "password", "3a34fd21b82bf2a822fa49a8d8fa115d"),
    ("artemisfun", "password", "-2b8e3b47950b9b481a6f3100968e42e9"),
]


@pytest.mark.parametrize(("key", "password", "masked"), ARTEMIS)
def test_passwords_are_masked_and_unmasked_as_by_artemis(key: str | None, password: str, masked: str) -> None:
    codec = PasswordCodec(key)
    assert codec.mask(password) == f"ENC({masked})"
    assert codec.unmask(f"ENC({masked})") == codec.unmask(masked) == password


@given(st.text(max_size=50), st.one_of(st.none(), st.text("abc€", min_size=1, max_size=18)))
def test_every_password_comes_back(password: str, key: str | None) -> None:
    codec = PasswordCodec(key)
    assert codec.unmask(codec.mask(password)) == password


@pytest.mark.parametrize(
    "text", ["", "-", "ENC()", "ENC(xyz)", "ENC(0x12)", "ENC(1_2)", "ENC(12)", "ENC(٣)", "1" * 20_000]
)
def test_a_text_that_was_not_masked_is_refused_without_showing_it(text: str) -> None:
    with pytest.raises(ValueError, match="masked password") as caught:
        PasswordCodec().unmask(text)
    assert text not in str(caught.value) or not text


def test_another_key_does_not_read_it() -> None:
    with pytest.raises(ValueError, match="cannot be read with this key"):
        PasswordCodec("other").unmask(PasswordCodec("one").mask("a password"))


@pytest.mark.parametrize("key", ["", "x" * 57])
def test_keys_have_limits(key: str) -> None:
    with pytest.raises(ValueError, match="1 to 56 bytes"):
        PasswordCodec(key)


def test_a_key_of_the_definition_goes_before_that_of_the_environment() -> None:
    masked = PasswordCodec("inside").mask("pw")
    assert codec_of(f"{CODEC_CLASS};key=inside", "outside").unmask(masked) == "pw"
    assert codec_of(f"{CODEC_CLASS};algorithm=two-way", "inside").unmask(masked) == "pw"
    assert codec_of(None, "inside").unmask(masked) == "pw"


@pytest.mark.parametrize(
    "definition",
    ["com.example.Codec", f"{CODEC_CLASS};algorithm=one-way", f"{CODEC_CLASS};kee=x", f"{CODEC_CLASS};key"],
)
def test_other_codecs_are_refused_by_name(definition: str) -> None:
    with pytest.raises(ValueError, match=r"Java classes|cannot be used"):
        codec_of(definition, None)


# -- broker.xml -----------------------------------------------------------------------------------------


def read(body: str, key: str | None = None) -> Configuration:
    return read_broker_xml(core(body), file=FILE, codec_key=key).configuration


def password_of(text: str, more: str = "", key: str | None = None) -> str:
    return read(f"{more}<cluster-password>{text}</cluster-password>", key).cluster_password


def test_a_masked_cluster_password_is_unmasked() -> None:
    masked = "3023ace25a6bbcb22a55a271554c75105c3b51cfd1093d2a"
    assert password_of(f"ENC({masked})") == "guest of this cluster"
    assert password_of(masked) == masked
    assert password_of(masked, "<mask-password>true</mask-password>") == "guest of this cluster"
    assert password_of(f"ENC({masked})", "<mask-password>false</mask-password>") == f"ENC({masked})"
    assert password_of(PasswordCodec("k").mask("another password"), key="k") == "another password"
    definition = f"<password-codec>{CODEC_CLASS};key=k</password-codec>"
    assert password_of(PasswordCodec("k").mask("another password"), definition) == "another password"


@pytest.mark.parametrize(
    ("body", "path"),
    [
        ("<cluster-password>ENC(secretvalue)</cluster-password>", "core/cluster-password"),
        ("<password-codec>com.example.Codec</password-codec>", "core/password-codec"),
    ],
)
def test_a_password_that_cannot_be_unmasked_is_an_error_of_its_element(body: str, path: str) -> None:
    with pytest.raises(ConfigError) as caught:
        read(body)
    assert path in str(caught.value)
    assert "secretvalue" not in str(caught.value)


# -- understudy mask --------------------------------------------------------------------------------------


def test_the_command_masks_an_argument_or_a_line_of_its_input() -> None:
    runner = click.testing.CliRunner()
    keyed = {KEY_VARIABLE: "artemisfun"}
    for arguments, given_line in ((["password"], None), ([], "password\n")):
        done = runner.invoke(mask, arguments, input=given_line, env=keyed)
        assert done.output == "ENC(-2b8e3b47950b9b481a6f3100968e42e9)\n"
    done = runner.invoke(mask, ["--json"], input="password\n", env=keyed)
    assert json.loads(done.output) == {"masked": "ENC(-2b8e3b47950b9b481a6f3100968e42e9)", "default_key": False}
    done = runner.invoke(mask, ["password"], env={KEY_VARIABLE: None})
    assert "ENC(3a34fd21b82bf2a822fa49a8d8fa115d)" in done.output
    assert "the default key is public" in done.output
    assert runner.invoke(mask, [], input="\n", env=keyed).exit_code == 2


def test_a_host_without_the_cipher_gets_an_error_with_the_next_step(monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(self: Cipher[modes.ECB]) -> NoReturn:
        raise UnsupportedAlgorithm("no legacy provider")

    monkeypatch.setattr(Cipher, "decryptor", refused)
    with pytest.raises(ValueError, match=r"offers no Blowfish.*without a mask"):
        PasswordCodec().unmask("ENC(80cf731af62c290)")


@pytest.mark.parametrize("key", ["k", "ke", "key", "k" * 56])
def test_keys_of_one_to_56_bytes_mask_and_unmask(key: str) -> None:
    codec = PasswordCodec(key)
    assert codec.unmask(codec.mask("a password")) == "a password"
