import java.nio.ByteBuffer;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import javax.jms.BytesMessage;
import javax.jms.Connection;
import javax.jms.DeliveryMode;
import javax.jms.JMSException;
import javax.jms.Message;
import javax.jms.MessageProducer;
import javax.jms.Queue;
import javax.jms.Session;
import org.apache.activemq.artemis.api.core.SimpleString;
import org.apache.activemq.artemis.api.core.client.ClientSession;
import org.apache.activemq.artemis.jms.client.ActiveMQConnectionFactory;
import org.apache.activemq.artemis.jms.client.ActiveMQSession;
import org.apache.activemq.artemis.jms.client.ActiveMQXAConnectionFactory;

/** Connections of a run, the messages that they send, and the check of each message that they receive. */
final class Clients implements AutoCloseable {
  static final int BODY_BYTES = 1024;

  final String address;
  final Window window;
  private final String url;
  private final ActiveMQXAConnectionFactory factory;
  private final List<Connection> connections = new ArrayList<>();
  private final List<String> left = new ArrayList<>();

  Clients(String url, String address, Window window) {
    this.url = url;
    this.address = address;
    this.window = window;
    factory = new ActiveMQXAConnectionFactory(url);
  }

  /** A started connection. */
  Connection connect() throws JMSException {
    return kept(factory.createConnection());
  }

  /** A started connection for transactions of a transaction manager. */
  javax.jms.XAConnection connectXa() throws JMSException {
    return kept(factory.createXAConnection());
  }

  /** A started connection whose client may have so many bytes of undelivered messages for a consumer. */
  Connection connectWithWindow(int bytes) throws JMSException {
    ActiveMQConnectionFactory other = new ActiveMQConnectionFactory(url);
    other.setConsumerWindowSize(bytes);
    return kept(other.createConnection());
  }

  private <C extends Connection> C kept(C connection) throws JMSException {
    connections.add(connection);
    connection.start();
    return connection;
  }

  /** A session of a connection of its own. */
  Session session(int mode) throws JMSException {
    return connect().createSession(mode == Session.SESSION_TRANSACTED, mode);
  }

  /** A producer of durable messages to the queue of the run. */
  static MessageProducer producer(Session session, String queue) throws JMSException {
    MessageProducer producer = session.createProducer(session.createQueue(queue));
    producer.setDeliveryMode(DeliveryMode.PERSISTENT);
    return producer;
  }

  Queue queue(Session session) throws JMSException {
    return session.createQueue(address);
  }

  /** A message whose body begins with its number. */
  static BytesMessage message(Session session, long number) throws JMSException {
    return message(session, number, BODY_BYTES);
  }

  static BytesMessage message(Session session, long number, int bytes) throws JMSException {
    BytesMessage message = session.createBytesMessage();
    message.writeLong(number);
    message.writeBytes(filling(bytes), 0, bytes - Long.BYTES);
    return message;
  }

  private static volatile byte[] filled = new byte[0];

  /** What follows the number in a body of at most so many bytes. */
  static byte[] filling(int bytes) {
    if (filled.length < bytes) {
      byte[] made = new byte[bytes];
      for (int at = 0; at < bytes; at++) {
        made[at] = (byte) (at * 31 + (at >> 8));
      }
      filled = made;
    }
    return filled;
  }

  /** The number of a message, whose body is checked. */
  static long number(Message message, int bytes) throws JMSException {
    byte[] body = new byte[bytes];
    BytesMessage received = (BytesMessage) message;
    if (received.getBodyLength() != bytes || received.readBytes(body) != bytes) {
      throw new IllegalStateException("a body of " + received.getBodyLength() + " bytes in place of " + bytes);
    }
    if (!Arrays.equals(body, Long.BYTES, bytes, filling(bytes), 0, bytes - Long.BYTES)) {
      throw new IllegalStateException("a body that is not the one that was sent");
    }
    return ByteBuffer.wrap(body).getLong();
  }

  /** Fill a queue in transactions of 500. */
  void fill(String queue, int count) throws JMSException {
    Session session = session(Session.SESSION_TRANSACTED);
    MessageProducer producer = producer(session, queue);
    for (int number = 0; number < count; number++) {
      producer.send(message(session, number));
      if (number % 500 == 499 || number == count - 1) {
        session.commit();
      }
    }
    session.close();
  }

  /** Delete a queue, with what is left in it, when the run has ended. */
  void leave(String queue) {
    left.add(queue);
  }

  @Override
  public void close() {
    try {
      for (Connection connection : connections) {
        connection.close();
      }
      if (!left.isEmpty()) {
        try (Connection last = factory.createConnection();
            Session session = last.createSession(false, Session.AUTO_ACKNOWLEDGE)) {
          ClientSession core = ((ActiveMQSession) session).getCoreSession();
          for (String queue : left) {
            if (core.queueQuery(SimpleString.of(queue)).isExists()) {
              core.deleteQueue(SimpleString.of(queue));
            }
          }
        }
      }
    } catch (Exception error) {
      window.fail(error);
    } finally {
      factory.close();
    }
  }
}
