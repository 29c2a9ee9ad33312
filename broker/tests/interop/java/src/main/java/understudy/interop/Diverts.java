package understudy.interop;

import jakarta.jms.BytesMessage;
import jakarta.jms.Connection;
import jakarta.jms.Message;
import jakarta.jms.MessageConsumer;
import jakarta.jms.MessageProducer;
import jakarta.jms.Session;
import jakarta.jms.TextMessage;
import java.util.Arrays;
import org.apache.activemq.artemis.jms.client.ActiveMQConnectionFactory;

/**
 * Diverts of the broker's configuration as an application sees them: copies, moves, filters, several addresses,
 * transactions, large messages, duplicates. Argument: url. Prints "ok NAME" for each and fails loudly.
 */
public final class Diverts {
  private static final long WAIT_MS = 60_000;
  private static final long QUIET_MS = 300;

  private Diverts() {}

  public static void main(String[] arguments) throws Exception {
    try (ActiveMQConnectionFactory factory = new ActiveMQConnectionFactory(arguments[0]);
        Connection connection = factory.createConnection()) {
      connection.start();
      try (Session session = connection.createSession(false, Session.AUTO_ACKNOWLEDGE)) {
        copies(session);
        moves(session);
        large(session);
        duplicates(session);
      }
      transaction(connection);
      topic(connection);
    }
    System.out.println("done");
  }

  private static MessageConsumer from(Session session, String queue) throws Exception {
    return session.createConsumer(session.createQueue(queue));
  }

  private static void copies(Session session) throws Exception {
    try (MessageProducer producer = session.createProducer(session.createQueue("orders"));
        MessageConsumer orders = from(session, "orders");
        MessageConsumer audit = from(session, "audit");
        MessageConsumer archive = from(session, "archive")) {
      TextMessage sent = session.createTextMessage("one");
      sent.setIntProperty("amount", 5);
      producer.send(sent);
      Message original = orders.receive(WAIT_MS);
      expect(false, original.propertyExists("_AMQ_ORIG_ADDRESS"));
      for (MessageConsumer each : new MessageConsumer[] {audit, archive}) {
        TextMessage copy = (TextMessage) each.receive(WAIT_MS);
        expect("one", copy.getText());
        expect(5, copy.getIntProperty("amount"));
        expect("orders", copy.getStringProperty("_AMQ_ORIG_ADDRESS"));
        expect("copying", copy.getStringProperty("_AMQ_ORIG_QUEUE"));
        expect(true, copy.getLongProperty("_AMQ_ORIG_MESSAGE_ID") > 0);
        expect(original.getJMSMessageID(), copy.getJMSMessageID());
      }
    }
    System.out.println("ok copies");
  }

  private static void moves(Session session) throws Exception {
    try (MessageProducer producer = session.createProducer(session.createQueue("orders"));
        MessageConsumer orders = from(session, "orders");
        MessageConsumer europe = from(session, "europe");
        MessageConsumer audit = from(session, "audit")) {
      TextMessage sent = session.createTextMessage("eu");
      sent.setStringProperty("region", "EU");
      producer.send(sent);
      expect("eu", ((TextMessage) europe.receive(WAIT_MS)).getText());
      expect(null, orders.receive(QUIET_MS));
      expect(null, audit.receive(QUIET_MS));
    }
    System.out.println("ok moves");
  }

  private static void large(Session session) throws Exception {
    byte[] body = new byte[700_000];
    for (int i = 0; i < body.length; i++) {
      body[i] = (byte) (i * 31);
    }
    try (MessageProducer producer = session.createProducer(session.createQueue("orders"))) {
      BytesMessage sent = session.createBytesMessage();
      sent.writeBytes(body);
      producer.send(sent);
    }
    for (String name : new String[] {"orders", "audit", "archive"}) {
      try (MessageConsumer consumer = from(session, name)) {
        BytesMessage got = (BytesMessage) consumer.receive(WAIT_MS);
        byte[] found = new byte[(int) got.getBodyLength()];
        got.readBytes(found);
        expect(true, Arrays.equals(body, found));
      }
    }
    System.out.println("ok large");
  }

  private static void duplicates(Session session) throws Exception {
    try (MessageProducer producer = session.createProducer(session.createQueue("orders"));
        MessageConsumer orders = from(session, "orders");
        MessageConsumer audit = from(session, "audit");
        MessageConsumer archive = from(session, "archive")) {
      String id = "id " + System.nanoTime();
      for (int i = 0; i < 3; i++) {
        TextMessage message = session.createTextMessage("once");
        message.setStringProperty("_AMQ_DUPL_ID", id);
        producer.send(message);
      }
      for (MessageConsumer each : new MessageConsumer[] {orders, audit, archive}) {
        expect("once", ((TextMessage) each.receive(WAIT_MS)).getText());
        expect(null, each.receive(QUIET_MS));
      }
    }
    System.out.println("ok duplicates");
  }

  private static void transaction(Connection connection) throws Exception {
    try (Session session = connection.createSession(true, Session.SESSION_TRANSACTED);
        Session reading = connection.createSession(false, Session.AUTO_ACKNOWLEDGE);
        MessageProducer producer = session.createProducer(session.createQueue("orders"));
        MessageConsumer orders = from(reading, "orders");
        MessageConsumer audit = from(reading, "audit")) {
      producer.send(session.createTextMessage("rolled back"));
      session.rollback();
      producer.send(session.createTextMessage("committed"));
      expect(null, orders.receive(QUIET_MS));
      expect(null, audit.receive(QUIET_MS));
      session.commit();
      expect("committed", ((TextMessage) orders.receive(WAIT_MS)).getText());
      expect("committed", ((TextMessage) audit.receive(WAIT_MS)).getText());
      expect("committed", ((TextMessage) from(reading, "archive").receive(WAIT_MS)).getText());
    }
    System.out.println("ok transaction");
  }

  private static void topic(Connection connection) throws Exception {
    try (Session session = connection.createSession(false, Session.AUTO_ACKNOWLEDGE);
        MessageProducer producer = session.createProducer(session.createTopic("news.sport"));
        MessageConsumer subscriber = session.createConsumer(session.createTopic("news.sport"));
        MessageConsumer kept = from(session, "kept")) {
      producer.send(session.createTextMessage("goal"));
      expect("goal", ((TextMessage) subscriber.receive(WAIT_MS)).getText());
      TextMessage copy = (TextMessage) kept.receive(WAIT_MS);
      expect("goal", copy.getText());
      expect("news.sport", copy.getStringProperty("_AMQ_ORIG_ADDRESS"));
    }
    System.out.println("ok topic to queue");
  }

  private static void expect(Object wanted, Object got) {
    if (wanted == null ? got != null : !wanted.equals(got)) {
      throw new AssertionError("wanted " + wanted + ", got " + got);
    }
  }
}
