"""The prompt of ``understudy cli``: history and completion by prompt_toolkit, which is an extra."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from understudy.cli.console.session import Send, Session
from understudy.cli.terminal import echo
from understudy.errors import BrokerError, ConfigError
from understudy.management.dmr.grammar import Address, Operation, parse_address


def converse(session: Session, send: Send, place: str) -> None:
    """Read lines from a terminal until ``quit`` or the end of the input; errors are printed and end nothing.

    Args:
        session: Carries the lines out.
        send: Has the node carry out operations, for completion.
        place: The node, as the prompt shows it.

    Raises:
        ConfigError: prompt_toolkit is not installed.
    """
    try:
        from prompt_toolkit import PromptSession
        from prompt_toolkit.completion import Completer, Completion
    except ImportError as error:
        hint = "pip install 'understudy[cli]', or give --command or --file"
        raise ConfigError(f"a prompt needs the package prompt_toolkit: {error}", hint=hint) from error

    class _Completer(Completer):
        def get_completions(self, document: Any, complete_event: Any) -> Iterator[Any]:
            text = document.text_before_cursor
            for word, typed in completions(text, session, send):
                yield Completion(word, start_position=-len(typed))

    terminal: Any = PromptSession(completer=_Completer(), complete_while_typing=False)

    def lines() -> Iterator[str]:
        while True:
            step = "/" if not session.node else "=".join(session.node[-1])
            mark = " #" if session.batch is not None else ""
            yield terminal.prompt(f"[{place} {step}{mark}] ")

    following = lines()
    while not session.ended:
        try:
            session.carry_out(next(following), following)
        except BrokerError as error:
            # the answer of the node has been printed
            if error.code != "management-failed":
                echo(f"understudy: {error}", err=True)
            following = lines()
        except KeyboardInterrupt:
            following = lines()
        except (EOFError, StopIteration):
            return


def completions(text: str, session: Session, send: Send) -> Iterator[tuple[str, str]]:
    """Words that may follow a text, each with the characters of it that are typed already."""
    if ":" in text:
        address, _, typed = text.rpartition(":")
        names = _asked(address, session, send, "read-operation-names")
    elif "/" in text or "=" in text:
        start = text.rfind("/") + 1
        kind, equals, typed = text[start:].partition("=")
        if equals:
            names = _asked(text[:start], session, send, "read-children-names", {"child-type": kind})
        else:
            typed = kind
            names = [f"{each}=" for each in _asked(text[:start], session, send, "read-children-types")]
    else:
        typed, names = text, session.command_names
    yield from ((name, typed) for name in names if name.startswith(typed))


def _asked(
    address: str, session: Session, send: Send, operation: str, arguments: dict[str, Any] | None = None
) -> list[str]:
    """Names that the node gives; none if it gives a failure, since completion is never an error."""
    try:
        node: Address = parse_address(address.rstrip("/") or ("/" if address else ""), session.node)
        answer = send([Operation(node, operation, arguments or {})], False)
    except BrokerError:
        return []
    result = answer.get("result")
    return [str(each) for each in result] if isinstance(result, list) else []
