"""Certificates of the acceptors of one node: read when the node starts, and again when their files have changed.

The files are read at the start of the process, so that a file that cannot be used is reported before the node serves
clients, and not at a failover. A changed file that cannot be used is reported, and the acceptor keeps the certificate
that it has. Connections that exist keep theirs in any case.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator

from understudy.config.model import AcceptorConfiguration, Configuration
from understudy.errors import ConfigError
from understudy.limits import TLS_EXPIRY_WARNING_MS
from understudy.ports import Clock, Worker
from understudy.runtime.net.handshakes import Handshakes
from understudy.runtime.net.tls_layer import TlsPort
from understudy.texts import counted
from understudy.tls.certificates import CertificateFacts
from understudy.tls.contexts import ServerTls, server_context

log = logging.getLogger(__name__)

DAY_MS = 24 * 3600 * 1000


class TlsAcceptors:
    """The TLS contexts of the acceptors of a node."""

    def __init__(self, configuration: Configuration, clock: Clock) -> None:
        """Nothing is read yet.

        Args:
            configuration: Configuration of the node; acceptors do not change while it runs.
            clock: Used for the remaining validity of certificates.
        """
        self._clock = clock
        self._acceptors = {each.name: each for each in configuration.acceptors if each.tls is not None}
        self._current: dict[str, ServerTls] = {}
        self._ports: dict[str, TlsPort] = {}

    def read(self) -> None:
        """Read all files. Raises ConfigError: one of them cannot be used; names the acceptor and the file."""
        self._current = {name: _read(acceptor) for name, acceptor in self._acceptors.items()}
        self.warn_of_expiry()

    def port(self, acceptor: AcceptorConfiguration, make_worker: Callable[[], Worker]) -> TlsPort | None:
        """TLS for an acceptor that is about to listen; None: it has none.

        Args:
            make_worker: Makes the threads for its handshakes.

        Raises:
            ConfigError: its files were not read before, and cannot be used.
        """
        if acceptor.tls is None:
            return None
        current = self._current.get(acceptor.name)
        if current is None:
            current = self._current[acceptor.name] = _read(acceptor)
        handshakes = Handshakes(make_worker(), self._clock)
        port = TlsPort.of(current.context, handshakes, acceptor.handshake_timeout_ms)
        self._ports[acceptor.name] = port
        return port

    def close(self) -> None:
        """End their threads; called when the acceptors are closed."""
        for port in self._ports.values():
            port.handshakes.close()
        self._ports.clear()

    # --- changed files -------------------------------------------------------------------------

    def files(self, *, auto_reload_only: bool) -> tuple[str, ...]:
        """The files of the acceptors.

        Args:
            auto_reload_only: Without those of acceptors that have no ``sslAutoReload``.
        """
        return tuple(
            dict.fromkeys(
                path
                for acceptor in self._acceptors.values()
                if acceptor.tls is not None and (acceptor.tls.auto_reload or not auto_reload_only)
                for path in acceptor.tls.files()
            )
        )

    def read_again(self, *, auto_reload_only: bool) -> Callable[[], list[ConfigError]]:
        """Read the files again, on any thread; the returned function applies the result on the loop.

        A file that cannot be used is logged there, and changes nothing. The errors that the function returns name
        acceptor, file and reason.
        """
        outcomes: list[tuple[str, ServerTls | ConfigError]] = []
        for name, acceptor in self._acceptors.items():
            assert acceptor.tls is not None
            if auto_reload_only and not acceptor.tls.auto_reload:
                continue
            try:
                outcomes.append((name, _read(acceptor)))
            except ConfigError as error:
                outcomes.append((name, error))
        return lambda: self._apply(outcomes)

    def _apply(self, outcomes: list[tuple[str, ServerTls | ConfigError]]) -> list[ConfigError]:
        errors = []
        for name, outcome in outcomes:
            if isinstance(outcome, ConfigError):
                log.error("changed TLS files not applied", extra={"acceptor": name, "error": str(outcome)})
                errors.append(self._not_applied(name, outcome))
                continue
            self._current[name] = outcome
            port = self._ports.get(name)
            if port is not None:
                port.context = outcome.context
            log.info(
                "TLS files read again",
                extra={
                    "acceptor": name,
                    "certificate": outcome.certificate.subject,
                    "days_until_expiration": self.days_left(outcome.certificate),
                },
            )
        self.warn_of_expiry()
        return errors

    def _not_applied(self, name: str, error: ConfigError) -> ConfigError:
        """The error for the answer to a request: with the names of files, without their directories."""
        tls = self._acceptors[name].tls
        assert tls is not None
        text = str(error.args[0])
        for path in sorted(tls.files(), key=len, reverse=True):
            text = text.replace(path, path.rpartition("/")[2])
        current = "the certificate of before stays in use" if name in self._current else "it has no certificate"
        return ConfigError(f"{text}; {current}", path=f"acceptor {name!r}", hint=error.hint)

    # --- validity ------------------------------------------------------------------------------

    def certificate(self, name: str) -> CertificateFacts | None:
        """The certificate of an acceptor; None: it has none."""
        current = self._current.get(name)
        return None if current is None else current.certificate

    def days_left(self, certificate: CertificateFacts) -> int:
        """Whole days until the end of validity; negative if it is over."""
        return (certificate.not_after_ms - self._clock.wall_ms()) // DAY_MS

    def warn_of_expiry(self) -> None:
        """Log an error for each certificate that has expired, a warning for each that expires within 30 days."""
        for days, text in self._ending():
            if days < 0:
                log.error("certificate has expired", extra={"detail": text})
            else:
                log.warning("certificate expires soon", extra={"detail": text})

    def expiry_warnings(self) -> list[str]:
        """A line for each certificate that has expired or expires within 30 days."""
        return [text for _, text in self._ending()]

    def _ending(self) -> Iterator[tuple[int, str]]:
        """Days that are left and a line, for each certificate that has expired or expires within 30 days."""
        latest_ms = self._clock.wall_ms() + TLS_EXPIRY_WARNING_MS
        for name, current in self._current.items():
            certificate = current.certificate
            if certificate.not_after_ms <= latest_ms:
                days = self.days_left(certificate)
                ends = f"expires in {counted(days, 'day')}" if days >= 0 else "has expired"
                yield days, f"acceptor {name!r}: the certificate {certificate.subject!r} {ends}"


def _read(acceptor: AcceptorConfiguration) -> ServerTls:
    assert acceptor.tls is not None
    try:
        return server_context(acceptor.tls)
    except ConfigError as error:
        raise ConfigError(str(error.args[0]), path=f"acceptor {acceptor.name!r}", hint=error.hint) from None
