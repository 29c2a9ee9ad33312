"""The table of nftables that guards the ports of one broker: its text, and whether the kernel has it.

A table of its own, so that nothing else on the host is touched: for each port rules that accept its sources, and one
that drops the rest; packets to other ports pass. Without connection tracking, so a source that is removed is cut off at
once. Pure.
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence

HEAD = "# Written by understudy.broker; changes made here are lost.\n"
_PORT_RULE = re.compile(r"\s*tcp dport ([0-9]+) ")
_SET = re.compile(r"\{ ([^{}]*) \}")
_NAME = re.compile(r"[A-Za-z][A-Za-z0-9_]{0,60}", re.ASCII)


def table_name(name: str) -> str:
    """Name of the table; nftables takes letters, digits and underscores.

    Raises:
        ValueError: nothing usable is left.
    """
    found = re.sub(r"[^A-Za-z0-9_]", "_", name)
    if not _NAME.fullmatch(found):
        raise ValueError(f"{name!r} cannot be the name of a table; begin with a letter and use at most 60 characters")
    return found


def networks(sources: Iterable[str]) -> list[ipaddress.IPv4Network | ipaddress.IPv6Network]:
    """Networks in their order, without those that others contain.

    Raises:
        ValueError: a source is neither an address nor a network; the message quotes it.
    """
    found = [ipaddress.ip_network(source, strict=False) for source in sources]
    four = ipaddress.collapse_addresses(each for each in found if isinstance(each, ipaddress.IPv4Network))
    six = ipaddress.collapse_addresses(each for each in found if isinstance(each, ipaddress.IPv6Network))
    return [*four, *six]


def rules(port: int, sources: Iterable[str]) -> list[str]:
    """The rules of one port.

    Raises:
        ValueError: a source is neither an address nor a network.
    """
    found: list[str] = []
    for family, kind in (("ip", ipaddress.IPv4Network), ("ip6", ipaddress.IPv6Network)):
        chosen = [each for each in networks(sources) if isinstance(each, kind)]
        if chosen:
            texts = [str(each.network_address) if each.num_addresses == 1 else str(each) for each in chosen]
            shown = texts[0] if len(texts) == 1 else f"{{ {', '.join(texts)} }}"
            found.append(f"tcp dport {port} {family} saddr {shown} accept")
    return [*found, f"tcp dport {port} counter drop"]


def wanted_rules(ports: Mapping[int, Sequence[str]]) -> list[str]:
    """All rules, the host itself first."""
    return ['iif "lo" accept', *(rule for port in sorted(ports) for rule in rules(port, ports[port]))]


def ruleset(table: str, chain: Sequence[str]) -> str:
    """The text that replaces the table in one transaction, whether it exists or not."""
    body = "".join(f"\t\t{rule}\n" for rule in chain)
    return (
        f"{HEAD}table inet {table}\ndelete table inet {table}\ntable inet {table} {{\n\tchain input {{\n"
        f"\t\ttype filter hook input priority filter; policy accept;\n{body}\t}}\n}}\n"
    )


def listed_rules(listing: str) -> list[str]:
    """The rules of a table as ``nft --stateless list table`` prints it; sets in a fixed order."""
    return [_normal(line) for line in listing.splitlines() if _is_rule(line)]


def _is_rule(line: str) -> bool:
    text = line.strip()
    return bool(text) and not text.startswith(("#", "table ", "chain ", "type ", "}", "delete "))


def _normal(rule: str) -> str:
    def ordered(match: re.Match[str]) -> str:
        return f"{{ {', '.join(sorted(each.strip() for each in match[1].split(',')))} }}"

    # counters are part of a listing in older versions also without their values
    return _SET.sub(ordered, re.sub(r"counter packets [0-9]+ bytes [0-9]+", "counter", rule.strip()))


def same(first: Iterable[str], second: Iterable[str]) -> bool:
    """Whether two lists of rules do the same, in the same order."""
    return [_normal(rule) for rule in first] == [_normal(rule) for rule in second]


def not_admitted(listing: str, ports: Iterable[int]) -> list[int]:
    """Ports that firewalld drops, by its list of the ports of the default zone (``firewall-cmd --list-ports``).

    A port that firewalld admits by a service or by a rule of another form is not known here and is named, too.
    """
    admitted: list[range] = []
    for word in listing.split():
        numbers, _slash, protocol = word.partition("/")
        first, _dash, last = numbers.partition("-")
        if protocol == "tcp" and first.isdecimal() and (not last or last.isdecimal()):
            admitted.append(range(int(first), int(last or first) + 1))
    return [port for port in sorted(ports) if not any(port in each for each in admitted)]


def kept(present: Iterable[str], ports: Mapping[int, Sequence[str]]) -> Iterator[str]:
    """Rules of a table for ports that are not given; a broker that runs may still listen on them."""
    for rule in present:
        match = _PORT_RULE.match(rule)
        if match and int(match[1]) not in ports:
            yield rule
