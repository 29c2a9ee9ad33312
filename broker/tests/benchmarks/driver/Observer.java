import java.util.concurrent.TimeUnit;
import javax.jms.BytesMessage;
import javax.jms.Connection;
import javax.jms.JMSException;
import javax.jms.MessageConsumer;
import javax.jms.MessageProducer;
import javax.jms.Queue;
import javax.jms.Session;
import org.apache.activemq.artemis.jms.client.ActiveMQConnectionFactory;

/**
 * Sends durable messages one after the other and receives them on a second connection, whatever happens to the broker.
 *
 * <p>Arguments: url, queue, milliseconds between sends. Prints "s TIME" when a send has been confirmed and "r TIME" when a message has
 * been received and acknowledged, in milliseconds since 1970. A send or receive that fails is tried again. Runs until it is killed.
 */
public final class Observer {
  private static final int BODY_BYTES = 100;

  private Observer() {}

  private interface Work {
    void run(Session session, Queue queue) throws JMSException;
  }

  public static void main(String[] arguments) throws Exception {
    long pauseMs = Long.parseLong(arguments[2]);
    Thread receiver = new Thread(() -> forever(arguments[0], arguments[1], Observer::receive));
    receiver.start();
    forever(arguments[0], arguments[1], (session, queue) -> send(session, queue, pauseMs));
  }

  private static void forever(String url, String name, Work work) {
    while (true) {
      try (ActiveMQConnectionFactory factory = new ActiveMQConnectionFactory(url);
          Connection connection = factory.createConnection()) {
        connection.start();
        Session session = connection.createSession(false, Session.AUTO_ACKNOWLEDGE);
        work.run(session, session.createQueue(name));
      } catch (JMSException closed) {
        System.out.println("e " + closed.getMessage());
      }
    }
  }

  private static void send(Session session, Queue queue, long pauseMs) throws JMSException {
    MessageProducer producer = session.createProducer(queue);
    while (true) {
      BytesMessage message = session.createBytesMessage();
      message.writeBytes(new byte[BODY_BYTES]);
      try {
        producer.send(message);
        System.out.println("s " + System.currentTimeMillis());
      } catch (javax.jms.IllegalStateException closed) {
        throw closed;
      } catch (JMSException unblocked) {
        System.out.println("e " + unblocked.getMessage());
      }
      try {
        TimeUnit.MILLISECONDS.sleep(pauseMs);
      } catch (InterruptedException never) {
        throw new IllegalStateException(never);
      }
    }
  }

  private static void receive(Session session, Queue queue) throws JMSException {
    MessageConsumer consumer = session.createConsumer(queue);
    while (true) {
      try {
        if (consumer.receive(1_000) != null) {
          System.out.println("r " + System.currentTimeMillis());
        }
      } catch (javax.jms.IllegalStateException closed) {
        throw closed;
      } catch (JMSException failed) {
        System.out.println("e " + failed.getMessage());
      }
    }
  }
}
