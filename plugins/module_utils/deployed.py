"""Objects that act on an instance of this host, made from its directory: service back end, management client, gate."""

from __future__ import annotations

import xml.etree.ElementTree as ET
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from ansible_collections.understudy.broker.plugins.module_utils.administration import Administration
from ansible_collections.understudy.broker.plugins.module_utils.lifecycle import Instance
from ansible_collections.understudy.broker.plugins.module_utils.management import (
    DIRECT,
    Access,
    ManagementClient,
    NodeState,
)
from ansible_collections.understudy.broker.plugins.module_utils.process import read_record
from ansible_collections.understudy.broker.plugins.module_utils.service import (
    Run,
    ServiceDefinition,
    ServiceError,
    open_service,
)
from ansible_collections.understudy.broker.plugins.module_utils.user_store import ROLES_FILE, USERS_FILE
from ansible_collections.understudy.broker.plugins.module_utils.waiting import Clock


@dataclass(frozen=True)
class DeployedInstance:
    """A deployed instance: what its definition says, and the object that moves it."""

    definition: ServiceDefinition
    instance: Instance

    def management(self) -> ManagementClient:
        """A client with the token of now."""
        definition = self.definition
        token = read_token(Path(definition.token_file))
        return ManagementClient(definition.management_url, token, definition.access)

    def is_hosted(self) -> bool:
        """Whether another node hosts the backup of this colocated node; False if it does not answer."""
        colocated = self.management().cluster().body.get("colocated")
        return isinstance(colocated, Mapping) and colocated.get("request") == "HOSTED"


def open_instance(directory: Path, run: Run, clock: Clock) -> DeployedInstance | None:
    """The instance in ``directory``, or None if nothing has been deployed there.

    Raises:
        ServiceError: its definition cannot be used.
    """
    definition = ServiceDefinition.read(directory)
    if definition is None:
        return None
    ask = asker(definition.management_url, Path(definition.token_file), definition.access)
    return DeployedInstance(definition, Instance(open_service(directory, definition, run), ask, clock))


STORE_ELEMENTS = {
    "bindings-directory": "bindings",
    "journal-directory": "journal",
    "large-messages-directory": "large-messages",
    "paging-directory": "paging",
}
"""Elements of broker.xml with the directories of a store, and their defaults below ``data``."""


def read_files(directory: Path) -> dict[str, object]:
    """The files of an instance that its variables are read from: ``document``, ``users``, ``roles`` and ``service``.

    Raises:
        ServiceError: there is no broker.xml.
        OSError, ValueError: a file cannot be read.
    """
    etc = directory / "etc"

    def text(name: str) -> str:
        path = etc / name
        return path.read_text(encoding="utf-8") if path.exists() else ""

    if not (etc / "broker.xml").exists():
        raise ServiceError(f"{etc / 'broker.xml'} does not exist; directory must be the instance directory of a node")
    return {
        "document": text("broker.xml"),
        "users": text(USERS_FILE),
        "roles": text(ROLES_FILE),
        "service": read_record(etc / "service.json"),
    }


def broker_elements(directory: Path) -> dict[str, str]:
    """Text of the elements in the broker.xml of an instance by name, and by ``PARENT/NAME``; of several the first one.

    Raises:
        ServiceError: there is none, or it is no XML.
    """
    path = directory / "etc/broker.xml"
    try:
        root = ET.parse(path).getroot()
    except FileNotFoundError as error:
        raise ServiceError(f"{path} does not exist; directory must be the instance directory of a node") from error
    except ET.ParseError as error:
        raise ServiceError(f"{path}: {error}") from error
    found: dict[str, str] = {}
    for element in root.iter():
        name = element.tag.rpartition("}")[2]
        found.setdefault(name, (element.text or "").strip())
        for child in element:
            found.setdefault(f"{name}/{child.tag.rpartition('}')[2]}", (child.text or "").strip())
    return found


def store_directories(directory: Path) -> dict[str, Path]:
    """The directories of the store of an instance, by element; relative ones are below the instance.

    Raises:
        ServiceError: broker.xml cannot be read.
    """
    elements = broker_elements(directory)
    return {name: directory / (elements.get(name) or f"data/{default}") for name, default in STORE_ELEMENTS.items()}


def open_administration(directory: Path, run: Run) -> Administration:
    """The addresses and queues of the broker of an instance.

    Raises:
        ServiceError: nothing is deployed there, or its definition cannot be used.
    """
    deployed = open_instance(directory, run, Clock())
    if deployed is None:
        raise ServiceError(f"nothing is deployed in {directory}; run the site playbook on this host first")
    return Administration(deployed.management(), deployed.definition.name)


def asker(url: str, token_file: Path, access: Access = DIRECT) -> Callable[[], NodeState]:
    """A function that asks the broker at ``url`` for its state, reading the token anew each time."""

    def ask() -> NodeState:
        return ManagementClient(url, read_token(token_file), access).state()

    return ask


def read_token(path: Path) -> str:
    """The token, or an empty string if there is none to read: the broker's refusal then says so better than we can."""
    try:
        return path.read_text(encoding="ascii").strip()
    except (OSError, ValueError):
        return ""
