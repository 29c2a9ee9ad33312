package understudy.interop;

import jakarta.jms.Connection;
import jakarta.jms.Message;
import jakarta.jms.MessageConsumer;
import jakarta.jms.Session;
import jakarta.jms.Topic;
import org.apache.activemq.artemis.api.core.QueueConfiguration;
import org.apache.activemq.artemis.api.core.RoutingType;
import org.apache.activemq.artemis.api.core.client.ClientSession;
import org.apache.activemq.artemis.jms.client.ActiveMQConnectionFactory;
import org.apache.activemq.artemis.jms.client.ActiveMQSession;

/**
 * Notifications as a stock client subscribes to them: a topic with a selector. Argument: url. Prints "ok NAME" for
 * each and fails loudly.
 */
public final class Notified {
  private static final long WAIT_MS = 60_000;

  private Notified() {}

  public static void main(String[] arguments) throws Exception {
    try (ActiveMQConnectionFactory factory = new ActiveMQConnectionFactory(arguments[0]);
        Connection connection = factory.createConnection("u", "p");
        Session session = connection.createSession(false, Session.AUTO_ACKNOWLEDGE)) {
      connection.start();
      Topic topic = session.createTopic("activemq.notifications");
      MessageConsumer bindings =
          session.createConsumer(topic, "_AMQ_NotifType LIKE 'BINDING%' AND _AMQ_Address = 'interop.told'");
      MessageConsumer consumers = session.createConsumer(topic, "_AMQ_Address = 'interop.told' AND _AMQ_ConsumerCount >= 0");
      MessageConsumer sessions = session.createConsumer(topic, "_AMQ_NotifType LIKE 'SESSION%' AND _AMQ_User = 'other'");
      try (Connection other = factory.createConnection("other", "p");
          Session theirs = other.createSession(false, Session.AUTO_ACKNOWLEDGE)) {
        ClientSession core = ((ActiveMQSession) theirs).getCoreSession();
        core.createQueue(QueueConfiguration.of("interop.told").setRoutingType(RoutingType.ANYCAST));
        Message added = told(bindings, "BINDING_ADDED");
        expect("interop.told", added.getStringProperty("_AMQ_RoutingName"));
        expect(0, added.getIntProperty("_AMQ_Distance"));
        expect(true, added.getLongProperty("_AMQ_Binding_ID") > 0);
        expect(true, Math.abs(added.getLongProperty("_AMQ_NotifTimestamp") - System.currentTimeMillis()) < 60_000);
        System.out.println("ok binding added");

        core.createConsumer("interop.told").close();
        Message created = told(consumers, "CONSUMER_CREATED");
        expect(1, created.getIntProperty("_AMQ_ConsumerCount"));
        expect("other", created.getStringProperty("_AMQ_User"));
        expect(0, told(consumers, "CONSUMER_CLOSED").getIntProperty("_AMQ_ConsumerCount"));
        System.out.println("ok consumer");

        core.deleteQueue("interop.told");
        told(bindings, "BINDING_REMOVED");
        System.out.println("ok binding removed");
      }
      String alias = told(sessions, "SESSION_CREATED").getStringProperty("_AMQ_SessionName");
      Message next = sessions.receive(WAIT_MS);
      while (next != null && !next.getStringProperty("_AMQ_NotifType").equals("SESSION_CLOSED")) {
        next = sessions.receive(WAIT_MS);
      }
      expect(true, next != null);
      expect(true, alias.length() < 32);
      System.out.println("ok sessions");
    }
    System.out.println("done");
  }

  private static Message told(MessageConsumer consumer, String kind) throws Exception {
    Message message = consumer.receive(WAIT_MS);
    expect(kind, message == null ? null : message.getStringProperty("_AMQ_NotifType"));
    return message;
  }

  private static void expect(Object expected, Object actual) {
    if (expected == null ? actual != null : !expected.equals(actual)) {
      throw new AssertionError("expected " + expected + ", got " + actual);
    }
  }
}
