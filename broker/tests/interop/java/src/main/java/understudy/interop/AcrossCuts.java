package understudy.interop;

import jakarta.jms.Connection;
import jakarta.jms.JMSException;
import jakarta.jms.Message;
import jakarta.jms.MessageConsumer;
import jakarta.jms.MessageProducer;
import jakarta.jms.Queue;
import jakarta.jms.Session;
import org.apache.activemq.artemis.jms.client.ActiveMQConnectionFactory;

/**
 * Sends and receives {@code count} numbered messages in transactions of ten over a connection that is cut again and again.
 *
 * <p>Arguments: url, queue, count. With a confirmation window no transaction may fail, nothing may come twice and the
 * order must hold. One refused request goes first: it must not shift the command ids. Prints "at N" after every batch
 * and "done" at the end.
 */
public final class AcrossCuts {
  private static final int BATCH = 10;
  private static final long WAIT_MS = 30_000;

  private AcrossCuts() {}

  public static void main(String[] arguments) throws Exception {
    int count = Integer.parseInt(arguments[2]);
    try (ActiveMQConnectionFactory factory = new ActiveMQConnectionFactory(arguments[0]);
        Connection connection = factory.createConnection()) {
      connection.start();
      Session session = connection.createSession(true, Session.SESSION_TRANSACTED);
      try {
        session.createConsumer(session.createQueue("refused"), "this is (no selector");
        throw new AssertionError("a broken selector was accepted");
      } catch (JMSException refused) {
        System.out.println("refused " + refused.getMessage());
      }
      Queue queue = session.createQueue(arguments[1]);
      MessageProducer producer = session.createProducer(queue);
      MessageConsumer consumer = session.createConsumer(queue);
      for (int sent = 0; sent < count; sent += BATCH) {
        for (int i = 0; i < BATCH; i++) {
          Message message = session.createTextMessage("x".repeat(200));
          message.setIntProperty("number", sent + i);
          producer.send(message);
        }
        session.commit();
        System.out.println("at " + sent);
        for (int i = 0; i < BATCH; i++) {
          Message message = consumer.receive(WAIT_MS);
          if (message == null || message.getIntProperty("number") != sent + i || message.getJMSRedelivered()) {
            throw new AssertionError("wanted " + (sent + i) + " for the first time, got " + message);
          }
        }
        session.commit();
      }
      if (consumer.receiveNoWait() != null) {
        throw new AssertionError("one too many");
      }
    }
    System.out.println("done");
  }
}
