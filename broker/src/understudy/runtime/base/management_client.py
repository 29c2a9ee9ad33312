"""Requests to the management API of one node, by its URL and token: commands and the pipeline.

Not here: finding URL and token of an instance (``cli.node.status``), and the server (``runtime.management.http``).
"""

from __future__ import annotations

import http.client
import json
import ssl
import urllib.error
import urllib.request
from dataclasses import field
from typing import Any, Final, NoReturn

from understudy.dataclass import dataclass
from understudy.errors import BrokerError, ConfigError, NotActive, QueueNotFound, Unreachable
from understudy.texts import has_login, masked_url, printable, reason_of

#: Longest wait in ms for one answer of a node.
ANSWER_TIMEOUT_MS: Final = 5_000
#: Largest answer read. Bytes.
ANSWER_BYTES_MAX: Final = 64 * 1024 * 1024
#: Largest error answer read. Bytes.
ERROR_BYTES_MAX: Final = 64 * 1024


@dataclass(frozen=True, slots=True)
class ManagementAddress:
    """The address at which a node answers."""

    url: str
    """Without a slash at its end."""
    token: str = field(repr=False)
    ca: str | None = None
    """File of certificates that an https URL is checked with; None: those of the system."""

    def __post_init__(self) -> None:
        """Raises ConfigError: there is a login in the URL, which would be printed with it."""
        if has_login(self.url):
            raise ConfigError(
                f"{masked_url(self.url)!r}: the management has no login in its URL", hint="give the file of its token"
            )

    def opener(self) -> urllib.request.OpenerDirector:
        """Opens URLs of the node.

        Raises:
            ConfigError: the file of certificates cannot be used.
        """
        if self.ca is None:
            return OPENER
        try:
            context = ssl.create_default_context(cafile=self.ca)
        except OSError as error:
            raise ConfigError(f"cannot be used: {reason_of(error)}", file=self.ca) from error
        return urllib.request.build_opener(
            urllib.request.ProxyHandler({}), _NoRedirect(), urllib.request.HTTPSHandler(context=context)
        )

    def ask(self, path: str, *, body: object = None) -> Any:
        """The JSON answer to GET, or to POST when there is a body.

        Raises:
            Unreachable: there is no answer.
            ConfigError: the token is refused.
            NotActive: only an active node answers this.
            BrokerError: any other answer that is an error.
        """
        headers = {"Authorization": f"Bearer {self.token}", "Accept": "application/json"}
        data = None if body is None else json.dumps(body).encode()
        if data is not None:
            headers["Content-Type"] = "application/json"
        try:
            request = urllib.request.Request(self.url + path, data=data, headers=headers)
            with self.opener().open(request, timeout=ANSWER_TIMEOUT_MS / 1000) as response:
                return json.loads(response.read(ANSWER_BYTES_MAX))
        except urllib.error.HTTPError as error:
            with error:
                self._refused(path, error)
        except (OSError, http.client.HTTPException) as error:
            reason = reason_of(getattr(error, "reason", error))
            raise Unreachable(f"{self.url} does not answer: {reason}") from error
        except ValueError as error:
            raise BrokerError(f"{self.url}{path} did not answer with JSON", hint="is it an Understudy node?") from error

    def talk(self, path: str, body: object, *, accept: str, timeout_s: float) -> str:
        """The text that answers a POST, in the type of ``accept``; a failure in that type is an answer as well.

        Args:
            timeout_s: Longest wait for the answer.

        Raises:
            Unreachable: there is no answer.
            ConfigError: the token is refused.
            BrokerError: any other error.
        """
        headers = {"Authorization": f"Bearer {self.token}", "Accept": accept, "Content-Type": "application/json"}
        try:
            request = urllib.request.Request(self.url + path, data=json.dumps(body).encode(), headers=headers)
            with self.opener().open(request, timeout=timeout_s) as response:
                return str(response.read(ANSWER_BYTES_MAX).decode("utf-8", "replace"))
        except urllib.error.HTTPError as error:
            with error:
                if error.headers.get_content_type() == accept:
                    return error.read(ANSWER_BYTES_MAX).decode("utf-8", "replace")
                self._refused(path, error)
        except (OSError, http.client.HTTPException) as error:
            reason = reason_of(getattr(error, "reason", error))
            raise Unreachable(f"{self.url} does not answer: {reason}") from error

    def _refused(self, path: str, error: urllib.error.HTTPError) -> NoReturn:
        code = ""
        try:
            answer = json.loads(error.read(ERROR_BYTES_MAX))["error"]
            text, code = printable(str(answer["message"])), answer["code"]
        except (ValueError, KeyError, TypeError, OSError, http.client.HTTPException):
            text = f"{path} was answered with HTTP status {error.code}"
        if code == NotActive.code:
            raise NotActive(f"{self.url}: {text}")
        if error.code == 401:
            raise ConfigError(f"{self.url}: {text}", hint="see --token-file")
        if error.code == 404 and path.startswith("/api/v1/queues/"):
            raise QueueNotFound(text)
        raise BrokerError(f"{self.url}: {text}")


class _NoRedirect(urllib.request.HTTPRedirectHandler):
    """A node never redirects; following one would send the token to another server."""

    def redirect_request(self, *arguments: object, **more: object) -> None:
        return None


OPENER: Final = urllib.request.build_opener(urllib.request.ProxyHandler({}), _NoRedirect())
"""Opens URLs without proxies and redirects."""
