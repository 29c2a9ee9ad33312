"""Arguments with which the artemis command line of the distribution is run, against a real Artemis and this broker.

One command per line, as a shell takes it (a backslash continues one), in this order. ``~`` stands for the end
of every name, ``URL`` for the broker and ``FILE`` for a file of its own; ``--url`` is added where no ``URL`` is.
Exit codes and output must be the same but for what ``said`` takes out: names and times of a run, and the words
after an AMQ number.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from typing import Final

SUFFIX: Final = ".side"

#: Addresses, queues, checks.
MANAGING: Final = r"""
address create --name a~ --anycast --no-multicast
address create --name a~ --anycast --no-multicast
address create --name b~ --anycast --multicast
address create --name c~ --no-anycast --no-multicast
address create --name d~
address show --name a~
address show --name nope~
address show --name a~ --bindings
address update --name a~ --anycast --multicast
address update --name a~ --no-anycast
address update --name nope~ --anycast
address update --name a~ --no-anycast --multicast
queue create --name q~ --address q~ --anycast --durable --preserve-on-no-consumers --auto-create-address
queue create --name q~ --address q~ --anycast --durable --preserve-on-no-consumers --auto-create-address
queue create --name m~ --address q~ --multicast --durable --preserve-on-no-consumers
queue create --name n~ --address n~ --multicast --no-durable --purge-on-no-consumers --auto-create-address \
    --max-consumers 3 --filter "a = 1" --verbose
queue create --name o~ --address o~ --anycast --durable --preserve-on-no-consumers
queue create --name s~ --silent
queue create --name t~ --anycast --multicast --silent
queue create --name f~ --address f~ --anycast --auto-create-address --filter "a =" --silent
queue update --name q~ --max-consumers 3 --anycast
queue update --name q~ --purge-on-no-consumers --anycast
queue update --name q~ --preserve-on-no-consumers
queue update --name q~ --filter "a = 1"
queue update --name nope~ --max-consumers 3
queue update --name q~ --multicast
queue create --name p~ --address p~ --anycast --durable --preserve-on-no-consumers --auto-create-address
address show --name p~ --bindings
producer --destination queue://p~ --message-count 7
queue stat --queueName p~
queue stat --queueName p~ --json
queue stat --queueName p~ --maxRows 1 --maxColumnSize 5
queue stat --queueName p~ --single-line-header
queue stat --queueName p~ --clustered
queue stat --queueName p~ --include-management
queue stat --queueName p~ --maxColumnSize -1
queue stat --queueName p~ --verbose
queue purge --name p~
queue purge --name nope~
queue purge --name p~ --verbose
queue delete --name p~ --autoDeleteAddress
queue delete --name p~
address show --name p~
queue delete --name nope~ --removeConsumers
address delete --name q~
queue delete --name q~
queue delete --name m~
address delete --name q~
address delete --name q~
check node
check node --up --verbose
check node --diskUsage 1
check node --memoryUsage 90
check node --memoryUsage 0
check node --peers 1
check node --peers 0
check node --primary
check node --live
check node --backup
check node --name foo
check node --backup --primary --peers 3 --fail-at-end
check queue --name s~
check queue --name s~ --up --browse 0
check queue --name s~ --produce 3 --browse 3 --consume 3
check queue --name s~ --produce 3 --browse -1 --consume -1
check queue --name s~ --consume 3 --timeout 6000
check queue --name nope~
check queue --name nope~ --produce 1
check cluster
check cluster --verbose
check cluster --variance 1
"""

#: Producers, browsers, consumers, transfers, and what queues say of them.
MESSAGES: Final = r"""
producer --destination queue://p~ --message-count 5
producer --destination queue://p~ --message-count 5 --protocol core --verbose
producer --destination p~ --message-count 3 --message hello
producer --destination queue://p~ --message-count 3 --message-size 100
producer --destination queue://p~ --message-count 3 --text-size 100
producer --destination queue://p~ --message-count 2 --object-size 100
producer --destination queue://p~ --message-count 3 --group g1
producer --destination queue://p~ --message-count 3 --msgttl 100000
producer --destination queue://p~ --message-count 4 --commit-interval 2
producer --destination queue://p~ --message-count 3 --non-persistent
producer --destination queue://p~ --message-count 3 --sleep 20
producer --destination queue://p~ --message-count 3 --threads 2
producer --destination queue://p~ --message-count 1 \
    --properties '[{"type":"string","key":"k","value":"v"},{"type":"int","key":"i","value":"5"},\
{"type":"double","key":"d","value":"1.5"},{"type":"boolean","key":"b","value":"true"}]'
producer --destination queue://p~ --message-count 1 --text-size 300000
producer --destination queue://p~ --message-count 1 --properties nojson
producer --destination queue://p~ --message-count 1 --clientID cid
producer --destination p~::p~ --message-count 2
producer --destination fqqn://p~::p~ --message-count 2
producer --destination queue://p~::p~ --message-count 2
producer --destination topic://t~ --message-count 2
producer --destination x~::y~ --message-count 2
producer --destination queue://p~ --message-count 1 --user unknown --password x
browser --destination queue://p~
browser --destination queue://p~ --message-count 3 --verbose
browser --destination queue://p~ --filter "k = 'v'" --verbose
browser --destination queue://p~ --filter "i = 5"
browser --destination queue://p~ --filter "i ="
browser --destination p~::p~ --message-count 2
browser --destination queue://none~
browser --destination topic://t~
browser --destination queue://p~ --protocol core --clientID cid --threads 1 --sleep 1 --message-count 3
queue stat --queueName p~ --json
queue stat --field MESSAGE_COUNT --operation GREATER_THAN --value 6
queue stat --field MESSAGE_COUNT --operation EQUALS --value 42
queue stat --field MESSAGES_ADDED --operation GREATER_THAN --value 41
queue stat --field DELIVERING_COUNT --operation GREATER_THAN --value 0
queue stat --field MESSAGES_ACKED --operation GREATER_THAN --value 1000
queue stat --field SCHEDULED_COUNT --operation GREATER_THAN --value 0
queue stat --field ADDRESS --operation CONTAINS --value p~
queue stat --field ROUTING_TYPE --operation CONTAINS --value MULTI --queueName a
queue stat --field MESSAGE_COUNT --operation CONTAINS --value e
queue stat --field MESSAGE_COUNT --operation GREATER_THAN --value e
consumer --destination queue://p~ --message-count 5 --receive-timeout 3000
consumer --destination queue://p~ --message-count 3 --verbose --receive-timeout 3000
consumer --destination queue://p~ --message-count 2 --filter "k = 'v'" --break-on-null --receive-timeout 300
consumer --destination queue://p~ --message-count 2 --filter "k =" --break-on-null --receive-timeout 300
consumer --destination queue://p~ --message-count 4 --commit-interval 2 --receive-timeout 3000
consumer --destination queue://p~ --message-count 3 --sleep 10 --clientID c1 --receive-timeout 3000
consumer --destination queue://p~ --message-count 3 --threads 2 --receive-timeout 3000
consumer --destination queue://p~ --message-count 2 --data FILE.xml --receive-timeout 3000
producer --destination queue://p2~ --data FILE.xml
consumer --destination queue://p2~ --message-count 2 --receive-timeout 3000
consumer --destination queue://p2~ --message-count 2 --break-on-null --receive-timeout 200
consumer --destination topic://t~ --durable --clientID dur --message-count 1 --break-on-null --receive-timeout 200
producer --destination topic://t~ --message-count 2
consumer --destination topic://t~ --durable --clientID dur --message-count 2 --break-on-null --receive-timeout 2000
consumer --destination topic://t~ --durable --message-count 2 --break-on-null --receive-timeout 200
consumer --destination p~::p~ --message-count 1 --receive-timeout 3000
consumer --destination fqqn://p~::p~ --message-count 1 --receive-timeout 3000
consumer --destination none~::other~ --message-count 1 --break-on-null --receive-timeout 300
queue stat --queueName t~ --json
queue delete --name p~
queue purge --name p~
queue stat --queueName p~ --json
producer --destination queue://tr~ --message-count 10
transfer --copy --source-queue tr~ --target-queue tc~ --message-count 3 --source-url URL --target-url URL \
    --receive-timeout 2000
transfer --source-queue tr~ --target-queue tm~ --message-count 3 --source-url URL --target-url URL \
    --receive-timeout 2000
transfer --source-queue tr~ --target-topic tt~ --message-count 2 --source-url URL --target-url URL \
    --receive-timeout 2000
transfer --source-queue tr~ --target-queue tm~ --source-filter "a = 1" --source-url URL --target-url URL \
    --receive-timeout 300
transfer --source-queue tr~ --target-queue tm~ --commit-interval 1 --source-url URL --target-url URL \
    --receive-timeout 2000
transfer --source-topic tt~ --durable-consumer sub --source-client-id tcl --target-queue tm~ --source-url URL \
    --target-url URL --receive-timeout 300
transfer --source-topic tt~ --shared-durable-subscription shd --target-queue tm~ --source-url URL \
    --target-url URL --receive-timeout 300
transfer --source-topic tt~ --shared-subscription shs --target-queue tm~ --source-url URL --target-url URL \
    --receive-timeout 300
transfer --source-topic tt~ --no-Local --target-queue tm~ --source-url URL --target-url URL --receive-timeout 300
transfer --source-queue tr~ --source-url URL --target-url URL --receive-timeout 300
transfer --source-queue tr~ --source-topic x --target-queue tm~ --source-url URL --target-url URL \
    --receive-timeout 300
queue stat --queueName tm~
queue stat --queueName shd --json
queue stat --queueName sub --json
queue stat --queueName tc~
"""

#: Each runs for seconds; of its report the words count.
PERFORMANCE: Final = r"""
perf client --duration 2 --max-pending 20 queue://pc~
perf client --duration 2 --message-count 0 --tx --commit-interval 10 --persistent queue://pd~
perf client --duration 2 --num-destinations 2 --producers 2 --consumers 2 --threads 2 --shared-connections queue://pe~
perf client --duration 2 --warmup 1 --rate 200 --show-latency queue://pf~
perf client --duration 2 --durable --clientID pdur topic://pg~
perf client --duration 2 --shared 2 topic://ph~
perf client --duration 2 --shared 2 --durable topic://pi~
perf client --duration 2 --enable-msg-id --enable-timestamp --group g --ttl 100000 --message-size 2000 queue://pj~
perf producer --message-count 300 --tx-size 50 --persistent queue://pp~
perf producer --message-count 300 --commit-interval 50 --persistent queue://pp~
perf producer --message-count 300 --max-pending 10 queue://pp~
perf consumer --duration 2 queue://pp~
perf consumer --duration 1 --durable --clientID pcd topic://pq~
perf consumer --duration 1 --shared 2 topic://pq~
perf consumer --duration 1 --tx queue://pp~
perf consumer --duration 1 --enable-xxx queue://pp~
"""


def arguments_of(text: str, url: str, file: str) -> Iterator[list[str]]:
    """The arguments of each command."""
    for line in filter(None, text.replace("\\\n", "").splitlines()):
        arguments = shlex.split(line.replace("URL", url).replace("FILE", file).replace("~", SUFFIX))
        yield arguments if "URL" in line else [*arguments, "--url", url]


_TAKEN_OUT: Final = (
    (re.compile(r"\[WARN .*|.*\[main\] WARN .*"), ""),
    (re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}"), "<uuid>"),
    (re.compile(r"ID:\d+\b"), "ID"),
    (re.compile(r"messageID=\d+"), "messageID"),
    # the words of a refusal on the wire have no numbers here
    (re.compile(r"(InvalidSelectorException: |errorType=\w+ message=).*"), r"\1"),
    # one number for both here (docs/use/management-over-messages.md)
    (re.compile(r"AMQ229211"), "AMQ229207"),
    (re.compile(r'"id":"\d+"'), '"id"'),
    (re.compile(r"\d+ milli ?seconds|\d+ seconds|Time elapsed: [0-9.]+"), "<time>"),
    (re.compile(r"[Tt]hread[ =-]\d+"), "thread"),
    (re.compile(r"@[0-9a-f]{5,8}"), ""),
    (re.compile(r"(AMQ\d+): .*"), r"\1"),
    (re.compile(r"(Failed to get [\w.]+) Reason: .*"), r"\1"),
    (re.compile(r"queue=Queue(Impl)?\s?\[.*"), "queue"),
    (re.compile(r"127\.0\.0\.1:\d+"), "<address>"),
    # which of two threads comes first, and its activity when the time was over
    (re.compile(r".*(java.lang.InterruptedException|Checks run: 1, Failures: 0, Errors: 1).*"), ""),
)
_NUMBER: Final = re.compile(r"-?[0-9.]+(E[0-9-]+)?")


def said(printed: str, *, numbers: bool = True) -> list[str]:
    """The lines that must be the same, in no order; ``numbers``: with the numbers in them."""
    for pattern, instead in _TAKEN_OUT:
        printed = pattern.sub(instead, printed)
    if not numbers:
        printed = _NUMBER.sub("#", printed)
    lines = sorted(line.strip() for line in printed.splitlines() if line.strip())
    return lines if numbers else sorted(set(lines))
