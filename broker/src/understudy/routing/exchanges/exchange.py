"""An exchange, its bindings, and how each type of exchange finds the bindings of a message.

Sources: AMQP 0-9-1 s. 3.1.3 (types), the extensions of RabbitMQ (exchange to exchange, alternate exchange, internal).
Not here: queues, the graph of exchanges, records (``exchanges``).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import ClassVar, Final, Protocol

from understudy.dataclass import dataclass
from understudy.limits import (
    HEADERS_ARGUMENTS_MAX,
    HEADERS_ARGUMENTS_OF_EXCHANGE_MAX,
    TOPIC_KEY_WORDS_MAX,
    TOPIC_PLACES_AFTER_HASH_MAX,
    TOPIC_WORDS_MAX,
)
from understudy.routing.exchanges.errors import ExchangeMismatch

DIRECT: Final = "direct"
FANOUT: Final = "fanout"
TOPIC: Final = "topic"
HEADERS: Final = "headers"

#: Exchange through which clients learn of other nodes; only the broker sends messages through it.
KNOWN_HOSTS: Final = "amq.qpid"
#: Exchanges that every virtual host has, and their types.
PREDECLARED: Final[Mapping[str, str]] = {
    "": DIRECT,
    "amq.direct": DIRECT,
    "amq.fanout": FANOUT,
    "amq.topic": TOPIC,
    "amq.headers": HEADERS,
    "amq.match": HEADERS,
    KNOWN_HOSTS: DIRECT,
}


@dataclass(frozen=True, slots=True)
class ExchangeBinding:
    """One binding; two with the same values are one."""

    source: str
    """Name of the exchange."""
    destination: str
    """Name of the queue or exchange that gets messages."""
    to_exchange: bool
    """Whether the destination is an exchange."""
    key: str
    """Routing key, or pattern of a topic exchange."""
    arguments: bytes = b""
    """Encoded field table with sorted names; empty without arguments."""


class Matcher(Protocol):
    """The bindings of an exchange of one type."""

    reads_keys: ClassVar[bool]
    """Whether the routing key decides which bindings a message matches."""

    def add(self, binding: ExchangeBinding, arguments: Mapping[str, object]) -> None:
        """Add a binding. Raises ExchangeMismatch: its key or arguments cannot be used."""
        ...

    def remove(self, binding: ExchangeBinding) -> None:
        """Remove a binding that was added."""
        ...

    def match(self, key: str, headers: Mapping[str, object]) -> Iterable[ExchangeBinding]:
        """Bindings of a message with this routing key and these headers, each once."""
        ...


class BindingListener(Protocol):
    """Follows the bindings of exchanges."""

    def bound(self, exchange: Exchange, binding: ExchangeBinding) -> None:
        """A binding was made."""

    def unbound(self, exchange: Exchange, binding: ExchangeBinding) -> None:
        """A binding was removed."""


class DirectMatcher:
    """Bindings by their routing key. Implements ``Matcher``."""

    reads_keys: ClassVar[bool] = True

    def __init__(self) -> None:
        self._by_key: dict[str, dict[ExchangeBinding, None]] = {}

    def add(self, binding: ExchangeBinding, arguments: Mapping[str, object]) -> None:
        self._by_key.setdefault(binding.key, {})[binding] = None

    def remove(self, binding: ExchangeBinding) -> None:
        bindings = self._by_key[binding.key]
        del bindings[binding]
        if not bindings:
            del self._by_key[binding.key]

    def match(self, key: str, headers: Mapping[str, object]) -> Iterable[ExchangeBinding]:
        return self._by_key.get(key, ())


class FanoutMatcher:
    """All bindings. Implements ``Matcher``."""

    reads_keys: ClassVar[bool] = False

    def __init__(self) -> None:
        self._bindings: dict[ExchangeBinding, None] = {}

    def add(self, binding: ExchangeBinding, arguments: Mapping[str, object]) -> None:
        self._bindings[binding] = None

    def remove(self, binding: ExchangeBinding) -> None:
        del self._bindings[binding]

    def match(self, key: str, headers: Mapping[str, object]) -> Iterable[ExchangeBinding]:
        return self._bindings


class _Node:
    """A place in the tree of patterns: the words before it have been read."""

    __slots__ = ("bindings", "children", "is_hash")

    def __init__(self, *, is_hash: bool = False) -> None:
        self.bindings: dict[ExchangeBinding, None] = {}
        self.children: dict[str, _Node] = {}
        self.is_hash = is_hash


class TopicMatcher:
    """Bindings by patterns of words between dots: ``*`` is one word, ``#`` any number of words.

    The patterns are a tree of words. A routing key is read word by word with the set of all places that it may have
    reached, so the cost is limited by words times places, however many ``#`` the patterns have. Only places after a
    ``#`` can be reached by many words, and their number is limited. Implements ``Matcher``.
    """

    reads_keys: ClassVar[bool] = True

    def __init__(self) -> None:
        self._root = _Node()
        self._after_hash = 0
        """Number of places that have a ``#`` before them."""

    def add(self, binding: ExchangeBinding, arguments: Mapping[str, object]) -> None:
        words = _words(binding.key)
        if len(words) > TOPIC_WORDS_MAX:
            raise ExchangeMismatch(f"a pattern of {len(words)} words, limit {TOPIC_WORDS_MAX}")
        node, follows_hash = self._root, False
        for word in words:
            child = node.children.get(word)
            if child is None:
                child = node.children[word] = _Node(is_hash=word == "#")
                self._after_hash += follows_hash
            node, follows_hash = child, follows_hash or child.is_hash
        node.bindings[binding] = None
        if self._after_hash > TOPIC_PLACES_AFTER_HASH_MAX:
            self.remove(binding)
            raise ExchangeMismatch(
                f"the patterns of the exchange would have more than {TOPIC_PLACES_AFTER_HASH_MAX} words after '#'"
            )

    def remove(self, binding: ExchangeBinding) -> None:
        path = [self._root]
        words = _words(binding.key)
        for word in words:
            path.append(path[-1].children[word])
        del path[-1].bindings[binding]
        first_hash = words.index("#") if "#" in words else len(words)
        for number, word in reversed(list(enumerate(words))):
            node = path.pop()
            if node.bindings or node.children:
                return
            del path[-1].children[word]
            self._after_hash -= number > first_hash

    def match(self, key: str, headers: Mapping[str, object]) -> Iterable[ExchangeBinding]:
        # a routing key of 255 bytes has at most 256 words; only one in a header may have more
        words = _words(key)[:TOPIC_KEY_WORDS_MAX]
        places = _reached((self._root,))
        for word in words:
            found: list[_Node] = []
            for place in places:
                if place.is_hash:
                    found.append(place)
                for name in (word, "*") if word != "*" else ("*",):
                    child = place.children.get(name)
                    # a word "#" of a key is no pattern
                    if child is not None and not child.is_hash:
                        found.append(child)
            places = _reached(found)
            if not places:
                return ()
        return dict.fromkeys(binding for place in places for binding in place.bindings)


def _words(key: str) -> list[str]:
    """The words of a routing key or pattern; an empty one has none, as in RabbitMQ."""
    return key.split(".") if key else []


def _reached(places: Iterable[_Node]) -> dict[_Node, None]:
    """The places, and further ones that ``#`` reaches without a word."""
    reached: dict[_Node, None] = {}
    for place in places:
        node: _Node | None = place
        while node is not None and node not in reached:
            reached[node] = None
            node = node.children.get("#")
    return reached


class HeadersMatcher:
    """Bindings by the headers of a message (``x-match``: all, any, all-with-x, any-with-x). Implements ``Matcher``."""

    reads_keys: ClassVar[bool] = False

    def __init__(self) -> None:
        self._arguments = 0
        """Number of arguments of all bindings."""
        self._bindings: dict[ExchangeBinding, tuple[bool, dict[str, object]]] = {}

    def add(self, binding: ExchangeBinding, arguments: Mapping[str, object]) -> None:
        match = arguments.get("x-match", "all")
        if match not in ("all", "any", "all-with-x", "any-with-x"):
            raise ExchangeMismatch(f"x-match is {match!r}, not all, any, all-with-x or any-with-x")
        with_x = str(match).endswith("-with-x")
        wanted = {
            name: value
            for name, value in arguments.items()
            if name != "x-match" and (with_x or not name.startswith("x-"))
        }
        if len(wanted) > HEADERS_ARGUMENTS_MAX:
            raise ExchangeMismatch(f"a binding with {len(wanted)} arguments, limit {HEADERS_ARGUMENTS_MAX}")
        if self._arguments + len(wanted) > HEADERS_ARGUMENTS_OF_EXCHANGE_MAX:
            raise ExchangeMismatch(
                f"the bindings of the exchange would have more than {HEADERS_ARGUMENTS_OF_EXCHANGE_MAX} arguments"
            )
        self._arguments += len(wanted)
        self._bindings[binding] = (str(match).startswith("all"), wanted)

    def remove(self, binding: ExchangeBinding) -> None:
        self._arguments -= len(self._bindings.pop(binding)[1])

    def match(self, key: str, headers: Mapping[str, object]) -> Iterable[ExchangeBinding]:
        found: list[ExchangeBinding] = []
        for binding, (wants_all, wanted) in self._bindings.items():
            hits = (name in headers and _same(value, headers[name]) for name, value in wanted.items())
            if all(hits) if wants_all else any(hits):
                found.append(binding)
        return found


def _same(wanted: object, value: object) -> bool:
    """Whether a header has the value of an argument; an argument without a value asks that the header is there."""
    if wanted is None:
        return True
    return isinstance(wanted, bool) is isinstance(value, bool) and wanted == value


_MATCHERS: Final[Mapping[str, type[Matcher]]] = {
    DIRECT: DirectMatcher,
    FANOUT: FanoutMatcher,
    TOPIC: TopicMatcher,
    HEADERS: HeadersMatcher,
}


@dataclass(frozen=True, slots=True)
class ExchangeConfiguration:
    """Properties of an exchange, which are fixed when it is declared."""

    name: str
    """Full name, with the prefix of its virtual host."""
    type: str
    durable: bool = False
    auto_delete: bool = False
    """Whether the exchange goes when its last binding is removed."""
    internal: bool = False
    """Whether clients may not publish to it."""
    alternate: str | None = None
    """Full name of the exchange that gets messages without a matching binding."""


class Exchange:
    """One exchange with its bindings."""

    __slots__ = (
        "bindings", "configuration", "incoming", "is_default", "matcher", "messages_in", "messages_unrouted", "name",
        "predeclared", "read_only",
    )  # fmt: skip

    def __init__(self, configuration: ExchangeConfiguration, *, predeclared: bool = False) -> None:
        """Make an exchange without bindings.

        Args:
            configuration: Name, type and other properties.
            predeclared: Whether every virtual host has it, so that it cannot be deleted.

        Raises:
            ExchangeMismatch: an unknown type.
        """
        matcher = _MATCHERS.get(configuration.type)
        if matcher is None:
            raise ExchangeMismatch(f"{configuration.type!r} is not one of the types {', '.join(_MATCHERS)}")
        self.configuration = configuration
        self.predeclared = predeclared
        self.name = configuration.name
        """Full name."""
        self.is_default = predeclared and not self.name.rpartition("/")[2]
        """Whether it is the default exchange of a virtual host, which leads to each queue by its name."""
        self.read_only = predeclared and self.name.endswith(KNOWN_HOSTS)
        """Whether no message of a client goes through it, whatever leads to it."""
        self.matcher: Matcher = matcher()
        self.bindings: dict[ExchangeBinding, None] = {}
        """Bindings of which it is the source, in the order in which they were made."""
        self.incoming: dict[ExchangeBinding, None] = {}
        """Bindings of which it is the destination."""
        self.messages_in = 0
        """Number of messages that were published to it since the activation."""
        self.messages_unrouted = 0
        """Number of those that no queue got."""

    @property
    def durable(self) -> bool:
        """Whether the exchange survives a restart."""
        return self.configuration.durable
