"""TLS parameters of acceptors and connectors (manual, "Configuring the transport", "Configuring Netty SSL").

A parameter that cannot be honoured is an error, because a connection would be less secure than the configuration says.
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Callable, Mapping
from typing import Final

from understudy.config.password_codec import KEY_VARIABLE, is_masked
from understudy.config.reading.document import Document, Node
from understudy.dataclass import dataclass
from understudy.errors import ConfigError
from understudy.tls.settings import (
    PROTOCOLS,
    Store,
    TlsSettings,
    check_protocols,
    is_tls13_suite,
    make_store,
)

Parameters = Mapping[str, bool | int | str]

#: TLS parameters that acceptors and connectors use.
TLS_USES: Final = frozenset(
    {
        "crlPath", "enabledCipherSuites", "enabledProtocols", "keyStoreAlias", "keyStorePassword", "keyStorePath",
        "keyStoreProvider", "keyStoreType", "sniHost", "sslEnabled", "trustStorePassword", "trustStorePath",
        "trustStoreProvider", "trustStoreType",
    }
)  # fmt: skip
ACCEPTOR_TLS_USES: Final = TLS_USES | {"needClientAuth", "sslAutoReload", "wantClientAuth"}
#: Parameters that have a meaning only with ``sslEnabled=true``; without it they are a mistake.
_NEED_TLS: Final = ("keyStorePath", "trustStorePath", "crlPath", "needClientAuth", "wantClientAuth")
#: Parameters that name Java objects, or that only the other side has.
_REFUSED: Final = {
    "sslContext": "names a Java object",
    "trustManagerFactoryPlugin": "names a Java class, and decides about trust",
}
_CONNECTORS_ONLY: Final = ("trustAll", "useDefaultSslContext", "forceSSLParameters")


@dataclass(frozen=True, slots=True)
class TlsReader:
    """Reads the TLS parameters of the elements of one broker.xml."""

    document: Document
    unmask: Callable[[str], str]
    """The password of a value ``ENC(...)``; raises ValueError."""
    folder: str
    """Directory that relative paths of stores begin at: etc of the instance."""

    def acceptor(self, node: Node, parameters: Parameters) -> TlsSettings | None:
        """TLS of an acceptor; None without ``sslEnabled``. Raises ConfigError."""
        if not self._enabled(node, parameters):
            return None
        for name in _CONNECTORS_ONLY:
            if parameters.get(name) is True:
                raise self._error(node, f"parameter {name} belongs to connectors")
        if parameters.get("verifyHost") is True:
            raise self._error(
                node, "parameter verifyHost: host names of clients cannot be checked", hint="map certificates to users"
            )
        key_store = self._store(node, "keyStore", parameters)
        if key_store is None:
            raise self._error(node, "sslEnabled=true needs keyStorePath", hint="certificate and key, PEM or PKCS12")
        trust_store = self._store(node, "trustStore", parameters)
        need, want = parameters.get("needClientAuth") is True, parameters.get("wantClientAuth") is True
        if (need or want) and trust_store is None:
            name = "needClientAuth" if need else "wantClientAuth"
            raise self._error(node, f"{name}=true needs trustStorePath", hint="the authorities of the clients")
        self._check_pattern(node, parameters)
        return self._settings(
            node,
            parameters,
            key_store,
            trust_store,
            need_client_auth=need,
            want_client_auth=want,
            auto_reload=parameters.get("sslAutoReload") is True,
        )

    def connector(self, node: Node, parameters: Parameters) -> TlsSettings | None:
        """TLS of a connector; None without ``sslEnabled``. Raises ConfigError."""
        if parameters.get("sslEnabled") is not True:
            return None
        return self._settings(
            node,
            parameters,
            self._store(node, "keyStore", parameters),
            self._store(node, "trustStore", parameters),
            verify_host=parameters.get("verifyHost") is not False,
            trust_all=parameters.get("trustAll") is True,
        )

    def _enabled(self, node: Node, parameters: Parameters) -> bool:
        enabled = parameters.get("sslEnabled")
        if enabled is True:
            return True
        useless = [name for name in _NEED_TLS if parameters.get(name) not in (None, False)]
        if useless and enabled is None:
            raise self._error(
                node, f"parameter {useless[0]} needs sslEnabled=true", hint="sslEnabled=false: without encryption"
            )
        return False

    def _settings(
        self,
        node: Node,
        parameters: Parameters,
        key_store: Store | None,
        trust_store: Store | None,
        *,
        need_client_auth: bool = False,
        want_client_auth: bool = False,
        verify_host: bool = True,
        trust_all: bool = False,
        auto_reload: bool = False,
    ) -> TlsSettings:
        for name, reason in _REFUSED.items():
            if name in parameters:
                raise self._error(node, f"parameter {name} {reason}")
        protocols = _list(parameters, "enabledProtocols")
        try:
            check_protocols(protocols)
        except ConfigError as error:
            raise self._error(node, str(error.args[0]), hint=error.hint) from None
        suites = _list(parameters, "enabledCipherSuites")
        if any(map(is_tls13_suite, suites)) and "TLSv1.3" in (protocols or PROTOCOLS):
            self.document.warn(
                "suites of TLS 1.3",
                "enabledCipherSuites: with one suite of TLS 1.3, OpenSSL offers all suites of TLS 1.3",
                node,
            )
        crl_path = self._text(parameters, "crlPath")
        sni_host = self._text(parameters, "sniHost")
        return TlsSettings(
            key_store=key_store,
            trust_store=trust_store,
            crl_path=self._path(crl_path) if crl_path else None,
            protocols=protocols,
            cipher_suites=suites,
            need_client_auth=need_client_auth,
            want_client_auth=want_client_auth,
            verify_host=verify_host,
            trust_all=trust_all,
            sni_host=sni_host,
            auto_reload=auto_reload,
        )

    def _store(self, node: Node, name: str, parameters: Parameters) -> Store | None:
        """The store of the parameters ``nameType``, ``namePath`` and so on; None without a path."""
        values = {part: self._text(parameters, f"{name}{part}") for part in ("Path", "Type", "Provider", "Password")}
        path = values["Path"]
        if not path or path.upper() == "NONE":
            if values["Password"] or values["Type"]:
                raise self._error(node, f"{name}Path is missing")
            return None
        alias = self._text(parameters, "keyStoreAlias") if name == "keyStore" else None
        try:
            password = self._password(f"{name}Password", values["Password"])
            return make_store(name, self._path(path), values["Type"], values["Provider"], password, alias)
        except ConfigError as error:
            raise self._error(node, str(error.args[0]), hint=error.hint) from None

    def _password(self, name: str, value: str | None) -> str | None:
        if value is None or not is_masked(value):
            return value
        try:
            return self.unmask(value)
        except ValueError as error:
            hint = f"the key is that of {KEY_VARIABLE} or password-codec"
            raise ConfigError(f"{name}: {error}", hint=hint) from None

    def _path(self, path: str) -> str:
        if path.lower().startswith("file:") or "://" in path:
            return path
        return posixpath.normpath(posixpath.join(self.folder, path))

    def _text(self, parameters: Parameters, name: str) -> str | None:
        value = parameters.get(name)
        return str(value) if value not in (None, "") else None

    def _check_pattern(self, node: Node, parameters: Parameters) -> None:
        try:
            re.compile(str(parameters.get("sniHost", "")))
        except re.error as error:
            raise self._error(node, f"parameter sniHost is no regular expression: {error}") from None

    def _error(self, node: Node, message: str, *, hint: str | None = None) -> ConfigError:
        return self.document.error_at(node, message, hint=hint)


def _list(parameters: Parameters, name: str) -> tuple[str, ...]:
    return tuple(part.strip() for part in str(parameters.get(name, "")).split(",") if part.strip())
