package understudy.interop;

import static understudy.interop.Checks.expect;
import static understudy.interop.Checks.expectThrows;
import static understudy.interop.Checks.ok;

import jakarta.jms.Connection;
import jakarta.jms.Destination;
import jakarta.jms.InvalidDestinationException;
import jakarta.jms.JMSException;
import jakarta.jms.Message;
import jakarta.jms.MessageConsumer;
import jakarta.jms.MessageProducer;
import jakarta.jms.Session;
import org.apache.activemq.artemis.jms.client.ActiveMQConnectionFactory;

/**
 * Names with the prefixes of an acceptor: queue/ for anycast, topic/ for multicast. Argument: its url. Prints "ok NAME"
 * for each part and fails loudly.
 */
public final class Prefixes {
  private static final long WAIT_MS = 60_000;
  private static final long QUIET_MS = 300;

  private Prefixes() {}

  public static void main(String[] arguments) throws Exception {
    try (ActiveMQConnectionFactory factory = new ActiveMQConnectionFactory(arguments[0]);
        Connection connection = factory.createConnection()) {
      connection.start();
      try (Session session = connection.createSession(Session.AUTO_ACKNOWLEDGE)) {
        queues(session);
        topics(session);
        againstTheType(session);
        bothWays(session);
      }
    }
    System.out.println("done");
  }

  private static void send(Session session, Destination destination, String text) throws JMSException {
    try (MessageProducer producer = session.createProducer(destination)) {
      producer.send(session.createTextMessage(text));
    }
  }

  private static void next(MessageConsumer consumer, String text) throws JMSException {
    Message message = consumer.receive(text == null ? QUIET_MS : WAIT_MS);
    expect(text, message == null ? null : message.getBody(String.class));
  }

  private static void queues(Session session) throws JMSException {
    send(session, session.createQueue("queue/orders"), "one");
    send(session, session.createQueue("orders"), "two");
    send(session, session.createQueue("queue/orders::orders"), "three");
    try (MessageConsumer consumer = session.createConsumer(session.createQueue("queue/orders"))) {
      next(consumer, "one");
      next(consumer, "two");
    }
    try (MessageConsumer consumer = session.createConsumer(session.createQueue("queue/orders::orders"))) {
      next(consumer, "three");
      next(consumer, null);
    }
    ok("queues");
  }

  private static void topics(Session session) throws JMSException {
    try (MessageConsumer prefixed = session.createConsumer(session.createTopic("topic/news"));
        MessageConsumer plain = session.createConsumer(session.createTopic("news"))) {
      send(session, session.createTopic("news"), "one");
      send(session, session.createTopic("topic/news"), "two");
      for (MessageConsumer consumer : new MessageConsumer[] {prefixed, plain}) {
        next(consumer, "one");
        next(consumer, "two");
      }
    }
    ok("topics");
  }

  /** The prefix outvotes the kind of destination that the client takes: it makes an anycast address. */
  private static void againstTheType(Session session) throws JMSException {
    send(session, session.createTopic("queue/jobs"), "once");
    expectThrows(InvalidDestinationException.class, () -> send(session, session.createTopic("queue/jobs"), "never"));
    try (MessageConsumer consumer = session.createConsumer(session.createQueue("jobs"))) {
      next(consumer, "once");
      next(consumer, null);
    }
    ok("against the type");
  }

  /** An address with queues of both types: each gets what was sent its way. */
  private static void bothWays(Session session) throws JMSException {
    try (MessageConsumer queue = session.createConsumer(session.createQueue("mixed"));
        MessageConsumer topic = session.createConsumer(session.createTopic("mixed"))) {
      send(session, session.createTopic("queue/mixed"), "to the queue");
      send(session, session.createQueue("topic/mixed"), "to the topic");
      next(queue, "to the queue");
      next(topic, "to the topic");
      next(queue, null);
      next(topic, null);
    }
    ok("both ways");
  }
}
