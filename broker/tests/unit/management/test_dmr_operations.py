"""Operations of the management CLI on a broker.xml: reads, changes, and refused lines."""

from __future__ import annotations

from pathlib import Path

import pytest

from support.dmr import FULL_HA, SERVER, Configured
from support.document_lines import LINES
from understudy.config.edit import Set
from understudy.config.instance_files import FullHa, InstanceOptions, broker_xml
from understudy.config.model import Configuration
from understudy.errors import BrokerError, ConfigError, ManagementError
from understudy.management.dmr.batch import StepFailed
from understudy.management.dmr.grammar import Operation, parse_line
from understudy.management.dmr.operations import Facts, masked
from understudy.management.dmr.parameters import READS
from understudy.runtime.files.configuration_change import WorkingFiles

MASTER = f"{SERVER}/ha-policy=replication-master"
SLAVE = f"{SERVER}/ha-policy=shared-store-slave"
CLUSTER = f"{SERVER}/cluster-connection=my-cluster"
GROUP = f"{SERVER}/broadcast-group=bg-group1"
JOURNAL = f"{SERVER}/path=journal-directory"
#: Lines of the document that need an instance of the preset only and whose resources are served.
SERVED = {46, 50, 54, 58, 122, 128, 135, 149, 291, 294, 299, 313, 345, 349, 359, 363, 400, 404, 406, 508, 515, 517, 568}
PATHS = {434, 436, 438, 440, 452, 454, 456, 458}


@pytest.fixture
def configured(tmp_path: Path) -> Configured:
    return Configured(tmp_path)


def policy(configured: Configured) -> object:
    return configured.loaded.configuration.ha_policy


def test_the_policy_of_the_document_reads_byte_for_byte_as_printed_there(configured: Configured) -> None:
    assert configured.printed(f"{MASTER}:add") == (
        "{\n"
        '    "outcome" => "success",\n'
        '    "response-headers" => {\n'
        '        "operation-requires-reload" => true,\n'
        '        "process-state" => "reload-required"\n'
        "    }\n"
        "}"
    )
    assert configured.printed(f"{MASTER}:read-resource") == (
        "{\n"
        '    "outcome" => "success",\n'
        '    "result" => {\n'
        '        "check-for-live-server" => false,\n'
        '        "cluster-name" => undefined,\n'
        '        "group-name" => undefined,\n'
        '        "initial-replication-sync-timeout" => 30000L\n'
        "    }\n"
        "}"
    )


@pytest.mark.parametrize(
    "line",
    [each for each in LINES if each.number in SERVED | PATHS and not each.has_placeholder],
    ids=lambda each: str(each.number),
)
def test_a_line_of_the_document_runs_on_an_instance_that_it_assumes(configured: Configured, line) -> None:  # type: ignore[no-untyped-def]
    operation = line.parsed()
    kind, name = operation.address[-1]
    if kind == "ha-policy" and operation.name != "add":
        configured.carry_out(f"{SERVER}/{kind}={name}:add")
    if line.number in (508, 517):
        configured.carry_out(f'{SERVER}/remote-connector=netty:add(url="tcp://127.0.0.1:5445")')
    answer = configured.carry_out(operation)
    assert answer["outcome"] == "success"
    changes = operation.name not in ("read-resource",)
    assert ("response-headers" in answer) is changes
    assert bool(configured.overrides) or not changes


@pytest.mark.parametrize(
    "line",
    [each for each in LINES if each.number in SERVED | PATHS and not each.has_placeholder],
    ids=lambda each: str(each.number),
)
def test_a_line_of_the_document_runs_on_an_instance_of_the_preset(tmp_path: Path, line) -> None:  # type: ignore[no-untyped-def]
    options = InstanceOptions("node", full_ha=FullHa("a password of our own, long"))
    configured = Configured(tmp_path, broker_xml(options))
    operation = line.parsed()
    kind, name = operation.address[-1]
    if kind == "ha-policy" and operation.name != "add":
        configured.carry_out(f"{SERVER}/{kind}={name}:add")
    if line.number in (508, 517):
        configured.carry_out(f'{SERVER}/remote-connector=netty:add(url="tcp://127.0.0.1:5445")')
    assert configured.carry_out(operation)["outcome"] == "success"


@pytest.mark.parametrize(
    "line",
    [each for each in LINES if "server=backup/" in each.address],
    ids=lambda each: str(each.number),
)
def test_a_line_about_a_server_that_does_not_exist_is_refused(configured: Configured, line) -> None:  # type: ignore[no-untyped-def]
    with pytest.raises(StepFailed, match=r"WFLYCTL0216: .*\"backup\""):
        configured.carry_out(line.parsed())


def test_lines_change_the_configuration_that_the_broker_reads(configured: Configured) -> None:
    configured.carry_out(f"{SLAVE}:add(allow-failback=false)")
    assert str(policy(configured)).count("allow_failback=False") == 1
    configured.carry_out(f"{SLAVE}:write-attribute(name=allow-fail-back,value=true)")
    assert configured.result(f"{SLAVE}:read-attribute(name=allow-failback)") is True
    configured.carry_out(f"{JOURNAL}:write-attribute(name=path,value=/path/to/journal-A)")
    assert configured.loaded.configuration.journal_directory == "/path/to/journal-A"
    configured.carry_out(f"{JOURNAL}:undefine-attribute(name=path)")
    assert configured.loaded.configuration.journal_directory.endswith(Configuration().journal_directory)
    assert configured.source.config.read_text() == FULL_HA


def test_a_resource_is_answered_by_the_name_of_the_table_whatever_it_was_asked_by(configured: Configured) -> None:
    configured.carry_out(f"{SERVER}/ha-policy=replication-primary:add(check-for-active-server=true)")
    assert configured.result(f"{MASTER}:read-attribute(name=check-for-live-server)") is True
    assert configured.result(f"{SERVER}:read-children-names(child-type=ha-policy)") == ["replication-master"]


def test_a_list_is_cleared_added_to_and_written_as_a_whole(configured: Configured) -> None:
    configured.carry_out(f'{SERVER}/remote-connector=netty:add(url="tcp://127.0.0.1:5445")')
    configured.carry_out(f"{GROUP}:list-clear(name=connectors)")
    assert configured.result(f"{GROUP}:read-attribute(name=connectors)") is None
    configured.carry_out(f'{GROUP}:list-add(name=connectors,value="netty")')
    assert configured.result(f"{GROUP}:read-attribute(name=connectors)") == ["netty"]
    configured.carry_out(f"{GROUP}:list-add(name=connectors,value=http-connector,index=0)")
    assert configured.result(f"{GROUP}:read-attribute(name=connectors)") == ["http-connector", "netty"]
    configured.carry_out(f"{GROUP}:list-remove(name=connectors,value=http-connector)")
    configured.carry_out(f"{GROUP}:write-attribute(name=connectors,value=[http-connector])")
    assert configured.loaded.configuration.broadcast_groups[0].connectors == ("http-connector",)
    with pytest.raises(StepFailed, match="has 'http-connector' already"):
        configured.carry_out(f"{GROUP}:list-add(name=connectors,value=http-connector)")
    with pytest.raises(StepFailed, match="index '5' is no number from 0 to 0"):
        configured.carry_out(f"{GROUP}:list-remove(name=connectors,index=5)")


def test_a_policy_is_replaced_after_it_was_removed(configured: Configured) -> None:
    configured.carry_out(f"{MASTER}:add(group-name=group1)")
    with pytest.raises(StepFailed, match="WFLYCTL0212: the server has the ha-policy 'replication-master' already"):
        configured.carry_out(f"{SLAVE}:add")
    configured.carry_out(f"{MASTER}:remove", f"{SLAVE}:add")
    assert configured.result(f"{SERVER}:read-children-names(child-type=ha-policy)") == ["shared-store-slave"]
    configured.carry_out(f"{SLAVE}:remove")
    assert policy(configured) == Configuration().ha_policy


def test_a_resource_of_broker_xml_is_removed_and_added_without_its_old_values(configured: Configured) -> None:
    configured.carry_out(f"{GROUP}:remove")
    assert configured.loaded.configuration.broadcast_groups == ()
    configured.carry_out(f"{GROUP}:add(group-address=231.7.7.8,group-port=9876,connectors=[http-connector])")
    (group,) = configured.loaded.configuration.broadcast_groups
    assert configured.result(f"{GROUP}:read-attribute(name=group-address)") == "231.7.7.8"
    assert group.name == "bg-group1"


def test_a_live_change_needs_no_reload(configured: Configured) -> None:
    answer = configured.carry_out(f'{SERVER}/address-setting="#":add(max-delivery-attempts=3)')
    assert answer == {"outcome": "success"}
    (setting,) = configured.loaded.configuration.address_settings
    assert (setting.match, setting.max_delivery_attempts) == ("#", 3)


def test_several_lines_are_one_and_the_last_wrong_one_undoes_them(configured: Configured) -> None:
    with pytest.raises(StepFailed) as caught:
        configured.carry_out(f"{MASTER}:add", f"{CLUSTER}:write-attribute(name=max-hops,value=many)")
    assert caught.value.number == 2
    assert configured.overrides == ()
    answer = configured.carry_out(f"{MASTER}:add", f"{MASTER}:read-attribute(name=group-name)")
    assert answer["result"] == {
        "step-1": {"outcome": "success"},
        "step-2": {"outcome": "success", "result": None},
    }


def test_a_batch_that_names_what_does_not_exist_is_refused_as_a_whole(configured: Configured) -> None:
    with pytest.raises(ConfigError, match="'nowhere'"):
        configured.carry_out(f"{MASTER}:add", f"{CLUSTER}:write-attribute(name=connector-name,value=nowhere)")
    assert configured.overrides == ()


def test_a_line_that_names_what_does_not_exist_yet_waits_for_it(configured: Configured) -> None:
    answer = configured.carry_out(f"{CLUSTER}:write-attribute(name=connector-name,value=later)")
    headers = answer["response-headers"]
    assert isinstance(headers, dict)
    assert "there is no connector 'later'" in str(headers["warnings"])
    assert len(configured.waiting) == len(configured.overrides) == 1
    assert configured.result(f"{CLUSTER}:read-attribute(name=connector-name)") == "later"
    assert configured.loaded.configuration.cluster_connections[0].connector_ref == "http-connector"
    # another change counts meanwhile
    configured.carry_out(f"{CLUSTER}:write-attribute(name=max-hops,value=2)")
    assert configured.loaded.configuration.cluster_connections[0].max_hops == 2
    assert len(configured.waiting) == 1
    configured.carry_out(f'{SERVER}/remote-connector=later:add(url="tcp://127.0.0.1:5445")')
    assert configured.waiting == ()
    assert configured.loaded.configuration.cluster_connections[0].connector_ref == "later"


def test_a_line_that_waits_is_taken_back_by_another_one(configured: Configured) -> None:
    configured.carry_out(f"{CLUSTER}:write-attribute(name=connector-name,value=later)")
    configured.carry_out(f"{CLUSTER}:write-attribute(name=connector-name,value=http-connector)")
    assert configured.waiting == ()
    assert configured.loaded.configuration.cluster_connections[0].connector_ref == "http-connector"


def test_a_line_whose_value_the_reader_refuses_does_not_wait(configured: Configured) -> None:
    with pytest.raises(ConfigError, match="port 0"):
        configured.carry_out(f'{SERVER}/remote-connector=c:add(url="tcp://127.0.0.1:0")')
    assert configured.overrides == ()


@pytest.mark.parametrize(
    ("line", "message"),
    [
        (f"{SERVER}/ha-policy=nothing:add", "WFLYCTL0216"),
        ("/subsystem=datasources:read-resource", "WFLYCTL0216"),
        (f"{SERVER}/jms-queue=q:add(entries=[q])", "no resource jms-queue; use `understudy queue create`"),
        (f"{SERVER}/security-setting=x:add", "no resource security-setting; use security-settings of broker.xml"),
        (f"{MASTER}:read-resource", "WFLYCTL0216"),
        (f"{CLUSTER}:add(connector-name=http-connector)", "WFLYCTL0212: Duplicate resource"),
        (f"{SERVER}/cluster-connection=c:add", "WFLYCTL0155: 'connector-name' may not be null"),
        (f"{CLUSTER}:write-attribute(name=speed,value=1)", "WFLYCTL0201: Unknown attribute 'speed'"),
        (f"{CLUSTER}:write-attribute(name=max-hops,value=many)", "WFLYCTL0097: Wrong type for 'max-hops'"),
        (f"{CLUSTER}:undefine-attribute(name=connector-name)", "WFLYCTL0155"),
        (f"{CLUSTER}:fly", "WFLYCTL0031: No operation named 'fly'"),
        (f"{CLUSTER}:write-attribute(value=1)", "WFLYCTL0155: 'name' may not be null"),
        (f"{CLUSTER}:read-resource(colour=red)", "has no parameter 'colour'"),
        (f"{CLUSTER}:list-add(name=max-hops,value=1)", "is no list"),
        (f"{JOURNAL}:add", "WFLYCTL0212"),
        (f"{JOURNAL}:remove", "cannot be removed"),
        ("/path=shared:add", "WFLYCTL0155: 'path' may not be null"),
        ("/path=jboss.server.data.dir:add(path=/srv)", "is the instance directory"),
        (f"{SERVER}/remote-acceptor=x:add", "WFLYCTL0155: one of 'url and socket-binding'"),
        (f"{SERVER}/http-acceptor=artemis:add(http-listener=default)", "WFLYCTL0212: Duplicate resource"),
        (f"{SERVER}:add", "WFLYCTL0212: Duplicate resource"),
        ("/socket-binding-group=none/socket-binding=x:add(port=1)", "WFLYCTL0216"),
        (f"{SERVER}/ha-policy=replication-colocated/configuration=master:add", "WFLYCTL0216"),
        (f"{SERVER}:remove", "cannot be removed"),
    ],
)
def test_a_line_that_cannot_be_carried_out_says_why(configured: Configured, line: str, message: str) -> None:
    with pytest.raises(BrokerError, match=message):
        configured.carry_out(line)
    assert configured.overrides == ()


def test_a_runtime_attribute_is_read_and_not_written(tmp_path: Path) -> None:
    configured = Configured(tmp_path, facts=Facts("1", "/srv/node", in_sync=True))
    configured.carry_out(f"{MASTER}:add")
    found = configured.result(f"{MASTER}:read-resource(include-runtime=true)")
    assert isinstance(found, dict)
    assert found["synchronized-with-backup"] is True
    with pytest.raises(StepFailed, match="WFLYCTL0048"):
        configured.carry_out(f"{MASTER}:write-attribute(name=synchronized-with-backup,value=false)")


def test_the_directory_of_a_store_with_messages_is_kept(tmp_path: Path) -> None:
    line = f"{JOURNAL}:write-attribute(name=path,value=elsewhere)"
    configured = Configured(tmp_path, facts=Facts("1", "/srv/node", messages={"default": 3}))
    with pytest.raises(StepFailed, match="the store has 3 messages"):
        configured.carry_out(line)
    configured.facts = Facts("1", "/srv/node", messages={"default": None})
    with pytest.raises(StepFailed, match="not active"):
        configured.carry_out(line)
    configured.carry_out(line + "{allow-data-move=true}")
    assert configured.result(f"{JOURNAL}:resolve-path") == "/srv/node/elsewhere"


def test_every_operation_is_described_at_the_resources_that_have_it(configured: Configured) -> None:
    configured.carry_out("/path=shared:add(path=/mnt)")
    for address in ("", "/subsystem=messaging-activemq", SERVER, CLUSTER, JOURNAL, "/path=shared"):
        names = configured.result(f"{address}:read-operation-names")
        assert isinstance(names, list)
        assert "read-operation-description" in names
        for name in names:
            found = configured.result(f"{address}:read-operation-description(name={name})")
            assert isinstance(found, dict)
            assert found["operation-name"] == name
            assert found["description"]
    added = configured.result(f"{CLUSTER}:read-operation-description(name=add)")
    assert isinstance(added, dict)
    properties = added["request-properties"]
    assert isinstance(properties, dict)
    assert properties["connector-name"] == {"type": "STRING", "required": True}
    assert properties["max-hops"] == {"type": "INT", "required": False}


def test_a_directory_starts_at_a_named_path(configured: Configured) -> None:
    assert configured.result(f"{JOURNAL}:read-attribute(name=relative-to)") == "jboss.server.data.dir"
    configured.carry_out("/path=mount:add(path=/mnt)")
    configured.carry_out("/path=shared:add(path=pair-1,relative-to=mount)")
    configured.carry_out(f"{JOURNAL}:write-attribute(name=relative-to,value=shared)")
    assert configured.loaded.configuration.journal_directory == "/mnt/pair-1/data/journal"
    assert configured.result(f"{JOURNAL}:read-resource") == {"path": "data/journal", "relative-to": "shared"}
    configured.carry_out(f"{JOURNAL}:write-attribute(name=path,value=journal)")
    assert configured.result(f"{JOURNAL}:resolve-path") == "/mnt/pair-1/journal"
    assert configured.result("/path=shared:resolve-path") == "/mnt/pair-1"
    assert configured.result(":read-children-names(child-type=path)") == ["mount", "shared"]
    # each of the two attributes is taken back alone, in either order
    configured.carry_out(f"{JOURNAL}:undefine-attribute(name=path)")
    assert configured.loaded.configuration.journal_directory == "/mnt/pair-1/data/journal"
    configured.carry_out(f"{JOURNAL}:undefine-attribute(name=relative-to)")
    assert configured.result(f"{JOURNAL}:resolve-path") == "/srv/node/data/journal"
    configured.carry_out(f"{JOURNAL}:write-attribute(name=relative-to,value=shared)")
    configured.carry_out(f"{JOURNAL}:write-attribute(name=path,value=journal)")
    configured.carry_out(f"{JOURNAL}:undefine-attribute(name=relative-to)")
    assert configured.result(f"{JOURNAL}:resolve-path") == "/srv/node/journal"
    # an absolute path does not start anywhere
    configured.carry_out(f"{JOURNAL}:write-attribute(name=relative-to,value=shared)")
    configured.carry_out(f"{JOURNAL}:write-attribute(name=path,value=/srv/other)")
    assert configured.loaded.configuration.journal_directory == "/srv/other"


def test_a_directory_waits_for_the_path_where_it_starts(configured: Configured) -> None:
    answer = configured.carry_out(f"{JOURNAL}:write-attribute(name=relative-to,value=shared)")
    assert "there is no path 'shared'" in str(answer["response-headers"])
    assert configured.loaded.configuration.journal_directory.endswith("/data/journal")
    configured.carry_out("/path=shared:add(path=/mnt)")
    assert configured.waiting == ()
    assert configured.loaded.configuration.journal_directory == "/mnt/data/journal"


def test_the_start_of_the_directory_of_a_store_with_messages_is_kept(tmp_path: Path) -> None:
    configured = Configured(tmp_path, facts=Facts("1", "/srv/node", messages={"default": 3}))
    for line in ("write-attribute(name=relative-to,value=shared)", "undefine-attribute(name=path)"):
        with pytest.raises(StepFailed, match="the store has 3 messages"):
            configured.carry_out(f"{JOURNAL}:{line}")


def test_the_root_says_whether_a_reload_is_needed(tmp_path: Path) -> None:
    configured = Configured(tmp_path, facts=Facts("9.9", "/srv/node", reload_required=True))
    assert configured.result(":read-attribute(name=server-state)") == "reload-required"
    assert configured.result("/:read-attribute(name=release-version)") == "9.9"
    assert configured.result("/:read-children-names(child-type=subsystem)") == ["messaging-activemq"]
    names = configured.result("/:read-operation-names")
    assert isinstance(names, list)
    assert {"reload", "composite", "read-resource"} <= set(names)
    assert configured.result("/subsystem=messaging-activemq:read-children-types") == ["server"]
    acceptors = configured.result(f"{SERVER}:read-children-names(child-type=remote-acceptor)")
    assert acceptors
    assert configured.result(f"{SERVER}:read-children-names(child-type=acceptor)") == acceptors
    assert configured.result(f"{SERVER}:read-children-names(child-type=connection-factory)") == []


@pytest.mark.parametrize("operation", ["read-children-names", "read-children-resources"])
def test_children_of_a_type_that_there_is_not_are_refused(configured: Configured, operation: str) -> None:
    with pytest.raises(StepFailed, match="there are no resources of the type 'jms-queue'"):
        configured.result(f"{SERVER}:{operation}(child-type=jms-queue)")


def test_a_resource_is_read_with_its_children(configured: Configured) -> None:
    found = configured.result(f"{SERVER}:read-resource")
    assert isinstance(found, dict)
    assert found["cluster-connection"] == {"my-cluster": None}
    whole = configured.result(f"{SERVER}:read-resource(recursive=true)")
    assert isinstance(whole, dict)
    assert whole["cluster-connection"]["my-cluster"]["connector-name"] == "http-connector"
    assert list(whole) == sorted(whole)
    given = configured.result(f"{CLUSTER}:read-resource(include-defaults=false)")
    assert isinstance(given, dict)
    assert (given["cluster-connection-address"], given["max-hops"]) == ("jms", None)


def test_a_description_has_the_types_and_effects_of_the_table(configured: Configured) -> None:
    found = configured.result(f"{CLUSTER}:read-resource-description")
    assert isinstance(found, dict)
    assert found["attributes"]["max-hops"] == {
        "type": "INT",
        "required": False,
        "default": 1,
        "access-type": "read-write",
        "restart-required": "all-services",
    }
    assert found["attributes"]["connector-name"]["required"] is True


def test_secrets_are_neither_read_nor_recorded(configured: Configured) -> None:
    configured.carry_out(f"{SERVER}:write-attribute(name=cluster-password,value=another password of ours)")
    assert configured.loaded.configuration.cluster_password == "another password of ours"
    assert configured.result(f"{SERVER}:read-attribute(name=cluster-password)") == "***"
    (override,) = configured.overrides
    assert "another" not in override.line
    acceptor = configured.result(f"{SERVER}/remote-acceptor=artemis:read-attribute(name=url)")
    assert acceptor == "tcp://127.0.0.1:61616?trustStorePassword=***"
    operation = parse_line(f'{SERVER}/acceptor=b:add(url="tcp://h:1?keyStorePassword=secret")')
    assert "secret" not in str(masked(operation))  # type: ignore[arg-type]  # an operation


def test_a_further_server_of_broker_xml_is_read_and_changed_by_its_name(tmp_path: Path) -> None:
    further = '</core><server name="second"><journal-directory>other</journal-directory></server></configuration>'
    configured = Configured(tmp_path, FULL_HA.replace("</core></configuration>", further))
    # the file alone is not usable, because the servers share directories: the tree does not mind
    operations = WorkingFiles(configured.source, configured.facts).reach(())
    address = (("subsystem", "messaging-activemq"), ("server", "second"))
    journal = (*address, ("path", "journal-directory"))
    assert operations.carry_out(Operation(journal, "read-attribute", {"name": "path"})).result == "other"
    written = operations.carry_out(Operation(journal, "write-attribute", {"name": "path", "value": "another"}))
    assert written.targets == (Set("server[@name='second']/journal-directory", "another"),)
    with pytest.raises(ManagementError, match="WFLYCTL0216"):
        operations.carry_out(Operation((address[0], ("server", "third")), "read-resource"))


def test_every_operation_is_a_read_or_makes_states(configured: Configured) -> None:
    names = configured.result(f"{GROUP}:read-operation-names")
    assert isinstance(names, list)
    changes = {"add", "remove", "write-attribute", "undefine-attribute", "list-add", "list-remove", "list-clear"}
    # those of one type of resource are named there
    of_types = {"resolve-path", "client-url", "jndi-properties"}
    assert set(names) - changes == READS - of_types


def test_an_operation_that_is_not_needed_changes_nothing(configured: Configured) -> None:
    needed = "{if-needed=true}"
    policy = f"{SERVER}/ha-policy=shared-store-slave"
    configured.carry_out(f"{policy}:add(allow-failback=false){needed}")
    made = configured.overrides
    for line in (
        f"{policy}:add(allow-failback=false){needed}",
        f"{policy}:add{needed}",
        f"{policy}:add(restart-backup=true){needed}",
        f"{SERVER}/cluster-connection=none:remove{needed}",
        f"{SERVER}/broadcast-group=bg-group1:list-add(name=connectors,value=http-connector){needed}",
        f"{SERVER}/broadcast-group=bg-group1:list-remove(name=connectors,value=none){needed}",
    ):
        assert configured.carry_out(line) == {"outcome": "success", "result": None}, line
    assert configured.overrides == made
    with pytest.raises(StepFailed, match="WFLYCTL0212"):
        configured.carry_out(f"{policy}:add(allow-failback=true){needed}")
    with pytest.raises(StepFailed, match="WFLYCTL0201"):
        configured.carry_out(f"{policy}:add(nothing=true){needed}")
    configured.carry_out(f"{policy}:remove{needed}", f"{policy}:remove{needed}")
    assert not configured.loaded.configuration.ha_policy.is_backup
