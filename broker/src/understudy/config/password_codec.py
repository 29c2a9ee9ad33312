"""Masked passwords in broker.xml, in the form of Artemis' default codec (``DefaultSensitiveStringCodec``).

``ENC(hexadecimal)`` is the Blowfish encryption of the password's UTF-8 bytes, written as Java writes a signed
big integer: with a minus sign where the first bit is set. Values masked by ``artemis mask`` are read here, and
those of ``understudy mask`` by Artemis. The key comes from ``password-codec``, else from the environment variable
``ARTEMIS_DEFAULT_SENSITIVE_STRING_CODEC_KEY``, else it is Artemis' default, which is public.

Not here: passwords of users, which are hashed and never unmasked (``security.authentication``).
"""

from __future__ import annotations

from typing import Final

from understudy.limits import CLUSTER_PASSWORD_CHARACTERS_MIN

KEY_VARIABLE: Final = "ARTEMIS_DEFAULT_SENSITIVE_STRING_CODEC_KEY"
CODEC_CLASS: Final = "org.apache.activemq.artemis.utils.DefaultSensitiveStringCodec"
#: Longest masked value that is looked at. Characters.
MASKED_CHARACTERS_MAX: Final = 16 * 1024
_DEFAULT_KEY: Final = b"clusterpassword"
_KEY_BYTES_MAX: Final = 56
#: The cipher takes keys of at least so many bytes. It repeats a key, so a shorter one equals a multiple of itself.
_KEY_BYTES_MIN: Final = 4
_BLOCK_BITS: Final = 64


class PasswordCodec:
    """Masks and unmasks passwords under one key."""

    def __init__(self, key: str | None = None) -> None:
        """Args:
        key: None is Artemis' default key.

        Raises:
            ValueError: an empty key, or one of more than 56 bytes.
        """
        self._key = _DEFAULT_KEY if key is None else key.encode("utf-8", "surrogatepass")
        if not 0 < len(self._key) <= _KEY_BYTES_MAX:
            raise ValueError(f"a key has 1 to {_KEY_BYTES_MAX} bytes, not {len(self._key)}")

    def mask(self, password: str) -> str:
        """``ENC(...)`` of a password."""
        number = int.from_bytes(_encrypt(self._key, password.encode("utf-8", "surrogatepass")), "big", signed=True)
        return f"ENC({number:x})"

    def unmask(self, text: str) -> str:
        """The password of a masked text, with or without ``ENC(...)`` around it.

        Raises:
            ValueError: it is none of this key; the message does not show it.
        """
        bare = text[4:-1] if is_masked(text) else text
        digits = bare.removeprefix("-")
        if not digits or len(bare) > MASKED_CHARACTERS_MAX or not set(digits) <= set("0123456789abcdefABCDEF"):
            raise ValueError("a masked password is hexadecimal")
        number = int(bare, 16)
        # of two's complement, to whole blocks: Java leaves bytes out in front that only repeat the sign
        length = ((~number if number < 0 else number).bit_length() // 64 + 1) * 8
        try:
            return _decrypt(self._key, number.to_bytes(length, "big", signed=True)).decode("utf-8")
        except _NoBlowfish:
            raise
        except ValueError:
            raise ValueError("the masked password cannot be read with this key") from None


#: Warning of a cluster connection with the default password (ADR 0139).
PUBLIC_PASSWORD: Final = (
    "the default cluster-password is public, so members link over loopback addresses only: for members on several hosts"
    f" set cluster-password ({CLUSTER_PASSWORD_CHARACTERS_MIN} characters or more, the same on all nodes)"
)


def length_fault(cluster_password: str) -> str | None:
    """Reason why a cluster password is too short; None: it is not."""
    if len(cluster_password) >= CLUSTER_PASSWORD_CHARACTERS_MIN:
        return None
    return f"is shorter than {CLUSTER_PASSWORD_CHARACTERS_MIN} characters"


def is_masked(text: str) -> bool:
    """Whether a value is of the form ``ENC(...)``."""
    return text.startswith("ENC(") and text.endswith(")")


def codec_of(definition: str | None, key: str | None) -> PasswordCodec:
    """The codec that ``password-codec`` describes.

    Args:
        definition: ``class;name=value;...``; None or empty is the default codec.
        key: That of the environment; a ``key`` in the definition goes before it.

    Raises:
        ValueError: another class, an unknown parameter, or a key that cannot be used.
    """
    if not definition:
        return PasswordCodec(key)
    class_name, *parameters = (part.strip() for part in definition.split(";"))
    if class_name != CODEC_CLASS:
        raise ValueError(f"{class_name!r}: Java classes cannot be loaded here; only {CODEC_CLASS} is known")
    for parameter in filter(None, parameters):
        name, separator, value = parameter.partition("=")
        if name == "key" and separator:
            key = value
        elif (name, value) != ("algorithm", "two-way"):
            raise ValueError(f"parameter {name!r} of {CODEC_CLASS} cannot be used: key=..., or algorithm=two-way")
    return PasswordCodec(key)


class _NoBlowfish(ValueError):
    """The cryptography of this host has no Blowfish."""


def _run(key: bytes, data: bytes, *, decrypts: bool) -> bytes:
    """Blowfish in ECB mode. Raises ValueError: the data are no whole blocks, or there is no such cipher."""
    # imported when a masked password occurs, which is seldom: it takes milliseconds of a start
    from cryptography.exceptions import UnsupportedAlgorithm
    from cryptography.hazmat.decrepit.ciphers.algorithms import Blowfish
    from cryptography.hazmat.primitives.ciphers import Cipher, modes

    cipher = Cipher(Blowfish(key * _KEY_BYTES_MIN if len(key) < _KEY_BYTES_MIN else key), modes.ECB())
    try:
        step = cipher.decryptor() if decrypts else cipher.encryptor()
    except UnsupportedAlgorithm as error:
        raise _NoBlowfish(
            "OpenSSL of this host offers no Blowfish, which masked passwords need: write the password without a mask"
        ) from error
    return step.update(data) + step.finalize()


def _encrypt(key: bytes, plain: bytes) -> bytes:
    """The padded text (PKCS #7), encrypted as by the default codec of Artemis."""
    from cryptography.hazmat.primitives.padding import PKCS7

    padding = PKCS7(_BLOCK_BITS).padder()
    return _run(key, padding.update(plain) + padding.finalize(), decrypts=False)


def _decrypt(key: bytes, encrypted: bytes) -> bytes:
    """Decrypt a text and remove its padding. Raises ValueError: it was not encrypted with this key."""
    from cryptography.hazmat.primitives.padding import PKCS7

    padding = PKCS7(_BLOCK_BITS).unpadder()
    return padding.update(_run(key, encrypted, decrypts=True)) + padding.finalize()
