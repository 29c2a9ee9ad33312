"""``login.config`` beside broker.xml: the login modules of JAAS that Artemis uses, as far as they exist here.

The file names realms, each with login modules and their options. The modules for users files, LDAP, certificates of
clients and guests are mapped onto the logins that exist here (``security``); every other one is reported, because its
users cannot log in. Source: Artemis manual, "Security", *Login modules*; the syntax is that of
``javax.security.auth.login.Configuration``.

Not here: reading the file, and the logins themselves.
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import field, replace
from typing import Final

from understudy.config.logins.ldap_login import LdapLogin, read_ldap_login
from understudy.dataclass import dataclass
from understudy.errors import ConfigError
from understudy.limits import LOGIN_CONFIG_CHARACTERS_MAX

#: Realm that the bootstrap.xml of a new Artemis instance names.
DEFAULT_REALM: Final = "activemq"
_PACKAGE: Final = "org.apache.activemq.artemis.spi.core.security.jaas."
PROPERTIES: Final = f"{_PACKAGE}PropertiesLoginModule"
CERTIFICATES: Final = f"{_PACKAGE}TextFileCertificateLoginModule"
GUEST: Final = f"{_PACKAGE}GuestLoginModule"
LDAP: Final = f"{_PACKAGE}LDAPLoginModule"
#: Why other modules of Artemis are left aside, and what to do, by their class without the package.
LEFT_ASIDE: Final = {
    "KubernetesLoginModule": "Kubernetes tokens are no login here; write the users into the users file",
    "OIDCLoginModule": "tokens of an OpenID provider are no login here; write the users into the users file",
    "Krb5LoginModule": "Kerberos is no login here; write the users into the users file",
    "Krb5LoginModuleWrapper": "Kerberos is no login here; write the users into the users file",
    "ExternalCertificateLoginModule": "name the subjects of certificates in cert-users.properties",
    "SCRAMLoginModule": "SCRAM is no login here; write the users into the users file, with `understudy user hash`",
    "SCRAMPropertiesLoginModule": "SCRAM is no login here; write them into the users file, with `understudy user hash`",
    "DirectAccessGrantsLoginModule": "Keycloak is no login here; write the users into the users file",
    "BearerTokenLoginModule": "Keycloak is no login here; write the users into the users file",
    "PrincipalConversionLoginModule": "it only renames principals of other modules",
    "InVMLoginModule": "it is for embedded brokers",
}
_KERBEROS: Final = "authentication=GSSAPI is Kerberos, which is not served; simple, with a name and a password, is"
_OWN_CLASS: Final = "Java classes cannot be loaded here; write the users into the users file"
_FLAGS: Final = ("required", "requisite", "sufficient", "optional")
_TOKEN: Final = re.compile(
    r"""\s+ | //[^\n]* | \#[^\n]* | /\*.*?\*/
    | (?P<text>"(?:\\.|[^"\\])*") | (?P<sign>[{};=]) | (?P<word>[^\s{};="]+)""",
    re.VERBOSE | re.DOTALL,
)


@dataclass(frozen=True, slots=True)
class LoginModule:
    """One login module of a realm."""

    class_name: str
    flag: str
    options: Mapping[str, str]
    line: int

    @property
    def name(self) -> str:
        """The name of the module's class without the package."""
        return self.class_name.rpartition(".")[2]


@dataclass(frozen=True, slots=True)
class PasswordModule:
    """A login module that checks passwords: that of the users file, or one for LDAP."""

    flag: str
    ldap: LdapLogin | None = None
    """None: the users file."""


@dataclass(frozen=True, slots=True)
class Logins:
    """Logins of a realm that exist here."""

    users_file: str | None = None
    """Names of files, relative to the folder of ``login.config``; None: the usual name."""
    roles_file: str | None = None
    certificate_users_file: str | None = None
    certificate_roles_file: str | None = None
    guest_user: str | None = None
    """User of clients without credentials; None: there is none."""
    guest_role: str = "guests"
    guest_on_wrong_credentials: bool = False
    passwords: tuple[PasswordModule, ...] = ()
    """Login modules that check passwords, in their order; empty: the users file alone."""
    warnings: tuple[str, ...] = field(default=())
    """Modules that are left aside and options without effect, each with its line and what to do."""

    @property
    def has_users_file(self) -> bool:
        """Whether users of the users file can log in."""
        return not self.passwords or any(each.ldap is None for each in self.passwords)


def read_realms(text: str, file: str) -> dict[str, tuple[LoginModule, ...]]:
    """The login modules of each realm of a file.

    Args:
        text: Contents of the file, at most ``LOGIN_CONFIG_CHARACTERS_MAX`` characters.
        file: Name of the file, for errors.

    Raises:
        ConfigError: the text is no such file; names file and line.
    """
    if len(text) > LOGIN_CONFIG_CHARACTERS_MAX:
        raise ConfigError(f"more than {LOGIN_CONFIG_CHARACTERS_MAX} characters", file=file)
    tokens = _Tokens(text, file)
    realms: dict[str, tuple[LoginModule, ...]] = {}
    while tokens.more():
        name = tokens.word("the name of a realm")
        tokens.sign("{")
        modules = []
        while not tokens.takes("}"):
            modules.append(_module(tokens))
        tokens.sign(";")
        if name in realms:
            raise tokens.error(f"realm {name!r} stands twice")
        realms[name] = tuple(modules)
    return realms


def read_logins(text: str, realms: Sequence[str], file: str, codec_key: str | None = None) -> Logins:
    """The logins that exist here of some realms of a file, and warnings about the others.

    Args:
        text: The contents of the file.
        realms: Names of the realms that are used; passwords are checked by the modules of the first.
        file: The name of the file, for errors and warnings; relative paths start at its directory.
        codec_key: Key of masked passwords in the environment; None: there is none.

    Raises:
        ConfigError: see ``read_realms``; or a module for LDAP cannot be used.
    """
    found = read_realms(text, file)
    missing = [realm for realm in realms if realm not in found]
    modules = [module for realm in realms for module in found.get(realm, ())]
    logins = _logins_of(modules, file)
    passwords, warnings = _password_modules(found.get(realms[0], ()) if realms else (), file, codec_key)
    warnings += [
        f"{file}:{module.line} login module {module.name} is left aside: it stands in the realm of certificates"
        for realm in realms[1:]
        for module in found.get(realm, ())
        if module.class_name == LDAP
    ]
    logins = replace(logins, passwords=passwords, warnings=(*logins.warnings, *warnings))
    if missing:
        names = ", ".join(map(repr, found)) or "none"
        text = f"{file}: there is no realm {', '.join(map(repr, missing))}; the file has {names}"
        return replace(logins, warnings=(text, *logins.warnings))
    return logins


def _logins_of(modules: Sequence[LoginModule], file: str) -> Logins:
    values: dict[str, str | bool] = {}
    warnings = []
    for module in modules:
        options = module.options
        if module.class_name == PROPERTIES:
            _take(values, options, users_file="properties.user", roles_file="properties.role")
        elif module.class_name == CERTIFICATES:
            _take(
                values,
                options,
                certificate_users_file="textfiledn.user",
                certificate_roles_file="textfiledn.role",
            )
        elif module.class_name == GUEST:
            values["guest_user"] = options.get("org.apache.activemq.jaas.guest.user", "guest")
            values["guest_role"] = options.get("org.apache.activemq.jaas.guest.role", "guests")
            values["guest_on_wrong_credentials"] = not _is_true(options.get("credentialsInvalidate"))
        elif module.class_name != LDAP:
            reason = LEFT_ASIDE.get(module.name, _OWN_CLASS)
            warnings.append(f"{file}:{module.line} login module {module.name} is left aside: {reason}")
    return Logins(warnings=tuple(warnings), **values)  # type: ignore[arg-type]  # the names are those of the fields


def _password_modules(
    modules: Sequence[LoginModule], file: str, codec_key: str | None
) -> tuple[tuple[PasswordModule, ...], list[str]]:
    """The modules of a realm that check passwords, if one of them is for LDAP, and warnings."""
    found, warnings = [], []
    for module in modules:
        if module.class_name == PROPERTIES:
            found.append(PasswordModule(module.flag))
        elif module.class_name == LDAP:
            if module.options.get("authentication", "").lower() == "gssapi":
                warnings.append(f"{file}:{module.line} login module {module.name} is left aside: {_KERBEROS}")
                continue
            folder = posixpath.dirname(file)
            ldap, texts = read_ldap_login(module.options, folder, file, module.line, codec_key)
            found.append(PasswordModule(module.flag, ldap))
            warnings += texts
    return (tuple(found) if any(each.ldap for each in found) else ()), warnings


def _take(values: dict[str, str | bool], options: Mapping[str, str], **names: str) -> None:
    for target, option in names.items():
        value = options.get(f"org.apache.activemq.jaas.{option}")
        if value:
            values.setdefault(target, value)


def _is_true(text: str | None) -> bool:
    return text is not None and text.lower() == "true"


def _module(tokens: _Tokens) -> LoginModule:
    line = tokens.line
    name = tokens.word("the class of a login module")
    flag = tokens.word("one of " + ", ".join(_FLAGS))
    if flag.lower() not in _FLAGS:
        raise tokens.error(f"{flag!r} is not one of {', '.join(_FLAGS)}")
    options = {}
    while not tokens.takes(";"):
        key = tokens.word("an option")
        tokens.sign("=")
        options[key] = tokens.value()
    return LoginModule(name, flag.lower(), options, line)


class _Tokens:
    """The words and signs of a file."""

    def __init__(self, text: str, file: str) -> None:
        self._file = file
        self._tokens = list(self._split(text))
        self._next = 0

    def _split(self, text: str) -> Iterator[tuple[str, str, int]]:
        place, line = 0, 1
        while place < len(text):
            match = _TOKEN.match(text, place)
            if match is None:
                raise ConfigError(f"unexpected {text[place]!r}", file=self._file, line=line)
            if match.lastgroup is not None:
                yield match.lastgroup, match[0], line
            line += match[0].count("\n")
            place = match.end()

    @property
    def line(self) -> int:
        """Line of the next token, or of the last one."""
        if not self._tokens:
            return 1
        return self._tokens[min(self._next, len(self._tokens) - 1)][2]

    def more(self) -> bool:
        """Whether a further token follows."""
        return self._next < len(self._tokens)

    def error(self, message: str) -> ConfigError:
        """Make an error that names the place of the next token."""
        return ConfigError(message, file=self._file, line=self.line)

    def takes(self, sign: str) -> bool:
        """Take the next token if it is this sign."""
        if self.more() and self._tokens[self._next][:2] == ("sign", sign):
            self._next += 1
            return True
        return False

    def sign(self, sign: str) -> None:
        """Take a sign. Raises ConfigError: the next token is another one."""
        if not self.takes(sign):
            raise self.error(f"{sign!r} is missing")

    def word(self, wanted: str) -> str:
        """Take a word. Raises ConfigError: the next token is none."""
        if not self.more() or self._tokens[self._next][0] == "sign":
            raise self.error(f"{wanted} is missing")
        return self.value()

    def value(self) -> str:
        """Take a word or a text in quotation marks. Raises ConfigError: the next token is a sign."""
        if not self.more() or self._tokens[self._next][0] == "sign":
            raise self.error("a value is missing")
        kind, text, _ = self._tokens[self._next]
        self._next += 1
        return re.sub(r"\\(.)", r"\1", text[1:-1]) if kind == "text" else text
