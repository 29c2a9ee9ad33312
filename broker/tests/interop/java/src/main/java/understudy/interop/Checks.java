package understudy.interop;

import jakarta.jms.Connection;
import jakarta.jms.JMSException;
import jakarta.jms.Message;
import jakarta.jms.MessageConsumer;
import jakarta.jms.MessageProducer;
import jakarta.jms.Session;
import jakarta.jms.TextMessage;
import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.TimeUnit;
import org.apache.activemq.artemis.api.core.ActiveMQException;
import org.apache.activemq.artemis.api.core.ActiveMQExceptionType;
import org.apache.activemq.artemis.api.core.client.FailoverEventType;
import org.apache.activemq.artemis.jms.client.ActiveMQConnection;

/** What several scenarios say: what is expected, and small steps that all of them take. */
final class Checks {
  /** Only against waiting for ever. */
  static final long WAIT_MS = 60_000;

  private Checks() {}

  interface Action {
    void run() throws Exception;
  }

  static void expect(Object wanted, Object got) {
    if (wanted == null ? got != null : !wanted.equals(got)) {
      throw new AssertionError("wanted " + wanted + ", got " + got);
    }
  }

  static void check(boolean condition, String what) {
    if (!condition) {
      throw new AssertionError(what);
    }
  }

  /** The action fails with this exception, which is returned. */
  static <T extends Exception> T expectThrows(Class<T> type, Action action) {
    try {
      action.run();
    } catch (Exception error) {
      if (!type.isInstance(error)) {
        throw new AssertionError("wanted " + type.getName(), error);
      }
      return type.cast(error);
    }
    throw new AssertionError("no " + type.getName());
  }

  /** The action fails with this code of the CORE protocol. */
  static void expectCode(ActiveMQExceptionType code, Action action) {
    Exception error = expectThrows(Exception.class, action);
    Throwable cause = error;
    while (cause != null && !(cause instanceof ActiveMQException)) {
      cause = cause instanceof JMSException jms && jms.getLinkedException() != null ? jms.getLinkedException() : cause.getCause();
    }
    if (cause == null) {
      throw new AssertionError("no code in it", error);
    }
    expect(code, ((ActiveMQException) cause).getType());
  }

  static void send(Session session, MessageProducer producer, String prefix, int count) throws Exception {
    for (int i = 0; i < count; i++) {
      producer.send(session.createTextMessage(prefix + i));
    }
  }

  /** The next messages are these, in this order. */
  static void receive(MessageConsumer consumer, String prefix, int from, int to) throws Exception {
    for (int i = from; i < to; i++) {
      expect(prefix + i, text(consumer.receive(WAIT_MS)));
    }
  }

  /** Everything there is now: the broker is asked, and says when there is no more. */
  static List<String> drain(MessageConsumer consumer) throws Exception {
    List<String> texts = new ArrayList<>();
    for (Message message = consumer.receiveNoWait(); message != null; message = consumer.receiveNoWait()) {
      texts.add(text(message));
    }
    return texts;
  }

  static String text(Message message) throws Exception {
    return message == null ? null : ((TextMessage) message).getText();
  }

  /** Says that it is ready and waits until it may go on and the client has failed over: until then it serves old mail. */
  static void failOver(Connection connection) throws Exception {
    CountDownLatch over = new CountDownLatch(1);
    ((ActiveMQConnection) connection).setFailoverListener(event -> {
      if (event == FailoverEventType.FAILOVER_COMPLETED) {
        over.countDown();
      }
    });
    System.out.println("ready");
    System.in.read();
    check(over.await(60, TimeUnit.SECONDS), "the client fails over");
  }

  static void ok(String name) {
    System.out.println("ok " + name);
  }
}
