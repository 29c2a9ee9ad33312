"""The configuration of an instance: its broker.xml with included files, and the overlay beside it.

Every reader of a running or starting broker, and every command that reads the configuration of an instance, reads it
here, so that none misses the overlay. Not here: the meaning of elements (``config.reading.reader``).
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import field, replace
from pathlib import Path

from understudy.config.edit import Merged, Target, merge
from understudy.config.edit.overlay import Override, counting, waiting
from understudy.config.instance_files import launcher_properties
from understudy.config.model import ConfigWarning
from understudy.config.password_codec import KEY_VARIABLE
from understudy.config.reading.document import Document, Node
from understudy.config.reading.reader import read_broker_xml
from understudy.config.reading.servers import LoadedConfig
from understudy.dataclass import dataclass
from understudy.errors import ConfigError
from understudy.limits import CONFIG_BYTES_MAX
from understudy.runtime.files.overlay_file import overlay_of, read_overlay
from understudy.runtime.node.volatile_store import VolatileStore

ReadFile = Callable[[str], bytes]


@dataclass(frozen=True, slots=True)
class ConfigurationFile:
    """The files of one configuration, and the values that its reading depends on."""

    config: Path
    """broker.xml."""
    directory: Path
    """The instance directory, where relative paths start."""
    properties: Mapping[str, str] = field(default_factory=dict)
    """Values for ``${NAME}``, beside those that the launcher of Artemis defines."""
    quarantine: bool = False
    """Whether damaged records are quarantined, regardless of the file."""

    def load(
        self,
        *,
        data: bytes | None = None,
        read_file: ReadFile | None = None,
        overrides: Sequence[Override] | None = None,
    ) -> LoadedConfig:
        """The configuration.

        Args:
            data: Bytes that take the place of those of broker.xml.
            read_file: Takes the place of the files that it includes.
            overrides: The overlay, which may be one that is not written yet; None: that of the file.

        Raises:
            ConfigError: a file cannot be read or used, alone or with the overlay.
        """
        if data is None:
            data = read_data(self.config)
        read_file = read_file or read_included
        if overrides is not None:
            loaded = self._merged_and_read(data, read_file, overrides)
        else:
            found = read_overlay(self.config)
            loaded = _with_waiting(self._with_overlay(data, read_file, counting(found)), waiting(found), self.config)
        loaded = replace(loaded, included=(*loaded.included, str(overlay_of(self.config))))
        if self.quarantine:
            loaded = loaded.mapped(lambda each: replace(each, quarantine_damaged_records=True))
        if not loaded.configuration.persistence_enabled:
            loaded = replace(loaded, configuration=volatile_store(self.directory).configure(loaded.configuration))
        return loaded

    def load_whole(self) -> LoadedConfig:
        """The configuration, of which no change waits for another one. Raises ConfigError: one does, or as ``load``."""
        loaded = self.load()
        if loaded.waiting:
            found = read_overlay(self.config)
            self.load(overrides=[*counting(found), *waiting(found)])
        return loaded

    def merged(self, overrides: Sequence[Override], data: bytes | None = None) -> Merged:
        """broker.xml and its included files with an overlay. Raises ConfigError: a state has no place in the schema."""
        data = read_data(self.config) if data is None else data
        return self._merged(data, read_included, overrides)

    def nodes(self, merged: Merged) -> list[Node]:
        """The checked elements ``core``, ``server`` and those beside them, of merged files, without those with errors.

        Raises:
            ConfigError: the files cannot be read.
        """
        document = Document(str(self.config), self._values, merged.read_file)
        return [*document.parse(merged.data), *document.beside]

    def reached(self, merged: Merged, targets: Sequence[Target]) -> Merged:
        """Merged files with further states. Raises ConfigError: a state has no place in the schema."""
        return self._reach(merged.data, merged.read_file, targets)

    @property
    def _values(self) -> Mapping[str, str]:
        return launcher_properties(str(self.directory)) | dict(self.properties)

    def _merged(self, data: bytes, read_file: ReadFile, overrides: Sequence[Override]) -> Merged:
        return self._reach(data, read_file, [each.target for each in overrides])

    def _reach(self, data: bytes, read_file: ReadFile, targets: Sequence[Target]) -> Merged:
        return merge(data, targets, file=str(self.config), read_file=read_file, properties=self._values)

    def _with_overlay(self, data: bytes, read_file: ReadFile, overrides: Sequence[Override]) -> LoadedConfig:
        """broker.xml with the overlay of the file; an error says which of the two has it."""
        try:
            return self._merged_and_read(data, read_file, overrides)
        except ConfigError as error:
            if not overrides:
                raise
            # an error of broker.xml itself has its line there; with the overlay lines are others
            self._read(data, read_file)
            message = f"{self.config} is usable, but not with the changes in this file: {error}"
            hint = "`understudy config diff` shows them, `understudy config drop` removes them"
            raise ConfigError(message, file=str(overlay_of(self.config)), hint=hint) from error

    def _merged_and_read(self, data: bytes, read_file: ReadFile, overrides: Sequence[Override]) -> LoadedConfig:
        if not overrides:
            return self._read(data, read_file)
        merged = self._merged(data, read_file, overrides)
        loaded = self._read(merged.data, merged.read_file)
        told = f"changes of the management CLI override broker.xml ({len(overrides)}): see `understudy config diff`"
        warning = ConfigWarning(told, "configuration", str(overlay_of(self.config)), 1)
        return replace(loaded, warnings=(*loaded.warnings, warning), overrides=len(overrides))

    def _read(self, data: bytes, read_file: ReadFile) -> LoadedConfig:
        return read_broker_xml(
            data,
            file=str(self.config),
            base_directory=str(self.directory),
            properties=self._values,
            codec_key=os.environ.get(KEY_VARIABLE),
            read_file=read_file,
        )


def _with_waiting(loaded: LoadedConfig, waiting: Sequence[Override], config: Path) -> LoadedConfig:
    """The configuration with the places of changes that wait, and a warning about them."""
    if not waiting:
        return loaded
    told = (
        f"changes of the management CLI wait for others that they name ({len(waiting)}): see `understudy config diff`"
    )
    warning = ConfigWarning(told, "configuration", str(overlay_of(config)), 1)
    paths = tuple(dict.fromkeys(each.target.path for each in waiting))
    return replace(loaded, warnings=(*loaded.warnings, warning), waiting=paths)


def read_data(config: Path) -> bytes:
    """The bytes of a broker.xml. Raises ConfigError: it cannot be read."""
    try:
        return config.read_bytes()
    except OSError as error:
        hint = "`understudy create DIR` writes an instance" if isinstance(error, FileNotFoundError) else None
        raise ConfigError(f"cannot be read: {error.strerror}", file=str(config), hint=hint) from error


def read_included(file: str) -> bytes:
    """The bytes of a file that broker.xml includes, one more than allowed at most. Raises OSError."""
    with open(file, "rb") as opened:
        return opened.read(CONFIG_BYTES_MAX + 1)


def volatile_store(directory: Path) -> VolatileStore:
    """The store of an instance without persistence."""
    return VolatileStore(directory / "run" / "volatile")
