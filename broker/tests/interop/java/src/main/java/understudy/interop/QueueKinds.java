package understudy.interop;

import jakarta.jms.Connection;
import jakarta.jms.JMSException;
import jakarta.jms.MessageConsumer;
import jakarta.jms.MessageProducer;
import jakarta.jms.Queue;
import jakarta.jms.Session;
import jakarta.jms.TextMessage;
import java.util.ArrayList;
import java.util.List;
import org.apache.activemq.artemis.api.core.QueueConfiguration;
import org.apache.activemq.artemis.api.core.RoutingType;
import org.apache.activemq.artemis.api.core.SimpleString;
import org.apache.activemq.artemis.api.core.client.ActiveMQClient;
import org.apache.activemq.artemis.api.core.client.ClientSession;
import org.apache.activemq.artemis.api.core.client.ClientSessionFactory;
import org.apache.activemq.artemis.api.core.client.ServerLocator;
import org.apache.activemq.artemis.jms.client.ActiveMQConnectionFactory;

/**
 * Queues of special kinds, asked for by address parameters (JMS) and by queue configurations (core API): last-value,
 * ring, non-destructive, gates, groups, disabled. Arguments: url, and "failover" to stop for a line on standard input
 * before the last part. Prints "ok NAME" for each and fails loudly.
 */
public final class QueueKinds {
  private static final long WAIT_MS = 60_000;
  private static final long QUIET_MS = 300;

  private QueueKinds() {}

  public static void main(String[] arguments) throws Exception {
    try (ActiveMQConnectionFactory factory = new ActiveMQConnectionFactory(arguments[0]);
        Connection connection = factory.createConnection()) {
      connection.start();
      if (arguments.length > 1) {
        failover(connection, arguments[0]);
        System.out.println("done");
        return;
      }
      lastValue(connection, "kinds.lvq?last-value=true", "_AMQ_LVQ_NAME");
      lastValue(connection, "kinds.keyed?last-value-key=code", "code");
      lastValueRollback(connection);
      nonDestructive(connection);
      ring(connection, arguments[0]);
      gate(connection);
      groupFirst(connection);
      noGroups(connection);
      exclusive(connection);
      disabled(connection, arguments[0]);
      queries(arguments[0]);
    }
    System.out.println("done");
  }

  /** Producers, other than consumers of queues, make a queue with what the parameters of its name ask for. */
  private static Queue made(Session session, String name) throws JMSException {
    Queue queue = session.createQueue(name);
    session.createProducer(queue).close();
    return queue;
  }

  private static void send(Session session, Queue queue, String key, String... values) throws JMSException {
    try (MessageProducer producer = session.createProducer(queue)) {
      for (String value : values) {
        TextMessage message = session.createTextMessage(value);
        if (key != null) {
          message.setStringProperty(key, value.substring(0, 1));
        }
        producer.send(message);
      }
    }
  }

  private static String next(MessageConsumer consumer) throws JMSException {
    TextMessage message = (TextMessage) consumer.receive(WAIT_MS);
    return message == null ? null : message.getText();
  }

  private static void expectAll(MessageConsumer consumer, String... wanted) throws JMSException {
    for (String each : wanted) {
      expect(each, next(consumer));
    }
    expect(null, consumer.receive(QUIET_MS));
  }

  private static void lastValue(Connection connection, String name, String key) throws Exception {
    try (Session session = connection.createSession(false, Session.AUTO_ACKNOWLEDGE)) {
      Queue queue = made(session, name);
      send(session, queue, key, "a1", "b1", "a2", "c1", "b2", "a3");
      send(session, queue, null, "without a key");
      expectAll(session.createConsumer(queue), "c1", "b2", "a3", "without a key");
    }
    System.out.println("ok last value by " + key);
  }

  private static void lastValueRollback(Connection connection) throws Exception {
    try (Session session = connection.createSession(false, Session.AUTO_ACKNOWLEDGE);
        Session transacted = connection.createSession(true, Session.SESSION_TRANSACTED)) {
      Queue queue = made(session, "kinds.back?last-value=true");
      send(session, queue, "_AMQ_LVQ_NAME", "a1");
      MessageConsumer consumer = transacted.createConsumer(queue);
      expect("a1", next(consumer));
      consumer.close();
      send(session, queue, "_AMQ_LVQ_NAME", "a2");
      transacted.rollback();
      consumer = transacted.createConsumer(queue);
      expectAll(consumer, "a2");
      transacted.rollback();
      expectAll(consumer, "a2");
      transacted.commit();
      expect(null, consumer.receive(QUIET_MS));
    }
    System.out.println("ok a newer value while the old is in delivery");
  }

  private static void nonDestructive(Connection connection) throws Exception {
    try (Session session = connection.createSession(false, Session.AUTO_ACKNOWLEDGE);
        Session other = connection.createSession(false, Session.CLIENT_ACKNOWLEDGE)) {
      Queue queue = made(session, "kinds.all?last-value-key=code&non-destructive=true");
      send(session, queue, "code", "a1", "b1", "a2");
      MessageConsumer first = session.createConsumer(queue);
      expectAll(first, "b1", "a2");
      MessageConsumer second = other.createConsumer(queue);
      expectAll(second, "b1", "a2");
      send(session, queue, "code", "b2");
      expectAll(first, "b2");
      expectAll(second, "b2");
      first.close();
      expectAll(session.createConsumer(queue), "a2", "b2");
      other.recover();
      expectAll(second, "a2", "b2");
    }
    System.out.println("ok non-destructive");
  }

  private static void ring(Connection connection, String url) throws Exception {
    create(url, QueueConfiguration.of("kinds.ring").setRoutingType(RoutingType.ANYCAST).setRingSize(3L));
    try (Session session = connection.createSession(true, Session.SESSION_TRANSACTED)) {
      Queue queue = session.createQueue("kinds.ring");
      send(session, queue, null, "1", "2", "3", "4", "5");
      session.commit();
      MessageConsumer consumer = session.createConsumer(queue);
      expect("3", next(consumer));
      expect("4", next(consumer));
      expect("5", next(consumer));
      consumer.close();
      send(session, queue, null, "6");
      session.rollback();
      expectAll(session.createConsumer(queue), "3", "4", "5");
      session.rollback();
      send(session, queue, null, "7");
      session.commit();
    }
    try (Session session = connection.createSession(false, Session.AUTO_ACKNOWLEDGE)) {
      expectAll(session.createConsumer(session.createQueue("kinds.ring")), "4", "5", "7");
    }
    System.out.println("ok ring");
  }

  private static void gate(Connection connection) throws Exception {
    try (Session session = connection.createSession(false, Session.AUTO_ACKNOWLEDGE);
        Session other = connection.createSession(false, Session.AUTO_ACKNOWLEDGE)) {
      Queue queue = made(session, "kinds.gate?consumers-before-dispatch=2");
      MessageConsumer first = session.createConsumer(queue);
      send(session, queue, null, "1", "2");
      expect(null, first.receive(QUIET_MS));
      MessageConsumer second = other.createConsumer(queue);
      List<String> got = new ArrayList<>();
      long end = System.currentTimeMillis() + WAIT_MS;
      while (got.size() < 2 && System.currentTimeMillis() < end) {
        for (MessageConsumer each : List.of(first, second)) {
          TextMessage message = (TextMessage) each.receive(QUIET_MS);
          if (message != null) {
            got.add(message.getText());
          }
        }
      }
      got.sort(null);
      expect(List.of("1", "2"), got);
      Queue waiting = made(session, "kinds.delay?consumers-before-dispatch=5&delay-before-dispatch=3000");
      MessageConsumer alone = session.createConsumer(waiting);
      send(session, waiting, null, "late");
      expect(null, alone.receive(100));
      expect("late", next(alone));
    }
    System.out.println("ok consumers before dispatch");
  }

  private static void groupFirst(Connection connection) throws Exception {
    try (Session session = connection.createSession(false, Session.AUTO_ACKNOWLEDGE)) {
      Queue queue = made(session, "kinds.first?group-first-key=JMSXGroupFirstForConsumer");
      MessageConsumer consumer = session.createConsumer(queue);
      send(session, queue, "JMSXGroupID", "a1", "a2", "b1", "a3", "b2");
      StringBuilder seen = new StringBuilder();
      for (int i = 0; i < 5; i++) {
        TextMessage message = (TextMessage) consumer.receive(WAIT_MS);
        boolean first = message.propertyExists("JMSXGroupFirstForConsumer");
        seen.append(message.getText()).append(first ? "! " : " ");
        if (first) {
          expect(true, message.getBooleanProperty("JMSXGroupFirstForConsumer"));
        }
      }
      expect("a1! a2 b1! a3 b2 ", seen.toString());
    }
    System.out.println("ok first of a group");
  }

  private static void noGroups(Connection connection) throws Exception {
    try (Session session = connection.createSession(false, Session.AUTO_ACKNOWLEDGE);
        Session other = connection.createSession(false, Session.AUTO_ACKNOWLEDGE)) {
      Queue queue = made(session, "kinds.ungrouped?group-buckets=0");
      MessageConsumer first = session.createConsumer(queue);
      MessageConsumer second = other.createConsumer(queue);
      send(session, queue, "JMSXGroupID", "a1", "a2", "a3", "a4");
      for (int i = 0; i < 2; i++) {
        expect(true, next(first) != null && next(second) != null);
      }
    }
    System.out.println("ok no buckets, no groups");
  }

  private static void exclusive(Connection connection) throws Exception {
    try (Session session = connection.createSession(false, Session.AUTO_ACKNOWLEDGE);
        Session other = connection.createSession(false, Session.AUTO_ACKNOWLEDGE)) {
      Queue queue = made(session, "kinds.exclusive?exclusive=true");
      MessageConsumer first = session.createConsumer(queue);
      MessageConsumer second = other.createConsumer(queue);
      send(session, queue, null, "1", "2", "3");
      expectAll(first, "1", "2", "3");
      first.close();
      send(session, queue, null, "4");
      expectAll(second, "4");
    }
    System.out.println("ok exclusive");
  }

  private static void disabled(Connection connection, String url) throws Exception {
    create(url, QueueConfiguration.of("kinds.off").setRoutingType(RoutingType.ANYCAST).setEnabled(false));
    try (Session session = connection.createSession(false, Session.AUTO_ACKNOWLEDGE)) {
      Queue queue = session.createQueue("kinds.off");
      send(session, queue, null, "1");
      expectAll(session.createConsumer(queue));
    }
    System.out.println("ok disabled");
  }

  private static QueueConfiguration everything(String name) {
    return QueueConfiguration.of(name)
        .setRoutingType(RoutingType.ANYCAST)
        .setLastValueKey("code")
        .setNonDestructive(true)
        .setRingSize(7L)
        .setConsumersBeforeDispatch(2)
        .setDelayBeforeDispatch(300L)
        .setGroupRebalance(true)
        .setGroupRebalancePauseDispatch(true)
        .setGroupBuckets(16)
        .setGroupFirstKey("first")
        .setExclusive(true)
        .setPurgeOnNoConsumers(false)
        .setMaxConsumers(4)
        .setEnabled(false)
        .setAutoDelete(false)
        .setAutoDeleteDelay(70L)
        .setAutoDeleteMessageCount(5L);
  }

  private static void queries(String url) throws Exception {
    create(url, everything("kinds.everything"));
    checkQuery(url, "kinds.everything");
    System.out.println("ok queries");
  }

  private static void checkQuery(String url, String name) throws Exception {
    try (ServerLocator locator = ActiveMQClient.createServerLocator(url);
        ClientSessionFactory factory = locator.createSessionFactory();
        ClientSession session = factory.createSession()) {
      ClientSession.QueueQuery query = session.queueQuery(SimpleString.of(name));
      expect(true, query.isExists());
      expect(true, query.isLastValue());
      expect("code", query.getLastValueKey().toString());
      expect(true, query.isNonDestructive());
      expect(7L, query.getRingSize());
      expect(2, query.getConsumersBeforeDispatch());
      expect(300L, query.getDelayBeforeDispatch());
      expect(true, query.isGroupRebalance());
      expect(true, query.isGroupRebalancePauseDispatch());
      expect(16, query.getGroupBuckets());
      expect("first", query.getGroupFirstKey().toString());
      expect(true, query.isExclusive());
      expect(false, query.isPurgeOnNoConsumers());
      expect(4, query.getMaxConsumers());
      expect(false, query.isEnabled());
      expect(false, query.isAutoDelete());
      expect(70L, query.getAutoDeleteDelay());
      expect(5L, query.getAutoDeleteMessageCount());
    }
  }

  private static void failover(Connection connection, String url) throws Exception {
    create(url, everything("kinds.everything"));
    create(url, QueueConfiguration.of("kinds.ring").setRoutingType(RoutingType.ANYCAST).setRingSize(2L));
    try (Session session = connection.createSession(false, Session.AUTO_ACKNOWLEDGE);
        Session reader = connection.createSession(false, Session.AUTO_ACKNOWLEDGE)) {
      Queue queue = made(session, "kinds.prices?last-value-key=code&non-destructive=true");
      Queue ring = session.createQueue("kinds.ring");
      send(session, queue, "code", "a1", "b1", "a2");
      send(session, ring, null, "1", "2", "3");
      MessageConsumer consumer = reader.createConsumer(queue);
      expectAll(consumer, "b1", "a2");
      Checks.failOver(connection);
      checkQuery(url, "kinds.everything");
      // The consumer was made again at the other node, so it reads again from the start.
      send(session, queue, "code", "b2");
      List<String> seen = new ArrayList<>();
      for (String text = next(consumer); !"b2".equals(text); text = next(consumer)) {
        seen.add(text);
      }
      expect(true, List.of("b1", "a2").containsAll(seen));
      expect(null, consumer.receive(QUIET_MS));
      expectAll(session.createConsumer(queue), "a2", "b2");
      send(session, ring, null, "4");
      expectAll(session.createConsumer(ring), "3", "4");
    }
    System.out.println("ok failover");
  }

  private static void create(String url, QueueConfiguration configuration) throws Exception {
    try (ServerLocator locator = ActiveMQClient.createServerLocator(url);
        ClientSessionFactory factory = locator.createSessionFactory();
        ClientSession session = factory.createSession()) {
      session.createQueue(configuration);
    }
  }

  private static void expect(Object wanted, Object got) {
    if (wanted == null ? got != null : !wanted.equals(got)) {
      throw new AssertionError("wanted " + wanted + ", got " + got);
    }
  }
}
