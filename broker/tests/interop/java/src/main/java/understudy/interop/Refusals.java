package understudy.interop;

import static understudy.interop.Checks.WAIT_MS;
import static understudy.interop.Checks.check;
import static understudy.interop.Checks.expect;
import static understudy.interop.Checks.ok;

import java.util.concurrent.atomic.AtomicInteger;
import org.apache.activemq.artemis.api.core.ActiveMQException;
import org.apache.activemq.artemis.api.core.ActiveMQExceptionType;
import org.apache.activemq.artemis.api.core.QueueConfiguration;
import org.apache.activemq.artemis.api.core.RoutingType;
import org.apache.activemq.artemis.api.core.client.ActiveMQClient;
import org.apache.activemq.artemis.api.core.client.ClientConsumer;
import org.apache.activemq.artemis.api.core.client.ClientMessage;
import org.apache.activemq.artemis.api.core.client.ClientProducer;
import org.apache.activemq.artemis.api.core.client.ClientSession;
import org.apache.activemq.artemis.api.core.client.ClientSessionFactory;
import org.apache.activemq.artemis.api.core.client.ServerLocator;

/**
 * Requests beyond the limits of the broker from a client that reconnects without end: each fails alone. Arguments: url.
 */
public final class Refusals {
  private static final String LONG = "x".repeat(1024 * 1024 + 1);
  private static final String LONG_NAME = "a".repeat(5000);

  private Refusals() {}

  private interface Call {
    void run() throws Exception;
  }

  public static void main(String[] arguments) throws Exception {
    AtomicInteger failures = new AtomicInteger();
    try (ServerLocator locator = ActiveMQClient.createServerLocator(arguments[0])) {
      locator.setReconnectAttempts(-1);
      locator.setBlockOnNonDurableSend(true);
      locator.setMinLargeMessageSize(200 * 1024 * 1024);
      try (ClientSessionFactory sessions = locator.createSessionFactory();
          ClientSession session = sessions.createSession(true, true);
          ClientSession other = sessions.createSession(true, true)) {
        sessions.addFailoverListener(event -> failures.incrementAndGet());
        session.createQueue(QueueConfiguration.of("refusals").setRoutingType(RoutingType.ANYCAST));
        session.start();
        ClientProducer producer = session.createProducer("refusals");
        refused("a text of a property", () -> producer.send(message(session).putStringProperty("p", LONG)));
        refused("a name of a property", () -> producer.send(message(session).putIntProperty(LONG, 1)));
        refused("a name of a group", () -> producer.send(message(session).setGroupID(LONG)));
        refused("a number of properties", () -> producer.send(many(session)));
        refused("a packet", () -> producer.send(big(session)));
        refused("an address", () -> session.addressQuery(
            org.apache.activemq.artemis.api.core.SimpleString.of(LONG_NAME)));
        refused("a selector", () -> session.createConsumer("refusals", "p = '" + LONG + "'"));
        ClientProducer anonymous = session.createProducer();
        refused("an address of a message", () -> anonymous.send(LONG_NAME, message(session)));
        transaction(sessions);
        ClientProducer elsewhere = other.createProducer("refusals");
        elsewhere.send(message(other));
        producer.send(message(session));
        ClientConsumer consumer = session.createConsumer("refusals");
        for (int number = 0; number < 3; number++) {
          ClientMessage received = consumer.receive(WAIT_MS);
          check(received != null, "message " + number);
          received.acknowledge();
        }
        check(consumer.receiveImmediate() == null, "a refused message was taken");
        expect(0, failures.get());
        ok("others");
      }
    }
    System.out.println("done");
  }

  private static ClientMessage message(ClientSession session) {
    return session.createMessage(true);
  }

  private static ClientMessage many(ClientSession session) {
    ClientMessage message = message(session);
    for (int number = 0; number < 20_000; number++) {
      message.putIntProperty("p" + number, number);
    }
    return message;
  }

  private static ClientMessage big(ClientSession session) {
    ClientMessage message = message(session);
    message.getBodyBuffer().writeBytes(new byte[101 * 1024 * 1024]);
    return message;
  }

  private static void refused(String name, Call call) throws Exception {
    try {
      call.run();
    } catch (ActiveMQException error) {
      expect(ActiveMQExceptionType.ILLEGAL_STATE, error.getType());
      check(error.getMessage().contains("limit"), error.getMessage());
      ok(name);
      return;
    }
    throw new AssertionError(name + " was not refused");
  }

  private static void transaction(ClientSessionFactory sessions) throws Exception {
    try (ClientSession session = sessions.createSession(false, false)) {
      ClientProducer producer = session.createProducer("refusals");
      producer.send(message(session));
      producer.send(many(session));
      refused("a transaction", session::commit);
      session.rollback();
      producer.send(message(session));
      session.commit();
    }
  }
}
