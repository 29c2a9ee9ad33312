"""The state that a broker reports over its HTTP management interface: the client side.

``ManagementClient`` sends two requests; ``NodeState`` is built by a pure function from the two replies. A broker that
does not answer is a state, too (``reachable`` False with the reason), because a stopped node is a usual case.
"""

from __future__ import annotations

import http.client
import json
import urllib.error
from collections.abc import Mapping
from dataclasses import dataclass, field
from urllib.parse import urlsplit

from ansible.module_utils.urls import ConnectionError as TransportError
from ansible.module_utils.urls import open_url

ANSWER_BYTES_MAX = 8 * 1024 * 1024
REFUSALS = (
    "the witness refuses:",
    "the witness does not know the secret",
    "the peer is no witness",
    "it is another witness, or has lost its state",
)
"""Parts of a reason that only an operator ends: the lock manager refuses the node."""
TIMEOUT_S = 5


@dataclass(frozen=True)
class Access:
    """How the management interface is reached."""

    timeout_s: int = TIMEOUT_S
    """Seconds that connecting, and each read, may take."""
    ca_path: str | None = None
    """File of certificates that the server's certificate is checked against; None for those of the host."""
    client_cert: str | None = None
    """Certificate file of this client, in PEM format; it may contain the key."""
    client_key: str | None = None
    """File of the client's private key."""
    validate_certs: bool = True
    """Whether the server's certificate is checked."""
    use_proxy: bool = False
    """Whether the proxies of the environment are used; a broker is usually asked directly, on loopback."""

    @classmethod
    def from_record(cls, record: Mapping[str, object]) -> Access:
        """Make an access from options of these names; missing ones and those that are None have the default.

        Raises:
            TypeError: an unknown name.
        """
        return cls(**{name: value for name, value in record.items() if value is not None})  # type: ignore[arg-type]


DIRECT = Access()


@dataclass(frozen=True)
class Reply:
    """One HTTP answer, or why there was none (status 0)."""

    status: int
    body: Mapping[str, object]
    problem: str = ""

    @property
    def code(self) -> str:
        """Code of the error (docs/operate/management-api.md); empty without one."""
        error = self.body.get("error")
        return str(error.get("code", "")) if isinstance(error, Mapping) else ""

    @property
    def refusal(self) -> str:
        """Why an operation was refused, as the broker says it."""
        error = self.body.get("error")
        message = error.get("message") if isinstance(error, Mapping) else error
        return str(message or self.problem or f"it answered {self.status}")


@dataclass(frozen=True)
class NodeState:
    """One broker at one moment, as it describes itself."""

    reachable: bool
    ready: bool
    state: str
    """``active``, ``passive``, ``starting``, ``stopping``, ``stopped``; ``unreachable`` if there was no answer."""
    reason: str = ""
    node: Mapping[str, object] = field(default_factory=dict)
    """The whole ``/api/v1/node`` answer; empty if there was none."""

    @property
    def following(self) -> bool:
        """Passive, and has read all there is of the store."""
        following = self.node.get("following")
        return self.state == "passive" and isinstance(following, Mapping) and following.get("caught_up") is True

    @property
    def refused(self) -> bool:
        """Whether the node is not ready, for a reason that no waiting changes."""
        return not self.ready and any(each in self.reason for each in REFUSALS)

    @property
    def paired(self) -> bool:
        """Whether the node sees its partner."""
        return isinstance(self.node.get("peer"), Mapping)

    @property
    def serves_as(self) -> str:
        """Node id of the data that it serves or follows; empty if it does neither: its identity may still change."""
        settled = self.state == "active" or self.following
        return str(self.node.get("node_id") or "") if settled else ""

    @property
    def partner(self) -> str:
        """``ADDRESS:PORT`` of the partner that it sees; empty without one."""
        peer = self.node.get("peer")
        return str(peer.get("connector") or "") if isinstance(peer, Mapping) else ""

    @property
    def role(self) -> str:
        high_availability = self.node.get("ha")
        return str(high_availability.get("role", "")) if isinstance(high_availability, Mapping) else ""

    def as_dict(self) -> dict[str, object]:
        return {
            "reachable": self.reachable,
            "ready": self.ready,
            "state": self.state,
            "role": self.role,
            "following": self.following,
            "paired": self.paired,
            "reason": self.reason,
            "node": dict(self.node),
        }

    @classmethod
    def from_dict(cls, record: Mapping[str, object]) -> NodeState:
        """The inverse of ``as_dict``, for states that travelled through a play.

        Raises:
            ValueError: the record is no such state.
        """
        node = record.get("node")
        if "state" not in record or not isinstance(node, Mapping):
            raise ValueError("a node state has at least 'state' and 'node'; give what node_info returned as broker")
        return cls(
            reachable=record.get("reachable") is True,
            ready=record.get("ready") is True,
            state=str(record["state"]),
            reason=str(record.get("reason") or ""),
            node=node,
        )


def interpret(health: Reply, node: Reply) -> NodeState:
    """The state that ``/health/ready`` and ``/api/v1/node`` together describe."""
    if health.status == 0:
        return NodeState(reachable=False, ready=False, state="unreachable", reason=health.problem)
    if health.status not in (200, 503):
        return NodeState(
            reachable=True, ready=False, state="unreachable", reason=f"/health/ready answered {health.status}"
        )
    state = str(health.body.get("state") or "starting")
    reason = str(health.body.get("reason") or "")
    if node.status != 200:
        refused = f"/api/v1/node answered {node.status}; is the token of this instance the right one?"
        reason = reason or node.problem or refused
        return NodeState(reachable=True, ready=False, state=state, reason=reason)
    ready = health.status == 200 and health.body.get("ready") is True
    return NodeState(reachable=True, ready=ready, state=state, reason=reason, node=node.body)


class ManagementClient:
    """Asks one broker over HTTP or HTTPS, with the means of ``ansible.module_utils.urls``.

    Redirects are not followed and ``~/.netrc`` is not read, so that the token reaches the named host only.
    """

    def __init__(self, url: str, token: str, access: Access = DIRECT) -> None:
        """
        Args:
            url: ``http://ADDRESS:PORT`` or ``https://ADDRESS:PORT``.
            token: bearer token of the instance.
            access: timeout, certificates and proxies.

        Raises:
            ValueError: ``url`` is not a management URL.
        """
        parts = urlsplit(url)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise ValueError(f"{url!r} is no management URL; give http://ADDRESS:PORT or https://ADDRESS:PORT")
        self._base = f"{parts.scheme}://{parts.netloc}"
        self._token = token
        self._access = access

    def state(self) -> NodeState:
        """Ask both questions. The health first: its answer needs no token."""
        health = self._get("/health/ready", authorise=False)
        if health.status == 0:
            return interpret(health, Reply(0, {}))
        return interpret(health, self._get("/api/v1/node", authorise=True))

    def cluster(self) -> Reply:
        """The answer of ``/api/v1/cluster``."""
        return self._get("/api/v1/cluster", authorise=True)

    def node(self) -> Reply:
        """The answer of ``/api/v1/node``."""
        return self._get("/api/v1/node", authorise=True)

    def invoke(self, operation: str, *parameters: object, resource: str = "broker") -> Reply:
        """Call an operation; a refusal has status 422 and the reason in ``error``, a passive node answers 503.

        Args:
            operation: Name of the operation, see docs/use/management-over-messages.md.
            parameters: Values of the parameters of the operation, in order.
            resource: ``broker``, ``address.NAME`` or ``queue.NAME``.
        """
        asked: dict[str, object] = {"resource": resource, "operation": operation}
        if parameters:
            asked["parameters"] = list(parameters)
        return self._ask("/api/v1/invoke", json.dumps(asked).encode())

    def activate(self) -> Reply:
        """Let the backup of a store that was stopped cleanly activate; a refusal has status 422 and the reason."""
        return self._ask("/api/v1/node/activate", b"{}")

    def _get(self, path: str, *, authorise: bool) -> Reply:
        return self._ask(path, None, authorise=authorise)

    def _ask(self, path: str, body: bytes | None, *, authorise: bool = True) -> Reply:
        headers = {"Accept": "application/json"}
        if authorise:
            headers["Authorization"] = f"Bearer {self._token}"
        if body is not None:
            headers["Content-Type"] = "application/json"
        url = f"{self._base}{path}"
        try:
            with open_url(
                url,
                data=body,
                method="GET" if body is None else "POST",
                headers=headers,
                timeout=self._access.timeout_s,
                use_proxy=self._access.use_proxy,
                validate_certs=self._access.validate_certs,
                ca_path=self._access.ca_path,
                client_cert=self._access.client_cert,
                client_key=self._access.client_key,
                follow_redirects="none",
                use_netrc=False,
            ) as answer:
                return Reply(answer.status, _object(answer.read(ANSWER_BYTES_MAX)))
        except urllib.error.HTTPError as error:
            # A status of 400 or more is an answer, too: /health/ready says 503 with the state in the body.
            with error:
                return Reply(error.code, _object(error.read(ANSWER_BYTES_MAX)))
        except (OSError, http.client.HTTPException, TransportError, ValueError) as error:
            return Reply(0, {}, f"{url}: {_reason(error)}")


def _reason(error: Exception) -> str:
    """The cause in words; ``URLError`` wraps it and some exceptions have no text."""
    cause = getattr(error, "reason", None) or error
    return str(cause) or type(cause).__name__


def _object(data: bytes) -> Mapping[str, object]:
    try:
        value = json.loads(data)
    except ValueError:
        return {}
    return value if isinstance(value, dict) else {}
