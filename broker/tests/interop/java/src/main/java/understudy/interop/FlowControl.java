package understudy.interop;

import static understudy.interop.Checks.WAIT_MS;
import static understudy.interop.Checks.check;
import static understudy.interop.Checks.drain;
import static understudy.interop.Checks.expect;
import static understudy.interop.Checks.expectCode;
import static understudy.interop.Checks.failOver;
import static understudy.interop.Checks.ok;
import static understudy.interop.Checks.receive;
import static understudy.interop.Checks.send;
import static understudy.interop.Checks.text;

import jakarta.jms.BytesMessage;
import jakarta.jms.Connection;
import jakarta.jms.DeliveryMode;
import jakarta.jms.MessageConsumer;
import jakarta.jms.MessageProducer;
import jakarta.jms.Queue;
import jakarta.jms.QueueBrowser;
import jakarta.jms.Session;
import java.util.Collections;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicInteger;
import java.util.concurrent.atomic.AtomicReference;
import org.apache.activemq.artemis.api.core.ActiveMQExceptionType;
import org.apache.activemq.artemis.jms.client.ActiveMQConnectionFactory;

/**
 * Credits in both directions: consumer windows of every kind, large messages and browsers against them, addresses that
 * block, fail or drop when they are full, and slow consumers. Arguments: url [failover]. Prints "ok NAME" for each part.
 */
public final class FlowControl {
  private FlowControl() {}

  public static void main(String[] arguments) throws Exception {
    String url = arguments[0];
    if (arguments.length > 1) {
      failover(url);
    } else {
      for (int window : new int[] {-1, 0, 1, 600, 5_000}) {
        window(url, window);
      }
      ok("windows");
      nothingHoarded(url);
      largeMessages(url);
      immediately(url);
      blocking(url);
      failing(url);
      dropping(url);
      slowConsumer(url);
    }
    System.out.println("done");
  }

  private static ActiveMQConnectionFactory factory(String url, String parameters) throws Exception {
    return new ActiveMQConnectionFactory(url + "&" + parameters);
  }

  private static void window(String url, int window) throws Exception {
    try (ActiveMQConnectionFactory factory = factory(url, "consumerWindowSize=" + window);
        Connection connection = factory.createConnection()) {
      connection.start();
      Session session = connection.createSession(false, Session.AUTO_ACKNOWLEDGE);
      Queue queue = session.createQueue("interop.window" + window);
      send(session, session.createProducer(queue), "w", 60);
      if (window < 0) {
        // with a small window the client ends its enumeration early, whatever the broker does
        try (QueueBrowser browser = session.createBrowser(queue)) {
          expect(60, Collections.list(browser.getEnumeration()).size());
        }
      }
      MessageConsumer consumer = session.createConsumer(queue);
      receive(consumer, "w", 0, 60);
      expect(null, consumer.receiveNoWait());
      expect(null, consumer.receive(50));
      // a receive that gave up leaves no credit behind that would strand a message here
      session.createProducer(queue).send(session.createTextMessage("late"));
      consumer.close();
      expect("late", text(session.createConsumer(queue).receive(WAIT_MS)));
    }
  }

  private static void nothingHoarded(String url) throws Exception {
    // window 0: who does not ask gets nothing; 1: exactly one message waits at who does not ask
    for (int window : new int[] {0, 1}) {
      try (ActiveMQConnectionFactory factory = factory(url, "consumerWindowSize=" + window);
          Connection connection = factory.createConnection()) {
        connection.start();
        Session idle = connection.createSession(false, Session.AUTO_ACKNOWLEDGE);
        Session busy = connection.createSession(false, Session.AUTO_ACKNOWLEDGE);
        Queue queue = idle.createQueue("interop.hoard" + window);
        MessageConsumer waiting = idle.createConsumer(queue);
        MessageConsumer taking = busy.createConsumer(queue);
        send(busy, busy.createProducer(queue), "h", 20);
        // not drained: this client's credits may come to the broker behind its question whether there is more
        for (MessageConsumer each : new MessageConsumer[] {taking, waiting}) {
          for (int i = 0; i < (each == taking ? 20 - window : window); i++) {
            check(each.receive(WAIT_MS) != null, "message " + i);
          }
        }
        expect(null, taking.receive(500));
        expect(null, waiting.receive(500));
      }
    }
    ok("nothing hoarded");
  }

  private static void largeMessages(String url) throws Exception {
    for (int window : new int[] {-1, 0, 1, 2_000, 300_000}) {
      try (ActiveMQConnectionFactory factory = factory(url, "minLargeMessageSize=20000&consumerWindowSize=" + window);
          Connection connection = factory.createConnection()) {
        connection.start();
        Session session = connection.createSession(false, Session.AUTO_ACKNOWLEDGE);
        Queue queue = session.createQueue("interop.credits.large" + window);
        MessageProducer producer = session.createProducer(queue);
        for (int i = 0; i < 4; i++) {
          BytesMessage message = session.createBytesMessage();
          message.writeBytes(new byte[150_000 + i]);
          producer.send(message);
          producer.send(session.createTextMessage("small" + i));
        }
        MessageConsumer consumer = session.createConsumer(queue);
        for (int i = 0; i < 4; i++) {
          BytesMessage message = (BytesMessage) consumer.receive(WAIT_MS);
          expect(150_000L + i, message.getBodyLength());
          expect("small" + i, text(consumer.receive(WAIT_MS)));
        }
        expect(null, consumer.receiveNoWait());
      }
    }
    ok("large messages");
  }

  private static void immediately(String url) throws Exception {
    try (ActiveMQConnectionFactory factory = factory(url, "blockOnDurableSend=false");
        Connection connection = factory.createConnection()) {
      connection.start();
      Session session = connection.createSession(false, Session.AUTO_ACKNOWLEDGE);
      Queue queue = session.createQueue("interop.immediately");
      MessageProducer producer = session.createProducer(queue);
      MessageConsumer consumer = session.createConsumer(queue);
      for (int i = 0; i < 50; i++) {
        // what a session sent, safe yet or not, is there when the same session asks
        producer.send(session.createTextMessage("i" + i));
        expect("i" + i, text(consumer.receiveNoWait()));
      }
    }
    ok("immediately");
  }

  private static void blocking(String url) throws Exception {
    try (ActiveMQConnectionFactory factory = factory(url, "producerWindowSize=5000");
        Connection connection = factory.createConnection()) {
      connection.start();
      Session sending = connection.createSession(false, Session.AUTO_ACKNOWLEDGE);
      Queue queue = sending.createQueue("block.q");
      MessageProducer producer = sending.createProducer(queue);
      AtomicInteger sent = new AtomicInteger();
      AtomicReference<Exception> trouble = new AtomicReference<>();
      Thread thread = new Thread(() -> {
        try {
          for (int i = 0; i < 200; i++) {
            producer.send(sending.createTextMessage("b".repeat(500)));
            sent.incrementAndGet();
          }
        } catch (Exception error) {
          trouble.set(error);
        }
      });
      thread.start();
      // until it has begun, and then stands still
      int before = -1;
      while (thread.isAlive() && (sent.get() <= 5 || sent.get() != before)) {
        before = sent.get();
        Thread.sleep(1_000);
      }
      before = sent.get();
      check(before > 5 && before < 120, "it stops when the address is full: " + before);
      Session reading = connection.createSession(false, Session.AUTO_ACKNOWLEDGE);
      MessageConsumer consumer = reading.createConsumer(queue);
      for (int i = 0; i < 200; i++) {
        check(consumer.receive(WAIT_MS) != null, "message " + i);
      }
      thread.join(WAIT_MS);
      expect(null, trouble.get());
      expect(200, sent.get());
    }
    ok("blocking");
  }

  private static void failing(String url) throws Exception {
    try (ActiveMQConnectionFactory factory = factory(url, "producerWindowSize=5000");
        Connection connection = factory.createConnection()) {
      connection.start();
      Session session = connection.createSession(false, Session.AUTO_ACKNOWLEDGE);
      Queue queue = session.createQueue("fail.q");
      MessageProducer producer = session.createProducer(queue);
      expectCode(ActiveMQExceptionType.ADDRESS_FULL, () -> {
        for (int i = 0; i < 200; i++) {
          producer.send(session.createTextMessage("f".repeat(500)));
        }
      });
      int held = drain(session.createConsumer(queue)).size();
      check(held > 5 && held < 120, "what was taken is there: " + held);
      // refusals that came for credits asked ahead are this session's; another one finds room again
      Session later = connection.createSession(false, Session.AUTO_ACKNOWLEDGE);
      later.createProducer(queue).send(later.createTextMessage("room again"));
    }
    ok("failing");
  }

  private static void dropping(String url) throws Exception {
    try (ActiveMQConnectionFactory factory = factory(url, "producerWindowSize=5000");
        Connection connection = factory.createConnection()) {
      connection.start();
      Session session = connection.createSession(false, Session.AUTO_ACKNOWLEDGE);
      Queue queue = session.createQueue("drop.q");
      MessageProducer producer = session.createProducer(queue);
      for (int i = 0; i < 200; i++) {
        producer.send(session.createTextMessage("d".repeat(500)));
      }
      int held = drain(session.createConsumer(queue)).size();
      check(held > 5 && held < 120, "the rest was dropped: " + held);
    }
    ok("dropping");
  }

  private static void slowConsumer(String url) throws Exception {
    try (ActiveMQConnectionFactory factory = new ActiveMQConnectionFactory(url.replaceAll("reconnectAttempts=-1", "reconnectAttempts=0"));
        Connection slow = factory.createConnection();
        Connection sending = factory.createConnection()) {
      CountDownLatch killed = new CountDownLatch(1);
      slow.setExceptionListener(error -> killed.countDown());
      slow.start();
      sending.start();
      Session session = sending.createSession(false, Session.AUTO_ACKNOWLEDGE);
      Queue queue = session.createQueue("slow.q");
      MessageProducer producer = session.createProducer(queue);
      producer.setDeliveryMode(DeliveryMode.PERSISTENT);
      slow.createSession(false, Session.CLIENT_ACKNOWLEDGE).createConsumer(queue);
      send(session, producer, "s", 200);
      check(killed.await(60, TimeUnit.SECONDS), "the slow consumer's connection is closed");
      MessageConsumer quick = session.createConsumer(queue);
      receive(quick, "s", 0, 200);
    }
    ok("slow consumer");
  }

  /** The active node dies between "ready" and the next line of input. */
  private static void failover(String url) throws Exception {
    try (ActiveMQConnectionFactory factory = factory(url, "consumerWindowSize=0&producerWindowSize=2000&blockOnAcknowledge=true");
        Connection connection = factory.createConnection()) {
      connection.start();
      Session session = connection.createSession(false, Session.AUTO_ACKNOWLEDGE);
      Queue queue = session.createQueue("interop.flow.failover");
      MessageProducer producer = session.createProducer(queue);
      send(session, producer, "x", 30);
      MessageConsumer consumer = session.createConsumer(queue);
      receive(consumer, "x", 0, 10);
      failOver(connection);
      receive(consumer, "x", 10, 30);
      // far more than one window of credits, which the other node knows nothing of
      send(session, producer, "y", 100);
      receive(consumer, "y", 0, 100);
      expect(null, consumer.receiveNoWait());
    }
    ok("failover");
  }
}
