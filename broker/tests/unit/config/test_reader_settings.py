"""Address settings, security settings, wildcards and journal elements that the reader reads, and refused values."""

from __future__ import annotations

from pathlib import Path

import pytest

from support.config import FILE, core, fails, read
from understudy.config.high_availability import NetworkCheckConfiguration
from understudy.config.model import AddressSettingsConfiguration, Configuration
from understudy.config.reading.reader import read_broker_xml
from understudy.config.schema.schema import Defaults
from understudy.errors import ConfigError
from understudy.terms import AddressFullPolicy, Permission, RoutingType
from understudy.wildcards import Wildcards

# --- settings --------------------------------------------------------------------------------


def test_absent_address_settings_are_none() -> None:
    body = """<address-settings><address-setting match="orders.#">
      <dead-letter-address>DLQ</dead-letter-address><expiry-address/><max-delivery-attempts>-1</max-delivery-attempts>
      <redelivery-delay>5s</redelivery-delay><max-size-bytes>10M</max-size-bytes>
      <redelivery-delay-multiplier>1.5</redelivery-delay-multiplier><dead-letter-queue-suffix></dead-letter-queue-suffix>
      <address-full-policy>BLOCK</address-full-policy><default-queue-routing-type>ANYCAST</default-queue-routing-type>
    </address-setting></address-settings>"""
    assert read(body).configuration.address_settings == (
        AddressSettingsConfiguration(
            "orders.#",
            dead_letter_address="DLQ",
            max_delivery_attempts=-1,
            redelivery_delay=5000,
            max_size_bytes=10 * 1024 * 1024,
            redelivery_delay_multiplier=1.5,
            dead_letter_queue_suffix="",
            address_full_policy=AddressFullPolicy.BLOCK,
            default_queue_routing_type=RoutingType.ANYCAST,
        ),
    )


@pytest.mark.parametrize(
    ("container", "entry"), [("address-settings", "address-setting"), ("security-settings", "security-setting")]
)
@pytest.mark.parametrize("match", ["a.#.b", "a#b", "#a"])
def test_a_match_that_cannot_be_meant_is_refused(container: str, entry: str, match: str) -> None:
    error = fails(f'<{container}><{entry} match="{match}"/></{container}>')
    assert error.path == f"core/{container}/{entry}[@match='{match}']"


def test_security_settings() -> None:
    body = """<security-settings>
      <security-setting match="a.#">
        <permission type="send" roles="one, two ,"/><permission type="send" roles="three"/>
        <permission type="createTempQueue" roles="one"/><permission type="view" roles="one"/>
      </security-setting>
      <security-setting match="a::q"/>
    </security-settings>"""
    first, second = read(body).configuration.security_settings
    assert first.permissions == {
        Permission.SEND: frozenset({"one", "two", "three"}),
        Permission.CREATE_NON_DURABLE_QUEUE: frozenset({"one"}),
        Permission.VIEW: frozenset({"one"}),
    }
    assert (second.match, second.permissions) == ("a::q", {})


@pytest.mark.parametrize(
    "inside",
    [
        '<security-setting match="a.#::q"/>',
        '<security-setting match="::q"/>',
        '<security-setting match="a::"/>',
        '<security-setting match="a"><permission type="sent" roles="x"/></security-setting>',
        '<security-setting match="a"><permission roles="x"/></security-setting>',
        "<security-setting/>",
    ],
)
def test_wrong_security_settings(inside: str) -> None:
    fails(f"<security-settings>{inside}</security-settings>")


def test_wildcards() -> None:
    off = "<wildcard-addresses><routing-enabled>false</routing-enabled></wildcard-addresses>"
    assert read(off).configuration.wildcards == Wildcards(routing_enabled=False)
    assert not read(
        "<wild-card-routing-enabled>false</wild-card-routing-enabled>"
    ).configuration.wildcards.routing_enabled
    assert (
        read("<wildcard-addresses><delimiter>.</delimiter></wildcard-addresses>").configuration
        == read("").configuration
    )


def test_other_wildcards() -> None:
    body = """<wildcard-addresses><delimiter>/</delimiter><any-words>></any-words><single-word>+</single-word>
      </wildcard-addresses><address-settings><address-setting match="a/+/>"/></address-settings>"""
    found = read(body).configuration
    assert found.wildcards == Wildcards(delimiter="/", any_words=">", single_word="+")
    assert found.address_settings[0].match == "a/+/>"


@pytest.mark.parametrize("inside", ["<delimiter>..</delimiter>", "<any-words>*</any-words>", "<single-word/>"])
def test_wildcards_are_three_different_characters(inside: str) -> None:
    assert "three different single characters" in str(fails(f"<wildcard-addresses>{inside}</wildcard-addresses>"))


def test_a_database_store_is_refused() -> None:
    assert "instead of the database" in str(fails("<store><database-store/></store>"))
    assert read("<store><file-store/></store>").configuration == read("").configuration


def test_the_example_in_the_module_text_is_true() -> None:
    loaded = read_broker_xml(core("<name>${who:me}</name>"), file=FILE, properties={"who": "you"})
    assert loaded.configuration.name == "you"


def test_journal_elements_are_read() -> None:
    found = read(
        """
        <journal-min-files>4</journal-min-files>
        <journal-datasync>false</journal-datasync>
        <journal-sync-transactional>false</journal-sync-transactional>
        <journal-retention-directory unit="HOURS" period="3" storage-limit="10M">kept</journal-retention-directory>
        """,
        base_directory="/srv/node",
    )
    configuration = found.configuration
    assert not found.warnings
    assert configuration.journal_min_files == 4
    assert (configuration.journal_datasync, configuration.journal_sync_transactional) == (False, False)
    assert configuration.journal_sync_non_transactional
    assert configuration.journal_retention_directory == "/srv/node/kept"
    assert configuration.journal_retention_period_ms == 3 * 3_600_000
    assert configuration.journal_retention_storage_limit_bytes == 10 * 1024**2
    kept = "<journal-retention-directory>/kept</journal-retention-directory>"
    for text, period_ms in ((kept, 0), (kept.replace(">", ' period="2">', 1), 2 * 86_400_000)):
        configuration = read(text).configuration
        assert configuration.journal_retention_directory == "/kept"
        assert configuration.journal_retention_period_ms == period_ms
        assert configuration.journal_retention_storage_limit_bytes == -1


@pytest.mark.parametrize(
    ("elements", "taken"),
    [
        ("<journal-retention-directory>data/journal</journal-retention-directory>", "journal-directory"),
        ("<journal-retention-directory>data/x/../journal/</journal-retention-directory>", "journal-directory"),
        (
            "<large-messages-directory>/srv/node/x</large-messages-directory>\
            <journal-retention-directory>x</journal-retention-directory>",
            "large-messages-directory",
        ),
    ],
)
def test_retention_in_a_directory_of_the_store_is_refused(elements: str, taken: str) -> None:
    with pytest.raises(ConfigError, match=f"core/journal-retention-directory: is the {taken}"):
        read(elements, base_directory="/srv/node")


def test_retention_in_a_link_to_a_directory_of_the_store_is_refused(tmp_path: Path) -> None:
    (tmp_path / "kept").symlink_to("data/journal")
    with pytest.raises(ConfigError, match="core/journal-retention-directory: is the journal-directory"):
        read("<journal-retention-directory>kept</journal-retention-directory>", base_directory=str(tmp_path))


@pytest.mark.parametrize(
    ("element", "value", "why"),
    [
        ("journal-type", "NIO", "no special library"),
        ("journal-buffer-size", "1M", "8 MiB"),
        ("journal-buffer-timeout", "3333333", "never waits on purpose"),
        ("journal-max-io", "500", "one batch"),
        ("journal-file-open-timeout", "9", "ready before it is needed"),
    ],
)
def test_journal_elements_without_effect_give_a_warning_with_the_reason(element: str, value: str, why: str) -> None:
    (warning,) = read(f"<{element}>{value}</{element}>").warnings
    assert why in warning.message


def test_an_outside_role_may_what_the_role_here_may() -> None:
    body = """<security-settings>
      <role-mapping from="cn=ops,dc=x" to="admin, viewer"/>
      <role-mapping from="cn=all" to="viewer"/>
      <security-setting match="#">
        <permission type="send" roles="admin"/>
        <permission type="browse" roles="viewer, other"/>
        <permission type="consume" roles="other"/>
      </security-setting>
    </security-settings>"""
    (setting,) = read(body).configuration.security_settings
    assert setting.permissions == {
        Permission.SEND: {"admin", "cn=ops,dc=x"},
        Permission.BROWSE: {"viewer", "other", "cn=ops,dc=x", "cn=all"},
        Permission.CONSUME: {"other"},
    }


def test_a_security_plugin_is_refused_by_its_class() -> None:
    error = fails('<security-settings><security-setting-plugin class-name="com.example.Plugin"/></security-settings>')
    assert "com.example.Plugin" in str(error)
    assert error.hint is not None
    assert "LegacyLDAPSecuritySettingPlugin" in error.hint


def test_a_pattern_of_views_must_be_one() -> None:
    body = "<view-permission-method-match-pattern>(</view-permission-method-match-pattern>"
    assert "no regular expression" in str(fails(body))


def test_directories_that_are_not_to_be_made() -> None:
    body = "<create-journal-dir>false</create-journal-dir><journal-directory>j</journal-directory>"
    assert read(body).configuration.directories_not_made() == (("create-journal-dir", "/srv/node/j"),)
    assert Configuration().directories_not_made() == ()


def test_a_store_that_is_not_kept_cannot_be_shared() -> None:
    pair = "<ha-policy><shared-store><primary/></shared-store></ha-policy>"
    with pytest.raises(ConfigError, match=r"persistence-enabled.*a pair needs a store that is kept"):
        read(f"<persistence-enabled>false</persistence-enabled>{pair}")
    assert not read("<persistence-enabled>false</persistence-enabled>").configuration.persistence_enabled


def test_the_network_check_is_read_under_any_policy() -> None:
    body = (
        "<network-check-list>a</network-check-list><network-check-URL-list>http://u</network-check-URL-list>"
        "<network-check-period>3</network-check-period><network-check-timeout>4</network-check-timeout>"
        "<network-check-NIC>eth1</network-check-NIC><network-check-ping-command>p</network-check-ping-command>"
        "<network-check-ping6-command>p6</network-check-ping6-command>"
    )
    expected = NetworkCheckConfiguration("a", "http://u", 3, 4, "eth1", "p", "p6")
    assert read(body).configuration.ha_policy.network_check == expected
    assert read("").configuration.ha_policy.network_check == NetworkCheckConfiguration("", "", 5_000, 1_000, "")


def test_the_wildcards_of_a_file_without_the_element_are_the_defaults_of_the_schema() -> None:
    texts, core_texts = Defaults("core/wildcard-addresses"), Defaults("core")
    assert Wildcards() == Wildcards(
        routing_enabled=texts.boolean("routing-enabled"),
        delimiter=texts.text("delimiter"),
        any_words=texts.text("any-words"),
        single_word=texts.text("single-word"),
        literal_markers=core_texts.text("literal-match-markers"),
        uuid_namespace=core_texts.text("uuid-namespace"),
    )
