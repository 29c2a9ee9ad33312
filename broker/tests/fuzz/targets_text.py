"""Parsers of texts: selectors, the configuration, users and roles, client URLs, ledger rows, requests."""

from __future__ import annotations

import json
from collections.abc import Sequence

from fuzz.target import Target
from fuzz.targets_wire import sample_message
from support.certificates import make
from support.config import core
from understudy.cli.console.session import Answer, Failed, Session
from understudy.client.core.url.parsing import parse_url
from understudy.client.core.url.profiles import named_url
from understudy.cluster.discovery.carriers import MemberList
from understudy.cluster.discovery.jgroups import read_stack
from understudy.cluster.discovery.sockets import member_places
from understudy.config.edit.overlay import format_overlay, parse_overlay
from understudy.config.password_codec import PasswordCodec
from understudy.config.reading.reader import read_broker_xml
from understudy.errors import BrokerError, ConfigError, InvalidSelector, LedgerDamaged
from understudy.ledger.rows import parse
from understudy.limits import DISCOVERY_HOSTS_MAX
from understudy.management.dmr.grammar import Operation, parse_line
from understudy.management.dmr.requests import parse_request
from understudy.management.dmr.text import format_value, parse_value
from understudy.management.doors.http import parse_stop
from understudy.message import Message
from understudy.security.authentication import parse_certificate_users, parse_roles, parse_users
from understudy.security.password_hashes import PasswordHash
from understudy.selector import parse_selector
from understudy.selector.like import LikePattern
from understudy.tls.certificates import DistinguishedName, facts_of

MESSAGES = (
    sample_message(),
    Message(b"", properties={"a": 1, "b": "x" * 50, "long": 2**62, "text": "1e300", "double": 1e300, "yes": False}),
    Message(b"", address=None, properties={"a": float("nan"), "long": float("inf"), "text": "5", "b": "%_"}),
)


def _selector(data: bytes) -> None:
    parse_selector.cache_clear()
    selector = parse_selector(data.decode("utf-8", "replace"))
    for message in MESSAGES:
        selector.matches(message)


def _like(data: bytes) -> None:
    """The first byte divides the rest into a pattern and a text."""
    if not data:
        return
    text = data[1:].decode("latin-1")
    at = data[0] * len(text) // 255
    pattern = LikePattern(text[:at], "\\" if data[0] & 1 else "")
    pattern.matches(text[at:])


SELECTORS = [
    b"a = 1 AND (b LIKE 'x%_y' ESCAPE '\\' OR long NOT IN ('a', 'b')) AND NOT text IS NULL",
    b"long BETWEEN -1 AND 0x7F OR double * 2e3 / (a - 1) % 3 >= 1.5 AND yes <> TRUE",
    b"hyphenated_props:a-b = 'it''s' OR convert_string_expressions:text + 1 > 2",
    b"JMSPriority > 4 OR AMQDurable = 'DURABLE' OR JMSMessageID LIKE 'ID:%'",
]


class _Entropy:
    def token(self, length_bytes: int) -> bytes:
        return bytes(length_bytes)


def _users(data: bytes) -> None:
    text = data.decode("utf-8", "replace")
    for reading in (
        lambda: parse_users(text, file="users", entropy=_Entropy()),
        lambda: parse_roles(text, file="roles"),
    ):
        try:
            reading()
        except ConfigError:
            pass


def _password(data: bytes) -> None:
    PasswordHash.parse(data.decode("utf-8", "replace"))


def _masked(data: bytes) -> None:
    MASKED_CODEC.unmask(data.decode("utf-8", "replace"))


def _xml(data: bytes) -> None:
    read_broker_xml(data, file="broker.xml", base_directory="/srv/node", properties={"data.dir": "data"})


def _xml_seeds() -> list[bytes]:
    body = """
      <name>n</name><security-enabled>false</security-enabled><journal-directory>${data.dir:x}</journal-directory>
      <connectors><connector name="a">tcp://h:1?x=1</connector></connectors>
      <acceptors><acceptor name="c">tcp://0.0.0.0:61616?protocols=CORE;connectionsAllowed=5</acceptor></acceptors>
      <address-settings><address-setting match="#"><max-size-bytes>10Mb</max-size-bytes>
      <dead-letter-address>DLA</dead-letter-address><address-full-policy>PAGE</address-full-policy></address-setting>
      </address-settings><addresses><address name="a"><anycast><queue name="q"><filter string="a = 1"/></queue>
      </anycast></address></addresses><ha-policy><primary-only/></ha-policy>
      <security-settings><security-setting match="a.*"><permission type="send" roles="x,y"/></security-setting>
      </security-settings>"""
    entity = b'<!DOCTYPE x [<!ENTITY e "eeeeeeeeee"><!ENTITY f "&e;&e;&e;">]><configuration>&f;</configuration>'
    return [core(body), core("<name>n</name>"), entity]


def _url(data: bytes) -> None:
    parse_url(data.decode("utf-8", "replace"))


def _certificate() -> bytes:
    return make("CN=alice,OU=clients,O=Example").der


def _certificate_users(data: bytes) -> None:
    text = data.decode("utf-8", "replace").replace("/", "")  # an expression of an administrator may take its time
    users = parse_certificate_users(text, users_file="u", roles=text, roles_file="r")
    users.user_of(DistinguishedName("CN=alice, OU=clients", "CN=alice,OU=clients"))


def _stack(data: bytes) -> None:
    carrier = read_stack(data, "channel", file="stack.xml")
    if isinstance(carrier, MemberList):
        assert 0 < len(carrier.hosts) <= DISCOVERY_HOSTS_MAX
        assert all(0 < port < 65_536 for _, port in member_places(carrier))
    str(carrier)


def _ledger(data: bytes) -> None:
    parse(data.decode("utf-8", "replace"))


def _stop(data: bytes) -> None:
    try:
        parse_stop(json.loads(data))
    except RecursionError:
        pass


MASKED_CODEC = PasswordCodec()
ROW = b'{"kind":"DELIVERED","producer":"p","number":3,"address":"a","at_ms":5,"queue":"q","message_id":7}'
USERS = b"bob = ENC(scrypt:16384:8:1:00112233445566778899aabbccddeeff:" + b"00" * 32 + b")\nroles = bob,eve\n# c\n"
HASH = b"ENC(scrypt:16384:8:1:00112233445566778899aabbccddeeff:" + b"00" * 32 + b")"
CERTIFICATE_USERS = b'alice = CN=alice, OU="a, b", O=Ex\\,ample\nbob = cn=bob,1.2.3=#0c0176\n'
URLS = [
    b"(tcp://a:61616,tcp://b:61617?x=1)?ha=true&reconnectAttempts=-1&retryInterval=100&retryIntervalMultiplier=1.5",
    b"tcp://[::1]:61616?user=u&password=p#frag",
    b"udp://231.7.7.7:9876?refreshTimeout=100",
]

STACKS = [
    b'<config><UDP mcast_addr="231.7.7.7" mcast_port="${p:5}" ip_ttl="1"/><PING/><pbcast.GMS/></config>',
    b'<config xmlns="u"><TCP bind_addr="::1"/><TCPPING initial_hosts="a[1],[::1][2]"/></config>',
    b'<config><TCP/><FILE_PING location="/shared"/><FD/></config>',
    b'<config><TCP/><MPING mcast_port="7"/><SYM_ENCRYPT/></config>',
]

LINES = [
    b'/subsystem=messaging-activemq/server=default/x="a/b":add(a=[b,"c"],d={e=f,g=>${h:i}},j,!k){l=m;n}',
    b"if (outcome != success) of ../a=b:read-resource",
    b'/a=b:c(d=[("e" => "f")])',
]


def _line(data: bytes) -> None:
    found = parse_line(data.decode("utf-8", "replace"), (("a", "b"),))
    if isinstance(found, Operation):
        assert parse_line(str(found)) == found


VALUES = [b'{"a" => [1,30000L,undefined,true,big decimal 1.5],"b" => bytes { 0x01, 0xff },"c" => ("d" => "e\\"")}']


def _value(data: bytes) -> None:
    value = parse_value(data.decode("utf-8", "replace"))
    assert format_value(parse_value(format_value(value))) == format_value(value)


REQUESTS = [
    b'{"operation": "add", "address": [{"a": "b"}], "c": {"BYTES_VALUE": "AQ=="}, "operation-headers": {"d": true}}',
    b'{"operation": "composite", "address": [], "steps": [{"operation": "x", "address": ["a", "b"]}]}',
]


def _request(data: bytes) -> None:
    try:
        value = json.loads(data)
    except (ValueError, RecursionError):
        return
    parse_request(value)


SCRIPTS = [
    b"batch\n/a=b:add(c=d)\nmove-batch-line 1 1\nholdback-batch x\nbatch x\nedit-batch-line 1 /a=b:remove\nrun-batch\n",
    b"if (outcome != success && result.x >= 2) of /a=b:read-resource\necho $x\nelse\n/a=b:add\nend-if\nhistory\n",
    b"try\n/a=b:add\n:remove\ncatch\n:c\nfinally\n:d\nend-try\nfor x in :list\nset y=$x\nread-operation ${y}\ndone\n",
]


def _script(data: bytes) -> None:
    """Lines of a script, whose node answers with a list or, to several operations, with a failure."""

    def send(operations: Sequence[Operation], composite: bool) -> Answer:
        if len(operations) > 1:
            return {"outcome": "failed", "failure-description": "refused"}
        return {"outcome": "success", "result": ["one"]}

    # files of this machine are no input
    text = data.decode("utf-8", "replace").replace("--file", "")
    Session(send, lambda operation: send([operation], False), lambda answer: None, lambda line: None).run(
        text.splitlines()
    )


PROPERTIES = [
    b"# made\nconnectionFactory.a\\:b : (tcp://h:1,\\\n  tcp://h:2)?ha=true\nconnectionFactory.c=tcp\\u003a//h\n"
]


def _properties(data: bytes) -> None:
    named_url(data.decode("utf-8", "replace"), "a:b", "jndi.properties")


OVERLAY = (
    b'{"format": 1, "overrides": [{"path": "core/a[@b=\'c\']", "state": "set", "value": "d", "time": "", "user": "",'
    b' "line": ""}]}'
)


WAITING_OVERLAY = OVERLAY.replace(b'"line": ""', b'"line": "", "waits": true')


def _overlay(data: bytes) -> None:
    overrides = parse_overlay(data, "overlay")
    assert parse_overlay(format_overlay(overrides), "overlay") == overrides


TEXT = (
    Target("selector", _selector, (InvalidSelector,), lambda: SELECTORS, memory_per_byte=4096),
    Target("like", _like, (), lambda: [b"\x80a%b_%c" + b"aaabbbccc" * 5, b"\x40%_a%"], memory_per_byte=2048),
    Target("broker-xml", _xml, (ConfigError,), _xml_seeds, memory_per_byte=1024, memory_floor_bytes=4 << 20),
    Target("users-and-roles", _users, (), lambda: [USERS]),
    Target("password-hash", _password, (ValueError,), lambda: [HASH]),
    Target("masked-password", _masked, (ValueError,), lambda: [MASKED_CODEC.mask("secret").encode()]),
    Target("client-url", _url, (BrokerError,), lambda: URLS, memory_per_byte=512),
    Target("jgroups-stack", _stack, (ConfigError,), lambda: STACKS, memory_per_byte=1024, memory_floor_bytes=2 << 20),
    Target("certificate", facts_of, (ValueError,), lambda: [_certificate()]),
    Target("certificate-users", _certificate_users, (ConfigError,), lambda: [CERTIFICATE_USERS], memory_per_byte=1024),
    Target("ledger-row", _ledger, (LedgerDamaged,), lambda: [ROW], memory_per_byte=512),
    Target("management-line", _line, (ConfigError,), lambda: LINES, memory_per_byte=1024),
    Target("management-value", _value, (ConfigError,), lambda: VALUES, memory_per_byte=1024),
    Target("management-cli-request", _request, (ConfigError,), lambda: REQUESTS, memory_per_byte=2048),
    Target("overlay", _overlay, (ConfigError,), lambda: [OVERLAY, WAITING_OVERLAY], memory_per_byte=1024),
    Target(
        "management-script", _script, (ConfigError, Failed), lambda: SCRIPTS, memory_per_byte=2048, steps_per_byte=2000
    ),
    Target("jndi-properties", _properties, (ConfigError,), lambda: PROPERTIES, memory_per_byte=1024),
    Target("stop-request", _stop, (ValueError,), lambda: [b'{"failover": true}', b"[" * 500], memory_per_byte=1024),
)
