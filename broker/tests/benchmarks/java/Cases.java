import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.Enumeration;
import java.util.List;
import java.util.concurrent.Semaphore;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicLong;
import javax.jms.BytesMessage;
import javax.jms.CompletionListener;
import javax.jms.Connection;
import javax.jms.Message;
import javax.jms.MessageConsumer;
import javax.jms.MessageProducer;
import javax.jms.QueueBrowser;
import javax.jms.Session;
import javax.jms.Topic;
import javax.jms.XAConnection;
import javax.jms.XASession;
import javax.transaction.xa.XAResource;
import org.apache.activemq.artemis.core.transaction.impl.XidImpl;

/** The cases, by the name that the benchmark gives them. */
final class Cases {
  private static final int BROWSED = 500;
  private static final int SELECTORS = 100;
  private static final int SCHEDULED = 20_000;
  private static final int DELAY_MS = 600;
  private static final int TO_ACKNOWLEDGE = 30_000;
  private static final int PAGED = 60_000;
  private static final int LARGE_BYTES = 200_000_000;
  private static final String KEY = "number";

  private final Clients clients;
  private final Window window;

  private Cases(Clients clients) {
    this.clients = clients;
    window = clients.window;
  }

  static void run(String name, Clients clients) throws Exception {
    Cases cases = new Cases(clients);
    switch (name) {
      case "async" -> cases.asynchronous();
      case "tx-1" -> cases.transactions(1);
      case "tx-100" -> cases.transactions(100);
      case "tx-500" -> cases.transactions(500);
      case "xa-1" -> cases.xa();
      case "lone-64" -> cases.lone(64);
      case "client-ack" -> cases.clientAcknowledge();
      case "scheduled" -> cases.scheduled();
      case "browse" -> cases.browse();
      case "selectors-100" -> cases.selectors();
      case "topic-10" -> cases.topic(10);
      case "topic-100" -> cases.topic(100);
      case "large-500-kB" -> cases.large(500_000, 4, cases::received);
      case "large-10-MB" -> cases.large(10_000_000, 2, cases::received);
      case "stream-500-kB" -> cases.large(500_000, 4, cases::streamed);
      case "stream-10-MB" -> cases.large(10_000_000, 2, cases::streamed);
      case "paged" -> cases.paged();
      default -> throw new IllegalArgumentException("no case " + name);
    }
  }

  /** Messages whose confirmations are not waited for one by one, and a listener that acknowledges each. */
  private void asynchronous() throws Exception {
    Semaphore backlog = new Semaphore(2_000);
    AtomicLong sent = new AtomicLong();
    Order order = new Order(1);
    listen(clients.session(Session.AUTO_ACKNOWLEDGE), order, backlog);
    produceAsynchronously(clients.queue(clients.session(Session.AUTO_ACKNOWLEDGE)), sent, backlog);
    window.measure();
    waitFor(order, sent);
  }

  private void listen(Session session, Order order, Semaphore backlog) throws Exception {
    MessageConsumer consumer = session.createConsumer(clients.queue(session));
    consumer.setMessageListener(
        guarded(
            message -> {
              order.take(Clients.number(message, Clients.BODY_BYTES));
              window.count(1);
              backlog.release();
            }));
  }

  /** A durable topic whose messages each subscriber of that number gets; deliveries count. */
  private void topic(int subscribers) throws Exception {
    int behind = subscribers < 50 ? 400 : 200;
    List<Order> orders = new ArrayList<>();
    List<Semaphore> backlogs = new ArrayList<>();
    Connection connection = null;
    Topic topic = null;
    for (int number = 0; number < subscribers; number++) {
      if (number % 10 == 0) {
        connection = clients.connect();
      }
      Session session = connection.createSession(false, Session.DUPS_OK_ACKNOWLEDGE);
      topic = session.createTopic(clients.address);
      String name = clients.address + "-" + number;
      MessageConsumer consumer = session.createSharedDurableConsumer(topic, name);
      clients.leave(name);
      Order order = new Order(1);
      Semaphore backlog = new Semaphore(behind);
      orders.add(order);
      backlogs.add(backlog);
      consumer.setMessageListener(
          guarded(
              message -> {
                order.take(Clients.number(message, Clients.BODY_BYTES));
                window.count(1);
                backlog.release();
              }));
    }
    AtomicLong sent = new AtomicLong();
    produceAsynchronously(topic, sent, backlogs.toArray(new Semaphore[0]));
    window.measure();
    for (Order order : orders) {
      waitFor(order, sent);
    }
  }

  /** Send while each of the consumers has few enough messages before it. */
  private void produceAsynchronously(javax.jms.Destination destination, AtomicLong sent, Semaphore... backlogs)
      throws Exception {
    Session session = clients.session(Session.AUTO_ACKNOWLEDGE);
    MessageProducer producer = session.createProducer(destination);
    AtomicLong completed = new AtomicLong();
    CompletionListener listener =
        new CompletionListener() {
          @Override
          public void onCompletion(Message message) {
            completed.incrementAndGet();
          }

          @Override
          public void onException(Message message, Exception error) {
            window.fail(error);
          }
        };
    window.start(
        () -> {
          while (!window.stopped()) {
            for (Semaphore backlog : backlogs) {
              while (!backlog.tryAcquire(10, TimeUnit.MILLISECONDS)) {
                if (window.stopped()) {
                  await(() -> completed.get() == sent.get(), "confirmations");
                  return;
                }
              }
            }
            producer.send(Clients.message(session, sent.getAndIncrement()), listener);
          }
          await(() -> completed.get() == sent.get(), "confirmations");
        });
  }

  /** Messages that are sent in transactions of that size and received in transactions of that size. */
  private void transactions(int size) throws Exception {
    Semaphore backlog = new Semaphore(Math.max(50, 4 * size));
    AtomicLong sent = new AtomicLong();
    Session sending = clients.session(Session.SESSION_TRANSACTED);
    MessageProducer producer = Clients.producer(sending, clients.address);
    window.produce(
        () -> {
          if (backlog.tryAcquire(size, 10, TimeUnit.MILLISECONDS)) {
            for (int number = 0; number < size; number++) {
              producer.send(Clients.message(sending, sent.get() + number));
            }
            sending.commit();
            sent.addAndGet(size);
          }
          return true;
        });
    Session receiving = clients.session(Session.SESSION_TRANSACTED);
    MessageConsumer consumer = receiving.createConsumer(clients.queue(receiving));
    Order order = new Order(1);
    window.start(
        () -> {
          while (window.producing() || order.received() < sent.get()) {
            Message first = consumer.receive(10);
            if (first == null) {
              continue;
            }
            order.take(Clients.number(first, Clients.BODY_BYTES));
            for (int number = 1; number < size; number++) {
              order.take(Clients.number(received(consumer), Clients.BODY_BYTES));
            }
            receiving.commit();
            window.count(size);
            backlog.release(size);
          }
        });
    window.measure();
    waitFor(order, sent);
  }

  /** Messages that a transaction manager sends one by one with both phases; they are received afterwards. */
  private void xa() throws Exception {
    XAConnection connection = clients.connectXa();
    XASession session = connection.createXASession();
    XAResource resource = session.getXAResource();
    MessageProducer producer = Clients.producer(session, clients.address);
    long[] sent = {0};
    window.repeat(
        () -> {
          byte[] name = (clients.address + sent[0]).getBytes(StandardCharsets.UTF_8);
          XidImpl xid = new XidImpl(new byte[] {1}, 4711, name);
          resource.start(xid, XAResource.TMNOFLAGS);
          producer.send(Clients.message(session, sent[0]));
          resource.end(xid, XAResource.TMSUCCESS);
          resource.prepare(xid);
          resource.commit(xid, false);
          sent[0]++;
          window.count(1);
          return true;
        });
    window.measure();
    drain(new Order(1), sent[0]);
  }

  /** Connections with a producer each that waits for each confirmation; messages are received afterwards. */
  private void lone(int connections) throws Exception {
    AtomicLong sent = new AtomicLong();
    for (int each = 0; each < connections; each++) {
      Session session = clients.session(Session.AUTO_ACKNOWLEDGE);
      MessageProducer producer = Clients.producer(session, clients.address);
      int number = each;
      long[] sequence = {0};
      window.repeat(
          () -> {
            producer.send(Clients.message(session, Order.number(number, sequence[0]++)));
            sent.incrementAndGet();
            window.count(1);
            return true;
          });
    }
    window.measure();
    drain(new Order(connections), sent.get());
  }

  /** Messages that wait are acknowledged one by one; the time ends when the broker has taken all acknowledgements. */
  private void clientAcknowledge() throws Exception {
    clients.fill(clients.address, TO_ACKNOWLEDGE);
    Session session = clients.session(Session.CLIENT_ACKNOWLEDGE);
    MessageConsumer consumer = session.createConsumer(clients.queue(session));
    Order order = new Order(1);
    window.measureAll(
        () -> {
          while (order.received() < TO_ACKNOWLEDGE) {
            Message message = received(consumer);
            order.take(Clients.number(message, Clients.BODY_BYTES));
            // the client does not wait for the answer
            message.acknowledge();
            window.count(1);
          }
          // the request comes after all acknowledgements
          session.close();
        },
        0);
  }

  /** Messages with a delay, from the first send until all are received; the delay does not count. */
  private void scheduled() throws Exception {
    Session sending = clients.session(Session.SESSION_TRANSACTED);
    MessageProducer producer = Clients.producer(sending, clients.address);
    producer.setDeliveryDelay(DELAY_MS);
    Order order = new Order(1);
    Session receiving = clients.session(Session.DUPS_OK_ACKNOWLEDGE);
    MessageConsumer consumer = receiving.createConsumer(clients.queue(receiving));
    boolean[] seen = new boolean[SCHEDULED];
    window.measureAll(
        () -> {
          window.start(
              () -> {
                for (int number = 0; number < SCHEDULED; number++) {
                  // messages of equal times have no order among themselves
                  int index = (int) Clients.number(received(consumer), Clients.BODY_BYTES);
                  if (seen[index]) {
                    throw new IllegalStateException("message " + index + " is delivered twice");
                  }
                  seen[index] = true;
                  window.count(1);
                }
              });
          for (int number = 0; number < SCHEDULED; number++) {
            producer.send(Clients.message(sending, number));
            if (number % 500 == 499) {
              sending.commit();
            }
          }
          window.join();
        },
        DELAY_MS);
  }

  /** A queue that is browsed from its beginning to its end again and again. */
  private void browse() throws Exception {
    clients.fill(clients.address, BROWSED);
    clients.leave(clients.address);
    Session session = clients.session(Session.AUTO_ACKNOWLEDGE);
    window.repeat(
        () -> {
          Order order = new Order(1);
          try (QueueBrowser browser = session.createBrowser(clients.queue(session))) {
            Enumeration<?> messages = browser.getEnumeration();
            while (messages.hasMoreElements()) {
              order.take(Clients.number((Message) messages.nextElement(), Clients.BODY_BYTES));
              window.count(1);
            }
          }
          if (order.received() != BROWSED) {
            throw new IllegalStateException("browsed " + order.received() + " messages in place of " + BROWSED);
          }
          return true;
        });
    window.measure();
  }

  /** A queue with many consumers, each with a selector that one message of so many matches. */
  private void selectors() throws Exception {
    Semaphore backlog = new Semaphore(20 * SELECTORS);
    Order order = new Order(SELECTORS);
    Connection connection = null;
    for (int number = 0; number < SELECTORS; number++) {
      if (number % 10 == 0) {
        connection = clients.connect();
      }
      Session session = connection.createSession(false, Session.DUPS_OK_ACKNOWLEDGE);
      MessageConsumer consumer = session.createConsumer(clients.queue(session), KEY + " = " + number);
      int own = number;
      consumer.setMessageListener(
          guarded(
              message -> {
                long found = Clients.number(message, Clients.BODY_BYTES);
                synchronized (order) {
                  order.take(found);
                }
                if (message.getIntProperty(KEY) != own) {
                  throw new IllegalStateException("a message that the selector does not match");
                }
                window.count(1);
                backlog.release();
              }));
    }
    Session sending = clients.session(Session.SESSION_TRANSACTED);
    MessageProducer producer = Clients.producer(sending, clients.address);
    AtomicLong sent = new AtomicLong();
    long[] turn = {0};
    window.repeat(
        () -> {
          if (backlog.tryAcquire(SELECTORS, 10, TimeUnit.MILLISECONDS)) {
            for (int number = 0; number < SELECTORS; number++) {
              BytesMessage message = Clients.message(sending, Order.number(number, turn[0]));
              message.setIntProperty(KEY, number);
              producer.send(message);
            }
            sending.commit();
            turn[0]++;
            sent.addAndGet(SELECTORS);
          }
          return true;
        });
    window.measure();
    waitFor(order, sent);
  }

  /** Large messages: producers that wait for each confirmation, and a consumer that reads and checks each body. */
  private void large(int bytes, int producers, Receive receive) throws Exception {
    int each = LARGE_BYTES / bytes / producers;
    Order order = new Order(producers);
    Session receiving = clients.session(Session.AUTO_ACKNOWLEDGE);
    MessageConsumer consumer = receiving.createConsumer(clients.queue(receiving));
    List<Session> sessions = new ArrayList<>();
    for (int number = 0; number < producers; number++) {
      sessions.add(clients.session(Session.AUTO_ACKNOWLEDGE));
    }
    window.measureAll(
        () -> {
          for (int own = 0; own < producers; own++) {
            Session session = sessions.get(own);
            long first = Order.number(own, 0);
            MessageProducer producer = Clients.producer(session, clients.address);
            window.start(
                () -> {
                  for (int sequence = 0; sequence < each; sequence++) {
                    producer.send(Clients.message(session, first + sequence, bytes));
                  }
                });
          }
          while (order.received() < (long) each * producers) {
            order.take(receive.number(consumer, bytes));
            window.count(1);
          }
        },
        0);
  }

  /** How a consumer gets a message and checks its body. */
  private interface Receive {
    long number(MessageConsumer consumer, int bytes) throws Exception;
  }

  /** The body as {@code BytesMessage} gives it: the client copies a large one byte by byte. */
  private long received(MessageConsumer consumer, int bytes) throws Exception {
    return Clients.number(received(consumer), bytes);
  }

  /** The body as the client writes it to a stream of the application, packet by packet. */
  private long streamed(MessageConsumer consumer, int bytes) throws Exception {
    CheckedBody body = new CheckedBody(bytes);
    received(consumer).setObjectProperty("JMS_AMQ_SaveStream", body);
    return body.number();
  }

  /** The messages of an address that is far above its limit are consumed. */
  private void paged() throws Exception {
    clients.fill(clients.address, PAGED);
    Order order = new Order(1);
    window.measureAll(() -> drain(order, PAGED, () -> window.count(1)), 0);
  }

  private void drain(Order order, long count) throws Exception {
    drain(order, count, () -> {});
  }

  private void drain(Order order, long count, Runnable each) throws Exception {
    Session session = clients.session(Session.DUPS_OK_ACKNOWLEDGE);
    MessageConsumer consumer = session.createConsumer(clients.queue(session));
    while (order.received() < count) {
      order.take(Clients.number(received(consumer), Clients.BODY_BYTES));
      each.run();
    }
    if (consumer.receiveNoWait() != null) {
      throw new IllegalStateException("more than the " + count + " messages that were sent");
    }
  }

  private static Message received(MessageConsumer consumer) throws Exception {
    Message message = consumer.receive(Window.QUIET_MS);
    if (message == null) {
      throw new IllegalStateException("no message within " + Window.QUIET_MS + " ms");
    }
    return message;
  }

  private void waitFor(Order order, AtomicLong sent) throws Exception {
    await(() -> order.received() >= sent.get(), "messages");
    if (order.received() != sent.get()) {
      throw new IllegalStateException("received " + order.received() + " messages of " + sent);
    }
  }

  private interface Condition {
    boolean holds();
  }

  private void await(Condition condition, String what) throws Exception {
    long end = System.nanoTime() + TimeUnit.MILLISECONDS.toNanos(Window.QUIET_MS);
    while (!condition.holds()) {
      window.check();
      if (System.nanoTime() > end) {
        throw new IllegalStateException("not all " + what + " arrive within " + Window.QUIET_MS + " ms");
      }
      Thread.sleep(1);
    }
  }

  private interface Taking {
    void take(Message message) throws Exception;
  }

  private javax.jms.MessageListener guarded(Taking taking) {
    return message -> {
      try {
        taking.take(message);
      } catch (Exception error) {
        window.fail(error);
      }
    };
  }
}
