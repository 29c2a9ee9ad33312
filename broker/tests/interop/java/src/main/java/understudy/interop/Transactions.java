package understudy.interop;

import static understudy.interop.Checks.WAIT_MS;
import static understudy.interop.Checks.drain;
import static understudy.interop.Checks.expect;
import static understudy.interop.Checks.expectCode;
import static understudy.interop.Checks.expectThrows;
import static understudy.interop.Checks.failOver;
import static understudy.interop.Checks.ok;
import static understudy.interop.Checks.receive;
import static understudy.interop.Checks.send;
import static understudy.interop.Checks.text;

import jakarta.jms.Connection;
import jakarta.jms.Message;
import jakarta.jms.MessageConsumer;
import jakarta.jms.MessageProducer;
import jakarta.jms.Queue;
import jakarta.jms.Session;
import jakarta.jms.TransactionRolledBackException;
import java.util.List;
import org.apache.activemq.artemis.api.core.ActiveMQExceptionType;
import org.apache.activemq.artemis.jms.client.ActiveMQConnectionFactory;

/**
 * Local transactions: order and delivery counts after a rollback, duplicate ids, what a failover leaves of them.
 * Arguments: url [failover]. Prints "ok NAME" for each part.
 */
public final class Transactions {
  private static final String DUPLICATE_ID = "_AMQ_DUPL_ID";

  private Transactions() {}

  public static void main(String[] arguments) throws Exception {
    try (ActiveMQConnectionFactory factory = new ActiveMQConnectionFactory(arguments[0]);
        Connection connection = factory.createConnection()) {
      connection.start();
      if (arguments.length > 1) {
        failover(connection);
      } else {
        nothing(connection);
        order(connection);
        closedConsumer(connection);
        deadLetters(connection);
        duplicates(connection);
        expired(connection);
      }
    }
    System.out.println("done");
  }

  private static void nothing(Connection connection) throws Exception {
    try (Session session = connection.createSession(true, Session.SESSION_TRANSACTED)) {
      session.commit();
      session.rollback();
      session.commit();
    }
    ok("nothing");
  }

  private static void order(Connection connection) throws Exception {
    try (Session session = connection.createSession(true, Session.SESSION_TRANSACTED)) {
      Queue queue = session.createQueue("interop.tx.order");
      send(session, session.createProducer(queue), "o", 20);
      session.commit();
      MessageConsumer consumer = session.createConsumer(queue);
      for (int round = 1; round <= 3; round++) {
        // each round one more is consumed and rolled back with what was only buffered
        for (int i = 0; i < 5 * round; i++) {
          Message message = consumer.receive(WAIT_MS);
          expect("o" + i, text(message));
          int before = i < 5 ? round - 1 : i < 10 ? Math.max(round - 2, 0) : 0;
          expect(before + 1, message.getIntProperty("JMSXDeliveryCount"));
          expect(before > 0, message.getJMSRedelivered());
        }
        session.rollback();
      }
      receive(consumer, "o", 0, 20);
      session.commit();
      expect(null, consumer.receiveNoWait());
    }
    ok("order");
  }

  private static void closedConsumer(Connection connection) throws Exception {
    try (Session session = connection.createSession(true, Session.SESSION_TRANSACTED)) {
      Queue queue = session.createQueue("interop.tx.closed");
      send(session, session.createProducer(queue), "c", 4);
      session.commit();
      MessageConsumer first = session.createConsumer(queue);
      receive(first, "c", 0, 2);
      first.close();
      MessageConsumer second = session.createConsumer(queue);
      receive(second, "c", 2, 3);
      session.rollback();
      second.close();
      MessageConsumer third = session.createConsumer(queue);
      receive(third, "c", 0, 4);
      third.close();
      session.commit();
      expect(List.of(), drain(session.createConsumer(queue)));
    }
    ok("closed consumer");
  }

  private static void deadLetters(Connection connection) throws Exception {
    try (Session session = connection.createSession(true, Session.SESSION_TRANSACTED)) {
      Queue queue = session.createQueue("dead.q");
      send(session, session.createProducer(queue), "d", 2);
      session.commit();
      MessageConsumer consumer = session.createConsumer(queue);
      for (int attempt = 0; attempt < 2; attempt++) {
        expect("d0", text(consumer.receive(WAIT_MS)));
        session.rollback();
      }
      expect("d1", text(consumer.receive(WAIT_MS)));
      session.commit();
      MessageConsumer dead = session.createConsumer(session.createQueue("dead.letters"));
      Message letter = dead.receive(WAIT_MS);
      expect("d0", text(letter));
      expect("dead.q", letter.getStringProperty("_AMQ_ORIG_ADDRESS"));
      session.commit();
    }
    ok("dead letters");
  }

  private static Message identified(Session session, String text, String id) throws Exception {
    Message message = session.createTextMessage(text);
    message.setStringProperty(DUPLICATE_ID, id);
    return message;
  }

  private static void duplicates(Connection connection) throws Exception {
    try (Session session = connection.createSession(true, Session.SESSION_TRANSACTED);
        Session plain = connection.createSession(false, Session.AUTO_ACKNOWLEDGE)) {
      Queue queue = session.createQueue("interop.tx.duplicates");
      MessageProducer producer = session.createProducer(queue);
      producer.send(identified(session, "undone", "id-1"));
      session.rollback();
      producer.send(identified(session, "first", "id-1"));
      session.commit();
      // known now: alone it is dropped silently, in a transaction it takes everything with it
      plain.createProducer(queue).send(identified(plain, "dropped", "id-1"));
      producer.send(session.createTextMessage("with it"));
      producer.send(identified(session, "duplicate", "id-1"));
      expectCode(ActiveMQExceptionType.DUPLICATE_ID_REJECTED, session::commit);
      session.rollback();
      producer.send(identified(session, "second", "id-2"));
      session.commit();
      expect(List.of("first", "second"), drain(plain.createConsumer(queue)));
    }
    ok("duplicates");
  }

  private static void expired(Connection connection) throws Exception {
    try (Session session = connection.createSession(true, Session.SESSION_TRANSACTED)) {
      Queue queue = session.createQueue("interop.tx.expired");
      MessageProducer producer = session.createProducer(queue);
      producer.setTimeToLive(4_000);
      producer.send(session.createTextMessage("late"));
      session.commit();
      MessageConsumer consumer = session.createConsumer(queue);
      expect("late", text(consumer.receive(WAIT_MS)));
      Thread.sleep(4_200); // the message's own time to live has to pass
      session.rollback();
      expect(null, consumer.receive(300));
    }
    ok("expired");
  }

  /** The active node dies between "ready" and the next line of input. */
  private static void failover(Connection connection) throws Exception {
    Session session = connection.createSession(true, Session.SESSION_TRANSACTED);
    Queue queue = session.createQueue("interop.tx.failover");
    MessageProducer producer = session.createProducer(queue);
    producer.send(identified(session, "f0", "before the failover"));
    for (int i = 1; i < 10; i++) {
      producer.send(session.createTextMessage("f" + i));
    }
    session.commit();
    MessageConsumer consumer = session.createConsumer(queue);
    receive(consumer, "f", 0, 3);
    producer.send(session.createTextMessage("never"));
    failOver(connection);
    expectThrows(TransactionRolledBackException.class, session::commit);
    // nothing of it happened: all come again in order, and what was sent never was
    receive(consumer, "f", 0, 10);
    session.commit();
    // the other node knows the ids that this one has seen
    producer.send(identified(session, "again", "before the failover"));
    expectCode(ActiveMQExceptionType.DUPLICATE_ID_REJECTED, session::commit);
    session.rollback();
    producer.send(session.createTextMessage("goes on"));
    session.commit();
    expect(List.of("goes on"), drain(consumer));
    session.commit();
    ok("failover");
  }
}
