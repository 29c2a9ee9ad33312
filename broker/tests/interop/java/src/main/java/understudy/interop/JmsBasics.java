package understudy.interop;

import jakarta.jms.BytesMessage;
import jakarta.jms.Connection;
import jakarta.jms.DeliveryMode;
import jakarta.jms.MapMessage;
import jakarta.jms.Message;
import jakarta.jms.MessageConsumer;
import jakarta.jms.MessageProducer;
import jakarta.jms.ObjectMessage;
import jakarta.jms.Queue;
import jakarta.jms.QueueBrowser;
import jakarta.jms.Session;
import jakarta.jms.StreamMessage;
import jakarta.jms.TemporaryQueue;
import jakarta.jms.TextMessage;
import jakarta.jms.Topic;
import java.util.Collections;
import org.apache.activemq.artemis.jms.client.ActiveMQConnectionFactory;

/**
 * What every JMS application uses: the body types, acknowledgement modes, transactions with redelivery, topics,
 * browsing, request and reply over a temporary queue. Argument: url. Prints "ok NAME" for each and fails loudly.
 */
public final class JmsBasics {
  private static final long WAIT_MS = 60_000;

  private JmsBasics() {}

  public static void main(String[] arguments) throws Exception {
    try (ActiveMQConnectionFactory factory = new ActiveMQConnectionFactory(arguments[0]);
        Connection connection = factory.createConnection()) {
      connection.start();
      bodies(connection);
      properties(connection);
      clientAcknowledge(connection);
      rollback(connection);
      topic(connection);
      browse(connection);
      requestReply(connection);
      emptyQueue(connection);
      priorities(connection);
      expiry(connection);
    }
  }

  private static void bodies(Connection connection) throws Exception {
    try (Session session = connection.createSession(false, Session.AUTO_ACKNOWLEDGE)) {
      Queue queue = session.createQueue("interop.bodies");
      MessageProducer producer = session.createProducer(queue);
      MessageConsumer consumer = session.createConsumer(queue);
      producer.send(session.createTextMessage("Grüße, 世界 \uD83D\uDE00"));
      expect("Grüße, 世界 \uD83D\uDE00", ((TextMessage) consumer.receive(WAIT_MS)).getText());
      producer.send(session.createTextMessage(null));
      expect(null, ((TextMessage) consumer.receive(WAIT_MS)).getText());
      BytesMessage bytes = session.createBytesMessage();
      bytes.writeUTF("utf");
      bytes.writeDouble(2.5);
      producer.send(bytes);
      BytesMessage gotBytes = (BytesMessage) consumer.receive(WAIT_MS);
      expect("utf", gotBytes.readUTF());
      expect(2.5, gotBytes.readDouble());
      MapMessage map = session.createMapMessage();
      map.setLong("l", 1L << 40);
      map.setString("s", "x");
      producer.send(map);
      MapMessage gotMap = (MapMessage) consumer.receive(WAIT_MS);
      expect(1L << 40, gotMap.getLong("l"));
      expect("x", gotMap.getString("s"));
      StreamMessage stream = session.createStreamMessage();
      stream.writeInt(7);
      stream.writeString("seven");
      producer.send(stream);
      StreamMessage gotStream = (StreamMessage) consumer.receive(WAIT_MS);
      expect(7, gotStream.readInt());
      expect("seven", gotStream.readString());
      ObjectMessage object = session.createObjectMessage("serialised");
      producer.send(object);
      if (consumer.receive(WAIT_MS) == null) {
        throw new AssertionError("no object message");
      }
      producer.send(session.createMessage());
      if (consumer.receive(WAIT_MS) == null) {
        throw new AssertionError("no empty message");
      }
    }
    System.out.println("ok bodies");
  }

  private static void properties(Connection connection) throws Exception {
    try (Session session = connection.createSession(false, Session.AUTO_ACKNOWLEDGE)) {
      Queue queue = session.createQueue("interop.properties");
      Message message = session.createTextMessage("p");
      message.setStringProperty("colour", "red");
      message.setIntProperty("size", 5);
      message.setJMSCorrelationID("c-1");
      message.setJMSType("t");
      session.createProducer(queue).send(message, DeliveryMode.NON_PERSISTENT, 7, 0);
      Message got = session.createConsumer(queue).receive(WAIT_MS);
      expect("red", got.getStringProperty("colour"));
      expect(5, got.getIntProperty("size"));
      expect("c-1", got.getJMSCorrelationID());
      expect("t", got.getJMSType());
      expect(7, got.getJMSPriority());
      expect(message.getJMSMessageID(), got.getJMSMessageID());
    }
    System.out.println("ok properties");
  }

  private static void clientAcknowledge(Connection connection) throws Exception {
    Session session = connection.createSession(false, Session.CLIENT_ACKNOWLEDGE);
    Queue queue = session.createQueue("interop.client");
    MessageProducer producer = session.createProducer(queue);
    for (int i = 0; i < 5; i++) {
      producer.send(session.createTextMessage("m" + i));
    }
    MessageConsumer consumer = session.createConsumer(queue);
    consumer.receive(WAIT_MS);
    consumer.receive(WAIT_MS).acknowledge();
    session.close();
    try (Session second = connection.createSession(false, Session.AUTO_ACKNOWLEDGE)) {
      MessageConsumer rest = second.createConsumer(second.createQueue("interop.client"));
      for (int i = 2; i < 5; i++) {
        expect("m" + i, ((TextMessage) rest.receive(WAIT_MS)).getText());
      }
      expect(null, rest.receiveNoWait());
    }
    System.out.println("ok client acknowledge");
  }

  private static void rollback(Connection connection) throws Exception {
    try (Session session = connection.createSession(true, Session.SESSION_TRANSACTED)) {
      Queue queue = session.createQueue("interop.rollback");
      MessageProducer producer = session.createProducer(queue);
      MessageConsumer consumer = session.createConsumer(queue);
      producer.send(session.createTextMessage("undone"));
      session.rollback();
      producer.send(session.createTextMessage("a"));
      producer.send(session.createTextMessage("b"));
      session.commit();
      expect("a", ((TextMessage) consumer.receive(WAIT_MS)).getText());
      session.rollback();
      TextMessage again = (TextMessage) consumer.receive(WAIT_MS);
      expect("a", again.getText());
      expect(true, again.getJMSRedelivered());
      expect(2, again.getIntProperty("JMSXDeliveryCount"));
      expect("b", ((TextMessage) consumer.receive(WAIT_MS)).getText());
      session.commit();
      expect(null, consumer.receiveNoWait());
    }
    System.out.println("ok rollback");
  }

  private static void topic(Connection connection) throws Exception {
    try (Session session = connection.createSession(false, Session.AUTO_ACKNOWLEDGE)) {
      Topic topic = session.createTopic("interop.topic");
      MessageConsumer one = session.createConsumer(topic);
      MessageConsumer two = session.createConsumer(topic);
      session.createProducer(topic).send(session.createTextMessage("news"));
      expect("news", ((TextMessage) one.receive(WAIT_MS)).getText());
      expect("news", ((TextMessage) two.receive(WAIT_MS)).getText());
    }
    System.out.println("ok topic");
  }

  private static void browse(Connection connection) throws Exception {
    try (Session session = connection.createSession(false, Session.AUTO_ACKNOWLEDGE)) {
      Queue queue = session.createQueue("interop.browse");
      MessageProducer producer = session.createProducer(queue);
      for (int i = 0; i < 3; i++) {
        producer.send(session.createTextMessage("b" + i));
      }
      try (QueueBrowser browser = session.createBrowser(queue)) {
        expect(3, Collections.list(browser.getEnumeration()).size());
      }
      MessageConsumer consumer = session.createConsumer(queue);
      for (int i = 0; i < 3; i++) {
        expect("b" + i, ((TextMessage) consumer.receive(WAIT_MS)).getText());
      }
    }
    System.out.println("ok browse");
  }

  private static void requestReply(Connection connection) throws Exception {
    try (Session session = connection.createSession(false, Session.AUTO_ACKNOWLEDGE)) {
      Queue service = session.createQueue("interop.service");
      TemporaryQueue replies = session.createTemporaryQueue();
      Message request = session.createTextMessage("question");
      request.setJMSReplyTo(replies);
      session.createProducer(service).send(request);
      Message got = session.createConsumer(service).receive(WAIT_MS);
      session.createProducer(got.getJMSReplyTo()).send(session.createTextMessage("answer"));
      MessageConsumer consumer = session.createConsumer(replies);
      expect("answer", ((TextMessage) consumer.receive(WAIT_MS)).getText());
      consumer.close();
      replies.delete();
    }
    System.out.println("ok request and reply");
  }

  private static void emptyQueue(Connection connection) throws Exception {
    try (Session session = connection.createSession(false, Session.AUTO_ACKNOWLEDGE)) {
      MessageConsumer consumer = session.createConsumer(session.createQueue("interop.empty"));
      expect(null, consumer.receiveNoWait());
      expect(null, consumer.receive(100));
    }
    System.out.println("ok empty queue");
  }

  private static void priorities(Connection connection) throws Exception {
    try (Session session = connection.createSession(false, Session.AUTO_ACKNOWLEDGE)) {
      Queue queue = session.createQueue("interop.priority");
      MessageProducer producer = session.createProducer(queue);
      for (int priority = 0; priority < 10; priority++) {
        producer.send(session.createTextMessage("p" + priority), DeliveryMode.PERSISTENT, priority, 0);
      }
      MessageConsumer consumer = session.createConsumer(queue);
      for (int priority = 9; priority >= 0; priority--) {
        expect("p" + priority, ((TextMessage) consumer.receive(WAIT_MS)).getText());
      }
    }
    System.out.println("ok priorities");
  }

  private static void expiry(Connection connection) throws Exception {
    try (Session session = connection.createSession(false, Session.AUTO_ACKNOWLEDGE)) {
      Queue queue = session.createQueue("interop.expiry");
      session.createProducer(queue).send(session.createTextMessage("late"), DeliveryMode.PERSISTENT, 4, 50);
      Thread.sleep(200); // the message's own time to live has to pass
      expect(null, session.createConsumer(queue).receiveNoWait());
    }
    System.out.println("ok expiry");
  }

  private static void expect(Object wanted, Object got) {
    if (wanted == null ? got != null : !wanted.equals(got)) {
      throw new AssertionError("wanted " + wanted + ", got " + got);
    }
  }
}
