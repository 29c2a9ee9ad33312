"""Shared by the collection's unit tests: calling a module as Ansible would, and a broker's management in miniature."""

from __future__ import annotations

import json
import ssl
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from types import ModuleType

import pytest
from ansible.module_utils.testing import patch_module_args
from hypothesis import HealthCheck, settings

# The same examples each time, and no judgement about speed: a busy machine is no failure.
settings.register_profile(
    "repeatable", derandomize=True, deadline=None, suppress_health_check=[HealthCheck.too_slow], database=None
)
settings.load_profile("repeatable")

COLLECTION = Path(__file__).resolve().parents[2]


@dataclass
class Management:
    """What the miniature management answers, and what it was asked."""

    url: str = ""
    token: str = "right"
    ready: bool = True
    state: str = "active"
    following: dict[str, object] | None = None
    peer: dict[str, object] | None = None
    redirect: str = ""
    """Where every question is sent on to, if it is."""
    colocated: dict[str, object] | None = None
    """The part of ``/api/v1/cluster`` about hosted backups."""
    refuses: str = ""
    """Why operations are refused; empty if they are carried out."""
    refusal_status: int = 422
    """Status of a refusal; 503 from a node that is not active."""
    refusal_code: str = "refused"
    becomes: str = "passive"
    """State after an operation."""
    asked: list[str] = field(default_factory=list)
    use_tls: Callable[[Path], None] = lambda _: None
    """Speak TLS from now on with the certificate and key of a file, and demand a certificate of the client."""

    def node(self) -> dict[str, object]:
        return {
            "name": "east-1",
            "ha": {"policy": "shared-store", "role": "primary", "state": self.state},
            "peer": self.peer,
            "following": self.following,
        }


@pytest.fixture
def management() -> Iterator[Management]:
    """A server on a free loopback port that speaks the management contract."""
    answers = Management()

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            answers.asked.append(self.path)
            if answers.redirect:
                self.send_response(302)
                self.send_header("Location", answers.redirect)
                self.send_header("Content-Length", "0")
                self.end_headers()
                return
            if self.path == "/health/ready":
                status, body = (200 if answers.ready else 503), {"ready": answers.ready, "state": answers.state}
            elif self.headers.get("Authorization") != f"Bearer {answers.token}":
                status, body = 401, {"error": "token"}
            elif self.path == "/api/v1/cluster":
                status, body = 200, {"colocated": answers.colocated}
            else:
                status, body = 200, answers.node()
            self.answer(status, body)

        def do_POST(self) -> None:
            asked = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            called = [asked[key] for key in ("resource", "operation") if key in asked]
            answers.asked.append(" ".join([self.path, *called]))
            if answers.refuses:
                self.answer(
                    answers.refusal_status, {"error": {"code": answers.refusal_code, "message": answers.refuses}}
                )
            else:
                answers.state = answers.becomes
                self.answer(202 if self.path.endswith("/activate") else 200, {"result": None})

        def answer(self, status: int, body: dict[str, object]) -> None:
            data = json.dumps(body).encode()
            self.send_response(status)
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

        def log_message(self, *_: object) -> None:
            """Tests are quiet."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)

    def use_tls(certificate: Path) -> None:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(certificate)
        context.load_verify_locations(certificate)
        context.verify_mode = ssl.CERT_REQUIRED
        server.socket = context.wrap_socket(server.socket, server_side=True)
        server.handle_error = lambda *_: None  # type: ignore[method-assign]
        answers.url = answers.url.replace("http:", "https:")

    answers.use_tls = use_tls
    answers.url = f"http://127.0.0.1:{server.server_port}"
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    yield answers
    server.shutdown()
    server.server_close()
    thread.join()


RunModule = Callable[..., dict[str, object]]


@pytest.fixture
def run_module(capfd: pytest.CaptureFixture[str]) -> RunModule:
    """Calls the ``main`` of a module with arguments and gives what it prints."""

    def run(module: ModuleType, *, check_mode: bool = False, **arguments: object) -> dict[str, object]:
        capfd.readouterr()
        with patch_module_args({**arguments, "_ansible_check_mode": check_mode}), pytest.raises(SystemExit):
            module.main()
        return json.loads(capfd.readouterr().out)

    return run
