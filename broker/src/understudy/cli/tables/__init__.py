"""The one renderer of tables and figures that commands print (ADR 0140).

``columns`` declares a table, ``layout`` gives its columns their widths, ``drawing`` prints it, and ``view`` has the
options that a command with a table takes. Commands import from here.
"""

from understudy.cli.tables.columns import Column, Kind, Row, Table
from understudy.cli.tables.console import console
from understudy.cli.tables.drawing import Page
from understudy.cli.tables.figures import figure_column, figure_texts, with_others
from understudy.cli.tables.view import View, json_option, view_options

__all__ = [
    "Column",
    "Kind",
    "Page",
    "Row",
    "Table",
    "View",
    "console",
    "figure_column",
    "figure_texts",
    "json_option",
    "view_options",
    "with_others",
]
