"""``understudy migrate``: every difference is found in an instance that has it, and a clean instance is converted."""

from __future__ import annotations

import json
from pathlib import Path

import click.testing
import pytest

from understudy.cli.data.migrate import migrate
from understudy.cli.node.user_files import security_of
from understudy.config.reading.reader import read_broker_xml
from understudy.migration.differences import DIFFERENCES
from understudy.migration.report import page
from understudy.security.authentication import PasswordCheck
from understudy.security.authorization import RoleSecurity

JAAS = "org.apache.activemq.artemis.spi.core.security.jaas."
BODY = """<name>n</name><journal-directory>${data.dir}/journal</journal-directory>
<acceptors><acceptor name="a">tcp://127.0.0.1:61616?protocols=CORE</acceptor></acceptors>"""


def artemis(tmp_path: Path, body: str = BODY, **files: str) -> Path:
    """An instance directory of Artemis."""
    etc = tmp_path / "artemis" / "etc"
    etc.mkdir(parents=True)
    (etc / "broker.xml").write_text(
        f'<configuration xmlns="urn:activemq">\n<core xmlns="urn:activemq:core">\n{body}\n</core></configuration>'
    )
    usual = {"artemis-users.properties": "admin = secret-of-admin\n", "artemis-roles.properties": "amq = admin\n"}
    for name, text in {**usual, **files}.items():
        (etc / name).write_text(text)
    return etc.parent


def run(*arguments: str) -> click.testing.Result:
    return click.testing.CliRunner().invoke(migrate, arguments)


CONNECTORS = """<cluster-user>u</cluster-user><cluster-password>a password of this test</cluster-password><connectors>
    <connector name="c">tcp://h:1</connector><connector name="d">tcp://h:2</connector></connectors>
    <acceptors><acceptor name="c">tcp://h:1</acceptor></acceptors>"""


def clusters(*inner: str) -> str:
    """Cluster connections with these contents."""
    each = "".join(
        f'<cluster-connection name="c{number}">{text}</cluster-connection>' for number, text in enumerate(inner)
    )
    return f"{CONNECTORS}<cluster-connections>{each}</cluster-connections>"


REF = "<connector-ref>c</connector-ref>"
STATIC = f"{REF}<static-connectors><connector-ref>c</connector-ref></static-connectors>"

#: For each difference that a file can show, a part of an instance that has it: broker.xml or another file.
SAMPLES = {
    "promote": "<ha-policy><shared-store><primary/></shared-store></ha-policy>",
    "cluster password": clusters(REF).replace("a password of this test", "short"),
    "default cluster password": """<connectors><connector name="c">tcp://h:1</connector></connectors>
        <cluster-connections><cluster-connection name="c"><connector-ref>c</connector-ref></cluster-connection>
        </cluster-connections>""",
    "overlapping addresses": clusters(f"{REF}<address>a</address>", f"{REF}<address>ab</address>"),
    "connectors to one acceptor": clusters(
        f"{REF}<address>a</address>", "<connector-ref>d</connector-ref><address>b</address>"
    ),
    "grouping handler without a cluster connection": clusters(f"{REF}<address>a</address>")
    + '<grouping-handler name="g"><type>REMOTE</type></grouping-handler>',
    "static connectors of a replica": clusters(STATIC) + "<ha-policy><replication><backup/></replication></ha-policy>",
    "static connectors of a node": clusters(STATIC) + "<ha-policy><shared-store><backup/></shared-store></ha-policy>",
    **{
        f"protocol {name}": f'<acceptors><acceptor name="x">tcp://h:1?protocols={name.upper()}</acceptor></acceptors>'
        for name in ("amqp", "stomp", "mqtt", "openwire", "hornetq")
    },
    "http": '<acceptors><acceptor name="x">tcp://h:1?httpEnabled=true</acceptor></acceptors>',
    "vm transport": '<acceptors><acceptor name="x">vm://0</acceptor></acceptors>',
    "key stores": '<acceptors><acceptor name="x">tcp://h:1?sslEnabled=true;keyStorePath=k.jks</acceptor></acceptors>',
    "database": "<store><database-store/></store>",
    "federation": '<federations><federation name="f"/></federations>',
    "plugins": '<broker-plugins><broker-plugin class-name="a.B"/></broker-plugins>',
    "own classes": """<diverts><divert name="d"><address>a</address><forwarding-address>b</forwarding-address>
        <transformer><class-name>a.B</class-name></transformer></divert></diverts>""",
    "security plugin": '<security-settings><security-setting-plugin class-name="a.B"/></security-settings>',
    "login modules": ("login.config", f"activemq {{ {JAAS}OIDCLoginModule required; }};"),
    "ldap": (
        "login.config",
        f'activemq {{ {JAAS}LDAPLoginModule required connectionURL="ldap://h" authentication=none; }};',
    ),
    "security manager": (
        "bootstrap.xml",
        '<broker xmlns="http://activemq.apache.org/schema"><security-manager class-name="a.B"/></broker>',
    ),
    "plain passwords": ("artemis-users.properties", "a = plain\n"),
    "scram": ("artemis-users.properties", "a|SCRAM-SHA-256 = 0:1:2:3\n"),
    "console": (
        "bootstrap.xml",
        '<broker xmlns="http://activemq.apache.org/schema"><web><binding uri="http://localhost:8161"/></web></broker>',
    ),
}
#: Differences of behaviour and of tools, which no file shows.
WITHOUT_PLACE = {"members of both kinds", "journal", "jvm"}


def test_each_difference_has_a_sample() -> None:
    assert {each.key for each in DIFFERENCES} == SAMPLES.keys() | WITHOUT_PLACE


@pytest.mark.parametrize("key", SAMPLES)
def test_a_difference_is_found_where_it_is(key: str, tmp_path: Path) -> None:
    sample = SAMPLES[key]
    difference = next(each for each in DIFFERENCES if each.key == key)
    if isinstance(sample, str):
        directory = artemis(tmp_path, f"<name>n</name>{sample}")
    else:
        directory = artemis(tmp_path, **{sample[0]: sample[1]})
    done = run("check", str(directory), "--json")
    found = [each for each in json.loads(done.output) if each["have"] == difference.have]
    assert found, done.output
    assert all(each["place"].startswith(str(directory / "etc")) for each in found)
    assert done.exit_code == 2 if difference.blocks else done.exit_code in (1, 2)


def test_errors_and_warnings_that_are_not_in_the_list_are_findings(tmp_path: Path) -> None:
    directory = artemis(
        tmp_path, "<nam>x</nam><journal-buffer-size>5</journal-buffer-size>\n<jmx-domain>x</jmx-domain>"
    )
    done = run("check", str(directory))
    assert done.exit_code == 2
    assert "did you mean 'name'" in done.output
    assert "etc/broker.xml:3" in done.output


def test_a_directory_without_an_instance(tmp_path: Path) -> None:
    error = run("check", str(tmp_path / "nothing")).exception
    assert "etc/broker.xml" in str(error)
    assert "artemis create" in str(error)


def test_a_converted_instance_is_usable_and_its_users_can_log_in(tmp_path: Path) -> None:
    directory = artemis(
        tmp_path,
        **{
            "artemis.profile": 'JAVA_ARGS="-Xms512M -Ddata.dir=/srv/messages -Dhawtio.role=amq"\n',
            "login.config": f"""activemq {{ {JAAS}PropertiesLoginModule required
                org.apache.activemq.jaas.properties.user="mine.properties"
                org.apache.activemq.jaas.properties.role="artemis-roles.properties"; }};""",
            "mine.properties": "# users\nadmin = secret-of-admin\n",
        },
    )
    target = tmp_path / "node"
    done = run("convert", str(directory), str(target))
    assert done.exit_code == 0, done.output
    assert f"understudy run --instance {target} --property data.dir=/srv/messages" in done.output
    etc = target / "etc"
    assert {path.name for path in etc.iterdir()} == {
        "broker.xml", "login.config", "mine.properties", "artemis-roles.properties", "management-token",
    }  # fmt: skip
    assert all(path.stat().st_mode & 0o777 == 0o600 for path in etc.iterdir())
    assert (etc / "mine.properties").read_text().startswith("# users\nadmin = ENC(scrypt:")
    loaded = read_broker_xml(
        (etc / "broker.xml").read_bytes(),
        file="b",
        base_directory=str(target),
        properties={"data.dir": "/srv/messages"},
    )
    assert loaded.configuration.journal_directory == "/srv/messages/journal"
    security = security_of(loaded.configuration, etc)
    assert isinstance(security, RoleSecurity)
    check = security.begin("admin", "secret-of-admin", None)
    assert isinstance(check, PasswordCheck)
    assert check.finish(check.run()).roles == {"amq"}
    again = run("convert", str(directory), str(target))
    assert "--force" in str(again.exception)
    assert run("convert", str(directory), str(target), "--force").exit_code == 0
    assert (target / "etc.replaced").exists()


def test_a_converted_instance_has_the_directory_of_the_data_below_its_own(tmp_path: Path) -> None:
    """Without another one in artemis.profile, so that no file is written into the instance of Artemis."""
    done = run("convert", str(artemis(tmp_path)), str(tmp_path / "node"))
    assert "data.dir" not in done.output


def test_an_instance_that_cannot_be_used_is_not_converted(tmp_path: Path) -> None:
    directory = artemis(tmp_path, "<store><database-store/></store>")
    done = run("convert", str(directory), str(tmp_path / "node"))
    assert done.exit_code == 2
    assert "Nothing was written." in done.output
    assert not (tmp_path / "node").exists()


def test_the_committed_page_is_current() -> None:
    path = Path(__file__).parents[4] / "docs" / "operate" / "from-artemis.md"
    assert path.read_text() == page(), "run: make docs"
