"""Schema rows of named paths: the element ``path`` beside ``core``, and the attribute of directories that names one.

Names are those of the management model of WildFly (ADR 0190).
"""

from __future__ import annotations

from typing import Final

from understudy.config.schema.grammar import Attribute, Element, Kind, container, named

DATA_DIRECTORY: Final = "jboss.server.data.dir"
"""The name of the instance directory."""

RELATIVE_TO: Final = Attribute(
    "relative-to",
    Kind.TEXT,
    "Name of the path where a relative directory starts; jboss.server.data.dir is the instance directory.",
    DATA_DIRECTORY,
)

NAMED_PATH: Final[Element] = container(
    "path",
    "A named directory, where other directories start. Not in Artemis.",
    attributes=(named("Name."), Attribute("path", Kind.PATH, "The directory.", required=True), RELATIVE_TO),
    repeated=True,
)
"""The element beside ``core``."""
