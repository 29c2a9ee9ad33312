package understudy.interop;

import jakarta.jms.BytesMessage;
import jakarta.jms.Connection;
import jakarta.jms.DeliveryMode;
import jakarta.jms.JMSException;
import jakarta.jms.Message;
import jakarta.jms.MessageConsumer;
import jakarta.jms.MessageProducer;
import jakarta.jms.Queue;
import jakarta.jms.QueueBrowser;
import jakarta.jms.Session;
import jakarta.jms.TextMessage;
import java.io.InputStream;
import java.io.OutputStream;
import java.security.MessageDigest;
import java.util.Collections;
import java.util.HexFormat;
import org.apache.activemq.artemis.jms.client.ActiveMQConnectionFactory;

/**
 * Large messages of a stock client. A body is the bytes that {@link #at} gives, so both sides know it by its size.
 *
 * <p>Arguments: url, queue, then one of
 *
 * <ul>
 *   <li>{@code basics}: streamed bytes, text, rollback, browsing, a transaction; prints "ok NAME" for each
 *   <li>{@code send SIZE COUNT}: bytes messages from a stream; prints "sent N"
 *   <li>{@code receive SIZE COUNT}: bytes messages into a stream; prints "got N" and checks each
 *   <li>{@code text UNITS COUNT}: text messages; {@code readText UNITS COUNT}: the other side
 * </ul>
 */
public final class LargeMessages {
  private static final long WAIT_MS = 60_000;

  private LargeMessages() {}

  public static void main(String[] arguments) throws Exception {
    try (ActiveMQConnectionFactory factory = new ActiveMQConnectionFactory(arguments[0]);
        Connection connection = factory.createConnection()) {
      connection.start();
      String queue = arguments[1];
      if (arguments[2].equals("basics")) {
        basics(connection, queue);
        return;
      }
      int size = Integer.parseInt(arguments[3]);
      int count = Integer.parseInt(arguments[4]);
      switch (arguments[2]) {
        case "send" -> send(connection, queue, size, count);
        case "receive" -> receive(connection, queue, size, count);
        case "text" -> sendText(connection, queue, size, count);
        case "readText" -> readText(connection, queue, size, count);
        default -> throw new IllegalArgumentException(arguments[2]);
      }
    }
  }

  private static void basics(Connection connection, String name) throws Exception {
    int size = 10 * 1024 * 1024;
    try (Session session = connection.createSession(false, Session.AUTO_ACKNOWLEDGE)) {
      Queue queue = session.createQueue(name);
      MessageProducer producer = session.createProducer(queue);
      MessageConsumer consumer = session.createConsumer(queue);
      producer.send(streamed(session, size));
      check((BytesMessage) consumer.receive(WAIT_MS), size);
      System.out.println("ok stream");
      producer.send(session.createTextMessage(text(300_000)));
      expect(text(300_000), ((TextMessage) consumer.receive(WAIT_MS)).getText());
      System.out.println("ok text");
      producer.setDeliveryMode(DeliveryMode.NON_PERSISTENT);
      producer.send(streamed(session, 1024 * 1024));
      check((BytesMessage) consumer.receive(WAIT_MS), 1024 * 1024);
      System.out.println("ok non-persistent");
      producer.setDeliveryMode(DeliveryMode.PERSISTENT);
      consumer.close();
      BytesMessage inMemory = session.createBytesMessage();
      inMemory.writeBytes(new Body(500_000).readAllBytes());
      producer.send(inMemory);
      try (QueueBrowser browser = session.createBrowser(queue)) {
        int seen = 0;
        for (Object each : Collections.list(browser.getEnumeration())) {
          expect(500_000L, ((BytesMessage) each).getBodyLength());
          seen++;
        }
        expect(1, seen);
      }
      System.out.println("ok browse");
    }
    try (Session session = connection.createSession(true, Session.SESSION_TRANSACTED)) {
      Queue queue = session.createQueue(name);
      MessageConsumer consumer = session.createConsumer(queue);
      MessageProducer producer = session.createProducer(queue);
      expect(500_000L, ((BytesMessage) consumer.receive(WAIT_MS)).getBodyLength());
      session.rollback();
      Message again = consumer.receive(WAIT_MS);
      expect(true, again.getJMSRedelivered());
      check((BytesMessage) again, 500_000);
      producer.send(streamed(session, 700_000));
      producer.send(session.createTextMessage("behind"));
      session.commit();
      System.out.println("ok rollback");
      check((BytesMessage) consumer.receive(WAIT_MS), 700_000);
      expect("behind", ((TextMessage) consumer.receive(WAIT_MS)).getText());
      producer.send(streamed(session, 700_000));
      session.rollback();
      expect("behind", ((TextMessage) skip(consumer)).getText());
      session.commit();
      expect(null, consumer.receive(500));
      System.out.println("ok transaction");
    }
  }

  /** After the rollback both come again: the large one first. */
  private static Message skip(MessageConsumer consumer) throws JMSException {
    check((BytesMessage) consumer.receive(WAIT_MS), 700_000);
    return consumer.receive(WAIT_MS);
  }

  private static void send(Connection connection, String queue, int size, int count) throws Exception {
    try (Session session = connection.createSession(false, Session.AUTO_ACKNOWLEDGE)) {
      MessageProducer producer = session.createProducer(session.createQueue(queue));
      for (int number = 1; number <= count; number++) {
        while (true) {
          try {
            producer.send(streamed(session, size));
            break;
          } catch (JMSException interrupted) {
            // a stream cannot be read again by the client; this one can be made again
            System.out.println("again " + interrupted.getMessage());
          }
        }
        System.out.println("sent " + number);
      }
    }
  }

  private static void receive(Connection connection, String queue, int size, int count) throws Exception {
    try (Session session = connection.createSession(false, Session.CLIENT_ACKNOWLEDGE)) {
      MessageConsumer consumer = session.createConsumer(session.createQueue(queue));
      int got = 0;
      while (got < count) {
        BytesMessage message = (BytesMessage) consumer.receive(WAIT_MS);
        if (message == null) {
          throw new IllegalStateException("nothing for " + WAIT_MS + " ms at " + got);
        }
        try {
          check(message, size);
          message.acknowledge();
        } catch (JMSException interrupted) {
          System.out.println("again " + interrupted.getMessage());
          continue;
        }
        got++;
        System.out.println("got " + got);
      }
    }
  }

  private static void sendText(Connection connection, String queue, int units, int count) throws Exception {
    try (Session session = connection.createSession(false, Session.AUTO_ACKNOWLEDGE)) {
      MessageProducer producer = session.createProducer(session.createQueue(queue));
      for (int number = 0; number < count; number++) {
        producer.send(session.createTextMessage(text(units)));
      }
      System.out.println("sent " + count);
    }
  }

  private static void readText(Connection connection, String queue, int units, int count) throws Exception {
    try (Session session = connection.createSession(false, Session.AUTO_ACKNOWLEDGE)) {
      MessageConsumer consumer = session.createConsumer(session.createQueue(queue));
      for (int number = 0; number < count; number++) {
        expect(text(units), ((TextMessage) consumer.receive(WAIT_MS)).getText());
      }
      System.out.println("got " + count);
    }
  }

  private static BytesMessage streamed(Session session, int size) throws JMSException {
    BytesMessage message = session.createBytesMessage();
    message.setObjectProperty("JMS_AMQ_InputStream", new Body(size));
    return message;
  }

  private static void check(BytesMessage message, int size) throws JMSException {
    Digest got = new Digest();
    message.setObjectProperty("JMS_AMQ_SaveStream", got);
    expect(size, got.bytes);
    Digest wanted = new Digest();
    for (int index = 0; index < size; index++) {
      wanted.write(at(index));
    }
    expect(wanted.hex(), got.hex());
  }

  /** Byte number {@code index} of every body. */
  private static int at(int index) {
    return (index * 31 + (index >>> 8) * 17 + (index >>> 16)) & 0xff;
  }

  private static String text(int units) {
    StringBuilder text = new StringBuilder(units);
    for (int index = 0; index < units; index++) {
      text.append((char) ('a' + index % 26));
    }
    return text.toString();
  }

  private static void expect(Object wanted, Object got) {
    if (wanted == null ? got != null : !wanted.equals(got)) {
      String shown = String.valueOf(got);
      throw new IllegalStateException("wanted " + abbreviated(wanted) + ", got " + abbreviated(shown));
    }
  }

  private static String abbreviated(Object value) {
    String text = String.valueOf(value);
    return text.length() > 100 ? text.length() + " characters" : text;
  }

  /** A body that is made while it is read. */
  private static final class Body extends InputStream {
    private final int size;
    private int index;

    Body(int size) {
      this.size = size;
    }

    @Override
    public int read() {
      return index < size ? at(index++) : -1;
    }
  }

  private static final class Digest extends OutputStream {
    private final MessageDigest digest;
    private int bytes;

    Digest() {
      try {
        digest = MessageDigest.getInstance("SHA-256");
      } catch (java.security.NoSuchAlgorithmException missing) {
        throw new IllegalStateException(missing);
      }
    }

    @Override
    public void write(int value) {
      digest.update((byte) value);
      bytes++;
    }

    @Override
    public void write(byte[] data, int offset, int length) {
      digest.update(data, offset, length);
      bytes += length;
    }

    String hex() {
      return HexFormat.of().formatHex(digest.digest());
    }
  }
}
