"""Connections to directories (LDAP), by the package ldap3. Implements ``security.directory.Directory``.

Every call blocks for at most the time-outs of the login module, so lookups run on threads of their own
(``security.logins``). Nothing is shared between lookups except which server answered last.
"""

from __future__ import annotations

import ssl
import time
from collections.abc import Callable, Sequence
from typing import Any, Final

import ldap3
from ldap3.core.exceptions import LDAPExceptionError

from understudy.config.logins.ldap_login import LdapLogin, LdapServer, Search
from understudy.limits import LDAP_LOOKUP_MS_MAX
from understudy.security.directory import DirectorySession, DirectoryUnavailable, Entry
from understudy.tls.contexts import client_context

_SUCCESS: Final = 0
_SIZE_LIMIT_EXCEEDED: Final = 4
_REFERRAL: Final = 10
_NO_SUCH_OBJECT: Final = 32
#: Results of a bind that say that the name or the password is wrong: no such entry, invalid name, inappropriate
#: authentication, invalid credentials, insufficient access (an entry that may not log in).
_WRONG: Final = frozenset({32, 34, 48, 49, 50})
_SEARCH_ENTRY: Final = "searchResEntry"
_SEARCH_REFERENCE: Final = "searchResRef"


class LdapDirectory:
    """Directory servers of one login module. Implements ``Directory``."""

    def __init__(self, options: LdapLogin) -> None:
        """Raises ConfigError: the trust store of the options cannot be read or used."""
        self.options = options
        self._context = None if options.tls is None else client_context(options.tls)
        self._first = 0
        """Index of the server that is tried first: the one that answered last."""

    def open(self) -> DirectorySession:
        deadline = time.monotonic() + LDAP_LOOKUP_MS_MAX / 1000
        servers = self.options.servers
        failures = []
        for step in range(len(servers)):
            index = (self._first + step) % len(servers)
            try:
                session = _Session(self.options, servers[index], self._context, deadline)
            except DirectoryUnavailable as error:
                failures.append(str(error))
                continue
            self._first = index
            return session
        raise DirectoryUnavailable("; ".join(failures))


class _Session:
    def __init__(self, options: LdapLogin, server: LdapServer, context: ssl.SSLContext | None, deadline: float) -> None:
        self._options = options
        self._server = server
        self._context = context
        self._deadline = deadline
        self._connection = self._connect(options.username, options.password)
        if not self._bound(self._connection):
            result = self._connection.result
            self.close()
            raise self._error(f"does not let connectionUsername in: {result['description']}")

    def search(self, search: Search, matching: str, attributes: Sequence[str], limit: int) -> Sequence[Entry]:
        connection = self._connection
        self._call(
            lambda: connection.search(
                search.base,
                matching,
                search_scope=ldap3.SUBTREE if search.subtree else ldap3.LEVEL,
                attributes=list(attributes) or [ldap3.NO_ATTRIBUTES],
                size_limit=limit,
            )
        )
        code, found = connection.result["result"], connection.response or []
        referred = code == _REFERRAL or any(each["type"] == _SEARCH_REFERENCE for each in found)
        if referred and self._options.refuse_referrals:
            raise self._error(f"refers to another server for {search.base!r} (referral=throw)")
        if code == _SIZE_LIMIT_EXCEEDED and limit > 2:
            raise self._error(f"finds more than {limit} entries below {search.base!r}")
        if code not in (_SUCCESS, _SIZE_LIMIT_EXCEEDED, _REFERRAL, _NO_SUCH_OBJECT):
            raise self._error(f"does not search below {search.base!r}: {connection.result['description']}")
        return [_entry(each, attributes) for each in found if each["type"] == _SEARCH_ENTRY]

    def binds(self, name: str, password: str) -> bool:
        # on a connection of its own: searches go on with the name of the module
        connection = self._connect(name, password)
        try:
            return self._bound(connection)
        finally:
            _unbind(connection)

    def close(self) -> None:
        _unbind(self._connection)

    def _connect(self, name: str | None, password: str | None) -> ldap3.Connection:
        """A connection that is encrypted if it has to be, and not bound yet."""
        options, server = self._options, self._server
        target = ldap3.Server(
            server.host,
            server.port,
            use_ssl=server.tls,
            tls=None if self._context is None else _ContextTls(self._context),
            get_info=ldap3.NONE,
            connect_timeout=options.connect_timeout_ms / 1000,
        )
        connection = ldap3.Connection(
            target,
            name,
            password,
            authentication=ldap3.ANONYMOUS if name is None else ldap3.SIMPLE,
            auto_referrals=False,
            check_names=False,
            read_only=True,
            receive_timeout=-(-options.read_timeout_ms // 1000),
        )
        try:
            self._call(connection.open)
            if options.start_tls and not self._call(connection.start_tls):
                raise self._error("refuses StartTLS")
        except DirectoryUnavailable:
            _unbind(connection)
            raise
        return connection

    def _bound(self, connection: ldap3.Connection) -> bool:
        """Whether the server accepts name and password. Raises DirectoryUnavailable."""
        self._call(connection.bind)
        code = connection.result["result"]
        if code != _SUCCESS and code not in _WRONG:
            raise self._error(f"does not answer a bind: {connection.result['description']}")
        return bool(code == _SUCCESS)

    def _call(self, work: Callable[[], Any]) -> Any:
        if time.monotonic() >= self._deadline:
            raise self._error(f"took longer than {LDAP_LOOKUP_MS_MAX} ms for one login")
        try:
            return work()
        except (LDAPExceptionError, OSError, ValueError) as error:
            # the text of an error of ldap3 has no password; ValueError: a name or a certificate that cannot be used
            raise self._error(_reason(error)) from None

    def _error(self, message: str) -> DirectoryUnavailable:
        return DirectoryUnavailable(f"{self._options.place} {self._server} {message}")


class _ContextTls(ldap3.Tls):  # type: ignore[misc]  # ldap3 has no types
    """TLS with a context of ours: OpenSSL compares the name of the host."""

    def __init__(self, context: ssl.SSLContext) -> None:
        super().__init__(validate=context.verify_mode)
        self._context = context

    def wrap_socket(self, connection: Any, do_handshake: bool = False) -> None:
        connection.socket = self._context.wrap_socket(connection.socket, server_hostname=connection.server.host)


def _entry(found: Any, attributes: Sequence[str]) -> Entry:
    raw = {name.lower(): values for name, values in found["raw_attributes"].items()}
    values = {name: [value.decode("utf-8", "replace") for value in raw.get(name.lower(), ())] for name in attributes}
    return Entry(found["dn"], values)


def _unbind(connection: ldap3.Connection) -> None:
    try:
        connection.unbind()
    except (LDAPExceptionError, OSError):
        # the connection is not needed any more
        pass


def _reason(error: Exception) -> str:
    text = str(error).strip()
    return f"gives no answer: {text}" if text else f"gives no answer: {type(error).__name__}"
