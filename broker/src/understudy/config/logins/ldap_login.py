"""Options of the LDAPLoginModule of ``login.config``, read and checked.

Source: Artemis manual, "Security", *LDAPLoginModule*. The options for TLS (``startTls`` and those of ``_TLS``) are not
in Artemis, whose module takes them from the Java virtual machine.

Not here: the lookups (``security.directory``) and the connections (``runtime.logins.ldap``).
"""

from __future__ import annotations

import posixpath
from collections.abc import Mapping
from dataclasses import field
from typing import Final
from urllib.parse import unquote, urlsplit

from understudy.config.logins.message_format import MessageFormat
from understudy.config.password_codec import codec_of, is_masked
from understudy.dataclass import dataclass
from understudy.errors import ConfigError
from understudy.limits import LDAP_SERVERS_MAX
from understudy.tls.settings import TlsSettings, make_store

#: Time-outs of an operation without the option, and the longest that can be set. Artemis waits without end.
DEFAULT_TIMEOUT_MS: Final = 5_000
TIMEOUT_MS_MAX: Final = 60_000
_PORTS: Final = {"ldap": 389, "ldaps": 636}
_TLS: Final = ("trustStorePath", "trustStoreType", "trustStorePassword", "trustAll", "verifyHost")
_USED: Final = frozenset(
    {
        "connectionURL", "connectionUsername", "connectionPassword", "passwordCodec", "authentication", "userBase",
        "userSearchMatching", "userSearchSubtree", "userRoleName", "roleBase", "roleName", "roleSearchMatching",
        "roleSearchSubtree", "expandRoles", "expandRolesMatching", "authenticateUser", "referral", "connectionTimeout",
        "readTimeout", "startTls", *_TLS,
    }
)  # fmt: skip
#: Options that mean nothing here and change nothing that a user could notice.
_SILENT: Final = frozenset(
    {"debug", "reload", "initialContextFactory", "connectionProtocol", "ignorePartialResultException",
     "saslLoginConfigScope"}
)  # fmt: skip
#: Options that have no effect here, and why.
_WITHOUT_EFFECT: Final = {
    "connectionPool": "each login that is not in the cache opens a connection",
    "connectionPoolTimeout": "each login that is not in the cache opens a connection",
    "noCacheExceptions": "failed logins are never cached",
}
_REFERRALS: Final = ("ignore", "follow", "throw")


@dataclass(frozen=True, slots=True)
class LdapServer:
    """One directory server of a login module."""

    host: str
    port: int
    tls: bool
    """Whether the connection begins with TLS (``ldaps``)."""

    def __str__(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{'ldaps' if self.tls else 'ldap'}://{host}:{self.port}"


@dataclass(frozen=True, slots=True)
class Search:
    """A search for entries below a base."""

    base: str
    filter: MessageFormat
    subtree: bool


@dataclass(frozen=True, slots=True)
class LdapLogin:
    """Options of one login module for a directory."""

    servers: tuple[LdapServer, ...]
    """Directory servers in the order in which they are tried."""
    username: str | None
    """Name of the entry with which searches are made; None: searches are anonymous."""
    password: str | None = field(repr=False)
    users: Search | None
    """Finds the entry of a user; None: user names are names of entries."""
    user_role_name: str | None
    """Attribute of a user's entry with names of roles."""
    roles: Search | None
    """Finds the entries of the roles of a user."""
    role_name: str | None
    """Attribute of a role's entry with its name; None: the name of the entry is that of the role."""
    expand: MessageFormat | None
    """Finds the roles that a role is a member of; None: roles have no roles."""
    authenticate: bool
    """False: the module only adds roles to users that an earlier module has proved."""
    refuse_referrals: bool
    """Whether a referral in an answer is an error; otherwise it is passed over."""
    connect_timeout_ms: int
    read_timeout_ms: int
    start_tls: bool
    tls: TlsSettings | None
    """TLS of the connections; None: they are plain."""
    place: str
    """File and line of the module, for messages."""


def read_ldap_login(
    options: Mapping[str, str], folder: str, file: str, line: int, codec_key: str | None = None
) -> tuple[LdapLogin, list[str]]:
    """The options of a module, and warnings about those that have no effect.

    Args:
        options: Options as the file has them.
        folder: Directory of the file; relative paths start there.
        file: Name of the file, for messages.
        line: Line of the module, for messages.
        codec_key: Key of masked passwords in the environment; None: there is none.

    Raises:
        ConfigError: an option is missing or has a value that cannot be used; names file and line, no password.
    """
    return _Reader(options, folder, file, line, codec_key).read()


class _Reader:
    def __init__(self, options: Mapping[str, str], folder: str, file: str, line: int, codec_key: str | None) -> None:
        self._options = options
        self._folder = folder
        self._file = file
        self._line = line
        self._codec_key = codec_key

    def read(self) -> tuple[LdapLogin, list[str]]:
        servers, suffix = self._servers()
        username, password = self._credentials()
        role_search = self._search("role", suffix)
        tls = self._tls(servers)
        login = LdapLogin(
            servers=servers,
            username=username,
            password=password,
            users=self._search("user", suffix),
            user_role_name=self._text("userRoleName"),
            roles=role_search,
            role_name=self._text("roleName"),
            expand=self._expand(role_search),
            authenticate=self._boolean("authenticateUser", default=True),
            refuse_referrals=self._referral() == "throw",
            connect_timeout_ms=self._timeout("connectionTimeout"),
            read_timeout_ms=self._timeout("readTimeout"),
            start_tls=self._boolean("startTls"),
            tls=tls,
            place=f"{self._file}:{self._line}",
        )
        return login, list(self._warnings(login))

    def _warnings(self, login: LdapLogin) -> list[str]:
        place = login.place
        texts = []
        for name in sorted(self._options.keys() - _USED - _SILENT):
            reason = _WITHOUT_EFFECT.get(name, "it is no option of this module")
            texts.append(f"{place} option {name} has no effect: {reason}")
        if self._referral() == "follow":
            texts.append(f"{place} option referral=follow has no effect: entries of other servers are not found")
        if login.tls is None:
            texts.append(f"{place} passwords go to {login.servers[0]} unencrypted; ldaps:// or startTls=true encrypts")
        elif login.tls.trust_all:
            texts.append(f"{place} trustAll=true: passwords go to any server that answers at {login.servers[0]}")
        if login.roles is None and login.user_role_name is None:
            texts.append(f"{place} neither roleSearchMatching nor userRoleName is set, so users have no roles")
        return texts

    def _servers(self) -> tuple[tuple[LdapServer, ...], str]:
        """The servers, and the name after them that every base ends with."""
        servers, suffixes = [], []
        for url in self._required("connectionURL").split():
            try:
                parts = urlsplit(url)
                host, port = parts.hostname, parts.port
            except ValueError:
                host, port = None, None
            if host is None or parts.scheme.lower() not in _PORTS or parts.username is not None:
                raise self._error("connectionURL: a server is ldap://HOST:PORT or ldaps://HOST:PORT")
            scheme = parts.scheme.lower()
            servers.append(LdapServer(host, _PORTS[scheme] if port is None else port, scheme == "ldaps"))
            suffixes.append(unquote(parts.path.removeprefix("/")))
        if not servers or len(servers) > LDAP_SERVERS_MAX:
            raise self._error(f"connectionURL: one to {LDAP_SERVERS_MAX} servers, separated by spaces")
        if len(set(suffixes)) > 1:
            raise self._error("connectionURL: the names after the servers differ")
        if len({each.tls for each in servers}) > 1:
            raise self._error("connectionURL: some of the servers are ldaps:// and some are not")
        return tuple(servers), suffixes[0]

    def _credentials(self) -> tuple[str | None, str | None]:
        kind = self._text("authentication") or "simple"
        if kind.lower() == "none":
            return None, None
        if kind.lower() != "simple":
            raise self._error(
                f"authentication={kind} is not served", hint="simple, with connectionUsername and connectionPassword"
            )
        password = self._required("connectionPassword")
        try:
            if is_masked(password):
                password = codec_of(self._text("passwordCodec"), self._codec_key).unmask(password)
        except ValueError as error:
            raise self._error(f"connectionPassword: {error}") from None
        return self._required("connectionUsername"), password

    def _search(self, kind: str, suffix: str) -> Search | None:
        matching = self._format(f"{kind}SearchMatching", 1 if kind == "user" else 2)
        if matching is None:
            return None
        base = self._text(f"{kind}Base")
        if base is None and not suffix:
            raise self._error(f"{kind}SearchMatching needs {kind}Base", hint="the name of the entry to search below")
        parts = [each for each in (base, suffix) if each]
        return Search(",".join(parts), matching, self._boolean(f"{kind}SearchSubtree"))

    def _expand(self, roles: Search | None) -> MessageFormat | None:
        if not self._boolean("expandRoles"):
            return None
        found = self._format("expandRolesMatching", 1)
        if found is None or roles is None:
            missing = "expandRolesMatching" if found is None else "roleSearchMatching"
            raise self._error(f"expandRoles=true needs {missing}")
        return found

    def _format(self, name: str, arguments: int) -> MessageFormat | None:
        text = self._text(name)
        if text is None:
            return None
        try:
            found = MessageFormat.parse(text, arguments)
        except ValueError as error:
            raise self._error(f"{name}: {error}") from None
        if not text.strip().startswith("(") or not text.strip().endswith(")"):
            raise self._error(f"{name}: a search filter stands in parentheses, such as (uid={{0}})")
        return found

    def _tls(self, servers: tuple[LdapServer, ...]) -> TlsSettings | None:
        start = self._boolean("startTls")
        if start and servers[0].tls:
            raise self._error("startTls=true: connections to ldaps:// begin with TLS already")
        if not start and not servers[0].tls:
            named = [name for name in _TLS if self._text(name) is not None]
            if named:
                raise self._error(f"{named[0]} needs ldaps:// or startTls=true")
            return None
        path = self._text("trustStorePath")
        store = None
        if path is not None:
            path = posixpath.normpath(posixpath.join(self._folder, path))
            try:
                store = make_store(
                    "trustStore", path, self._text("trustStoreType"), None, self._text("trustStorePassword"), None
                )
            except ConfigError as error:
                raise self._error(str(error.args[0]), hint=error.hint) from None
        return TlsSettings(
            trust_store=store,
            trust_all=self._boolean("trustAll"),
            verify_host=self._boolean("verifyHost", default=True),
        )

    def _referral(self) -> str:
        value = (self._text("referral") or "ignore").lower()
        if value not in _REFERRALS:
            raise self._error(f"referral={value} is not one of {', '.join(_REFERRALS)}")
        return value

    def _timeout(self, name: str) -> int:
        text = self._text(name)
        if text is None:
            return DEFAULT_TIMEOUT_MS
        try:
            value = int(text)
        except ValueError:
            raise self._error(f"{name}: {text!r} is no number of milliseconds") from None
        # 0 is no limit in Artemis; a login must end
        return min(value, TIMEOUT_MS_MAX) if value > 0 else TIMEOUT_MS_MAX

    def _boolean(self, name: str, *, default: bool = False) -> bool:
        text = self._text(name)
        return default if text is None else text.lower() == "true"

    def _text(self, name: str) -> str | None:
        return self._options.get(name, "").strip() or None

    def _required(self, name: str) -> str:
        value = self._text(name)
        if value is None:
            raise self._error(f"LDAPLoginModule needs {name}")
        return value

    def _error(self, message: str, *, hint: str | None = None) -> ConfigError:
        return ConfigError(message, file=self._file, line=self._line, hint=hint)
