"""The files of an Artemis instance, read for a comparison with what works here.

Nothing is written and nothing is started. A file that is damaged is a problem of the instance, not an error.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import field
from typing import Final

from lxml import etree

from understudy.config.bootstrap_file import Bootstrap, read_bootstrap
from understudy.config.instance_files import (
    BOOTSTRAP_FILE,
    CONFIG_FILE,
    LOGIN_FILE,
    ROLES_FILE,
    USERS_FILE,
    launcher_properties,
)
from understudy.config.logins.login_config import Logins, read_logins
from understudy.config.model import ConfigWarning
from understudy.config.reading.document import ConfigErrors
from understudy.config.reading.reader import read_broker_xml
from understudy.config.reading.servers import LoadedConfig
from understudy.dataclass import dataclass
from understudy.errors import ConfigError
from understudy.security.authentication import parse_roles
from understudy.security.properties_file import Entry, entries
from understudy.texts import reason_of

PROFILE_FILE: Final = "artemis.profile"
ReadFile = Callable[[str], bytes]
"""Reads a file; raises OSError."""
#: ``-Dname=value`` in the arguments of the virtual machine; the value may be in quotation marks.
_DEFINITION: Final = re.compile(r"""-D([\w.-]+)=("[^"]*"|'[^']*'|[^\s"']*)""")
_NAMESPACE: Final = re.compile(r"^\{[^}]*\}")


@dataclass(frozen=True, slots=True)
class ArtemisInstance:
    """An instance directory of Artemis as far as it could be read."""

    directory: str
    loaded: LoadedConfig | None
    """Configuration read from broker.xml; None: it cannot be used."""
    errors: tuple[ConfigError, ...] = ()
    """Errors found in broker.xml."""
    problems: tuple[ConfigError, ...] = ()
    """Errors of other files."""
    elements: tuple[etree._Element, ...] = field(default=(), repr=False)
    """All elements of broker.xml, in their order; empty if it is no XML."""
    properties: Mapping[str, str] = field(default_factory=dict)
    """Properties that artemis.profile gives to broker.xml."""
    logins: Logins = field(default_factory=Logins)
    bootstrap: Bootstrap = field(default_factory=Bootstrap)
    users: tuple[Entry, ...] = ()

    @property
    def config(self) -> str:
        """Path of the instance's broker.xml."""
        return f"{self.directory}/etc/{CONFIG_FILE}"

    @property
    def users_file(self) -> str:
        """Path of the instance's users file."""
        return f"{self.directory}/etc/{self.logins.users_file or USERS_FILE}"

    @property
    def warnings(self) -> Sequence[ConfigWarning]:
        """Warnings about the instance's broker.xml."""
        return self.loaded.warnings if self.loaded is not None else ()

    def named(self, name: str) -> list[etree._Element]:
        """The elements of broker.xml with a name, whatever their namespace."""
        return [each for each in self.elements if local_name(each) == name]

    def line(self, element: etree._Element) -> str:
        """``file:line`` of an element."""
        return f"{self.config}:{element.sourceline or 1}"


def local_name(element: etree._Element) -> str:
    """The name of an element without its namespace; empty for a comment."""
    return _NAMESPACE.sub("", element.tag) if isinstance(element.tag, str) else ""


def read_instance(directory: str, read_file: ReadFile) -> ArtemisInstance:
    """Read the instance in a directory.

    Args:
        directory: Path of the instance; its files are in ``etc`` below it.
        read_file: Reads the files.

    Raises:
        ConfigError: there is no broker.xml.
    """
    etc = f"{directory}/etc"
    problems: list[ConfigError] = []

    def text(name: str) -> str | None:
        try:
            return read_file(f"{etc}/{name}").decode()
        except FileNotFoundError:
            return None
        except (OSError, UnicodeDecodeError) as error:
            problems.append(ConfigError(f"cannot be read: {reason_of(error)}", file=f"{etc}/{name}"))
            return None

    config = f"{etc}/{CONFIG_FILE}"
    try:
        data = read_file(config)
    except OSError as error:
        hint = "name the directory that `artemis create` made, which has etc/broker.xml"
        raise ConfigError(f"cannot be read: {error.strerror}", file=config, hint=hint) from error
    properties = launcher_properties(directory) | _properties(text(PROFILE_FILE) or "")
    bootstrap, logins = Bootstrap(), Logins()
    users: tuple[Entry, ...] = ()
    try:
        bootstrap = read_bootstrap((text(BOOTSTRAP_FILE) or "<broker/>").encode(), f"{etc}/{BOOTSTRAP_FILE}")
        login = text(LOGIN_FILE)
        if login is not None:
            logins = read_logins(login, bootstrap.realms, f"{etc}/{LOGIN_FILE}")
        name = logins.users_file or USERS_FILE
        users = tuple(entries(text(name) or "", f"{etc}/{name}"))
        name = logins.roles_file or ROLES_FILE
        parse_roles(text(name) or "", file=f"{etc}/{name}")
    except ConfigError as error:
        problems.append(error)
    loaded, errors = None, tuple[ConfigError, ...]()
    try:
        loaded = read_broker_xml(
            data, file=config, base_directory=directory, properties=properties, read_file=read_file
        )
    except ConfigErrors as error:
        errors = error.errors
    except ConfigError as error:
        errors = (error,)
    return ArtemisInstance(
        directory,
        loaded,
        errors,
        tuple(problems),
        _elements(data),
        properties,
        logins,
        bootstrap,
        users,
    )


def _properties(profile: str) -> dict[str, str]:
    return {match[1]: match[2].strip("\"'") for match in _DEFINITION.finditer(profile) if "$" not in match[2]}


def _elements(data: bytes) -> tuple[etree._Element, ...]:
    parser = etree.XMLParser(resolve_entities=False, no_network=True, huge_tree=False, load_dtd=False)
    try:
        return tuple(etree.fromstring(data, parser).iter())
    except (etree.XMLSyntaxError, ValueError):
        return ()
