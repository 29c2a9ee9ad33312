"""A configuration that lines of the management CLI change, without a running node."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from understudy.config.edit.overlay import counting, extended, waiting
from understudy.config.reading.servers import LoadedConfig
from understudy.management.dmr.batch import Overrides, change
from understudy.management.dmr.grammar import Operation, parse_line
from understudy.management.dmr.operations import Facts, masked
from understudy.management.dmr.requests import Request, success
from understudy.management.dmr.text import format_value
from understudy.management.dmr.values import Value
from understudy.runtime.files.configuration_change import WorkingFiles
from understudy.runtime.files.configuration_file import ConfigurationFile

SERVER = "/subsystem=messaging-activemq/server=default"
PASSWORD = "a password of our own, long"
#: A broker.xml that lines of the documents are meant for, as far as the broker serves them.
FULL_HA = f"""\
<configuration xmlns="urn:activemq"><core xmlns="urn:activemq:core">
  <name>node</name>
  <cluster-password>{PASSWORD}</cluster-password>
  <connectors><connector name="http-connector">tcp://127.0.0.1:61616</connector></connectors>
  <acceptors><acceptor name="artemis">tcp://127.0.0.1:61616?trustStorePassword=secret</acceptor></acceptors>
  <cluster-connections>
    <!-- the cluster -->
    <cluster-connection name="my-cluster">
      <address>jms</address><connector-ref>http-connector</connector-ref><static-connectors/>
    </cluster-connection>
  </cluster-connections>
  <broadcast-groups><broadcast-group name="bg-group1">
    <group-address>231.7.7.7</group-address><group-port>9876</group-port>
    <connector-ref>http-connector</connector-ref>
  </broadcast-group></broadcast-groups>
</core></configuration>
"""


class Configured:
    """A broker.xml and the overlay that lines have made, which is kept in memory."""

    def __init__(self, directory: Path, text: str = FULL_HA, facts: Facts | None = None) -> None:
        (directory / "etc").mkdir()
        self.source = ConfigurationFile(directory / "etc" / "broker.xml", directory)
        self.source.config.write_text(text)
        self.overrides: Overrides = ()
        self.facts = facts or Facts("1", "/srv/node")

    def carry_out(self, *lines: str | Operation, composite: bool = False) -> Mapping[str, Value]:
        """The answer to lines as one batch, or to one line alone; its changes count. Raises BrokerError."""
        operations = [parse_line(line) if isinstance(line, str) else line for line in lines]
        assert all(isinstance(each, Operation) for each in operations)
        found = tuple(each for each in operations if isinstance(each, Operation))
        made = change(
            found,
            self.overrides,
            WorkingFiles(self.source, self.facts).reach,
            lambda each: ("now", "a user", str(masked(each))),
        )
        waits_for = None
        if made.states:
            self.overrides, waits_for = extended(
                self.overrides, made.states, lambda each: self.source.load(overrides=each), may_wait=len(found) == 1
            )
        shown = None if waits_for is None else str(waits_for)
        return success(Request(found, composite=composite or len(found) > 1), made.outcomes, shown)

    def result(self, line: str) -> Value:
        """The result of a line that reads."""
        return self.carry_out(line)["result"]

    def printed(self, line: str) -> str:
        """The answer to a line as the CLI prints it."""
        return format_value(self.carry_out(line))

    @property
    def loaded(self) -> LoadedConfig:
        """The configuration with the changes."""
        return self.source.load(overrides=counting(self.overrides))

    @property
    def waiting(self) -> Overrides:
        """The changes that wait for others."""
        return waiting(self.overrides)
