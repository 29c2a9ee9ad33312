package understudy.interop;

import static understudy.interop.Checks.WAIT_MS;
import static understudy.interop.Checks.check;
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
import jakarta.jms.InvalidClientIDException;
import jakarta.jms.Message;
import jakarta.jms.MessageConsumer;
import jakarta.jms.MessageProducer;
import jakarta.jms.Queue;
import jakarta.jms.Session;
import jakarta.jms.TemporaryQueue;
import jakarta.jms.Topic;
import jakarta.jms.TransactionRolledBackException;
import org.apache.activemq.artemis.api.core.ActiveMQExceptionType;
import org.apache.activemq.artemis.api.core.QueueConfiguration;
import org.apache.activemq.artemis.api.core.RoutingType;
import org.apache.activemq.artemis.api.core.SimpleString;
import org.apache.activemq.artemis.api.core.client.ActiveMQClient;
import org.apache.activemq.artemis.api.core.client.ClientConsumer;
import org.apache.activemq.artemis.api.core.client.ClientMessage;
import org.apache.activemq.artemis.api.core.client.ClientProducer;
import org.apache.activemq.artemis.api.core.client.ClientSession;
import org.apache.activemq.artemis.api.core.client.ClientSessionFactory;
import org.apache.activemq.artemis.api.core.client.ServerLocator;
import org.apache.activemq.artemis.api.jms.ActiveMQJMSConstants;
import org.apache.activemq.artemis.jms.client.ActiveMQConnectionFactory;
import org.apache.activemq.artemis.jms.client.ActiveMQSession;

/**
 * Sessions and what belongs to them: identities, subscriptions, acknowledgement modes, groups, schedules, queries and
 * refusals, with the stock core and JMS clients. Arguments: url [failover]. Prints "ok NAME" for each part.
 */
public final class Sessions {
  private Sessions() {}

  public static void main(String[] arguments) throws Exception {
    try (ActiveMQConnectionFactory factory = new ActiveMQConnectionFactory(arguments[0])) {
      if (arguments.length > 1) {
        failover(factory);
      } else {
        clientIds(factory);
        sharedSubscriptions(factory);
        acknowledgementModes(factory);
        recover(factory);
        groups(factory);
        schedules(factory);
        temporaryQueues(factory);
        try (ServerLocator locator = ActiveMQClient.createServerLocator(arguments[0]);
            ClientSessionFactory sessions = locator.createSessionFactory()) {
          metadata(sessions);
          fullyQualifiedNames(sessions);
          autoCommits(sessions);
          queries(sessions);
          refusals(sessions);
          deletion(sessions);
        }
      }
    }
    System.out.println("done");
  }

  private static void clientIds(ActiveMQConnectionFactory factory) throws Exception {
    Connection first = factory.createConnection();
    first.setClientID("only one");
    try (Connection second = factory.createConnection()) {
      expectThrows(InvalidClientIDException.class, () -> second.setClientID("only one"));
    }
    first.close();
    try (Connection third = factory.createConnection()) {
      third.setClientID("only one");
    }
    ok("client ids");
  }

  private static void sharedSubscriptions(ActiveMQConnectionFactory factory) throws Exception {
    try (Connection connection = factory.createConnection()) {
      connection.start();
      Session one = connection.createSession(false, Session.AUTO_ACKNOWLEDGE);
      Session two = connection.createSession(false, Session.AUTO_ACKNOWLEDGE);
      Topic topic = one.createTopic("interop.shared");
      for (boolean durable : new boolean[] {true, false}) {
        MessageConsumer left = durable ? one.createSharedDurableConsumer(topic, "d") : one.createSharedConsumer(topic, "n");
        MessageConsumer right = durable ? two.createSharedDurableConsumer(topic, "d") : two.createSharedConsumer(topic, "n");
        MessageProducer producer = one.createProducer(topic);
        send(one, producer, "s", 10);
        int lefts = drain(left).size();
        int rights = drain(right).size();
        expect(10, lefts + rights);
        check(lefts > 0 && rights > 0, "both take part: " + lefts + " and " + rights);
        left.close();
        right.close();
        send(one, producer, "later", 3);
        try (MessageConsumer again = durable ? one.createSharedDurableConsumer(topic, "d") : one.createSharedConsumer(topic, "n")) {
          expect(durable ? 3 : 0, drain(again).size());
        }
        producer.close();
      }
      one.unsubscribe("d");
    }
    ok("shared subscriptions");
  }

  private static void acknowledgementModes(ActiveMQConnectionFactory factory) throws Exception {
    int[] modes = {
      Session.AUTO_ACKNOWLEDGE, Session.DUPS_OK_ACKNOWLEDGE, Session.CLIENT_ACKNOWLEDGE,
      ActiveMQJMSConstants.INDIVIDUAL_ACKNOWLEDGE, ActiveMQJMSConstants.PRE_ACKNOWLEDGE
    };
    for (int mode : modes) {
      try (Connection connection = factory.createConnection()) {
        connection.start();
        Session session = connection.createSession(false, mode);
        Queue queue = session.createQueue("interop.acknowledge." + mode);
        send(session, session.createProducer(queue), "m", 5);
        MessageConsumer consumer = session.createConsumer(queue);
        Message[] got = new Message[5];
        for (int i = 0; i < 5; i++) {
          got[i] = consumer.receive(WAIT_MS);
          expect("m" + i, text(got[i]));
        }
        got[3].acknowledge();
        session.close();
        Session rest = connection.createSession(false, Session.AUTO_ACKNOWLEDGE);
        MessageConsumer others = rest.createConsumer(queue);
        if (mode == ActiveMQJMSConstants.INDIVIDUAL_ACKNOWLEDGE) {
          // only that one is done; the rest comes again in order
          receive(others, "m", 0, 3);
          receive(others, "m", 4, 5);
        }
        expect(null, others.receiveNoWait());
      }
    }
    ok("acknowledgement modes");
  }

  private static void recover(ActiveMQConnectionFactory factory) throws Exception {
    try (Connection connection = factory.createConnection()) {
      connection.start();
      Session session = connection.createSession(false, Session.CLIENT_ACKNOWLEDGE);
      Queue queue = session.createQueue("interop.recover");
      send(session, session.createProducer(queue), "r", 3);
      MessageConsumer consumer = session.createConsumer(queue);
      expect("r0", text(consumer.receive(WAIT_MS)));
      session.recover();
      Message first = consumer.receive(WAIT_MS);
      expect("r0", text(first));
      expect(true, first.getJMSRedelivered());
      expect(2, first.getIntProperty("JMSXDeliveryCount"));
      // the client had acknowledged r0 in its transaction, so r1 is the first outstanding one and keeps its count
      Message second = consumer.receive(WAIT_MS);
      expect("r1", text(second));
      expect(true, second.getJMSRedelivered());
      Message third = consumer.receive(WAIT_MS);
      expect("r2", text(third));
      expect(false, third.getJMSRedelivered());
      third.acknowledge();
      expect(null, consumer.receiveNoWait());
    }
    ok("recover");
  }

  private static void groups(ActiveMQConnectionFactory factory) throws Exception {
    try (Connection connection = factory.createConnection()) {
      connection.start();
      Session sending = connection.createSession(false, Session.AUTO_ACKNOWLEDGE);
      Queue queue = sending.createQueue("interop.groups");
      MessageProducer producer = sending.createProducer(queue);
      Session one = connection.createSession(false, Session.AUTO_ACKNOWLEDGE);
      Session two = connection.createSession(false, Session.AUTO_ACKNOWLEDGE);
      MessageConsumer left = one.createConsumer(queue);
      MessageConsumer right = two.createConsumer(queue);
      for (int i = 0; i < 10; i++) {
        Message message = sending.createTextMessage("g" + i);
        message.setStringProperty("JMSXGroupID", "together");
        producer.send(message);
      }
      int lefts = drain(left).size();
      int rights = drain(right).size();
      check(lefts == 10 && rights == 0 || lefts == 0 && rights == 10, "a group has one consumer: " + lefts + ", " + rights);
      // -1 closes the group; its next message may go to anybody, and the owner's end frees it in any case
      Message last = sending.createTextMessage("last");
      last.setStringProperty("JMSXGroupID", "together");
      last.setIntProperty("JMSXGroupSeq", -1);
      producer.send(last);
      (lefts == 10 ? left : right).receive(WAIT_MS);
      (lefts == 10 ? left : right).close();
      Message again = sending.createTextMessage("again");
      again.setStringProperty("JMSXGroupID", "together");
      producer.send(again);
      expect("again", text((lefts == 10 ? right : left).receive(WAIT_MS)));
    }
    ok("groups");
  }

  private static void schedules(ActiveMQConnectionFactory factory) throws Exception {
    try (Connection connection = factory.createConnection()) {
      connection.start();
      Session session = connection.createSession(false, Session.AUTO_ACKNOWLEDGE);
      Queue queue = session.createQueue("interop.scheduled");
      MessageProducer producer = session.createProducer(queue);
      producer.setDeliveryDelay(3_000);
      long began = System.nanoTime();
      producer.send(session.createTextMessage("later"));
      producer.setDeliveryDelay(0);
      producer.send(session.createTextMessage("now"));
      MessageConsumer consumer = session.createConsumer(queue);
      expect("now", text(consumer.receive(WAIT_MS)));
      expect(null, consumer.receiveNoWait());
      expect("later", text(consumer.receive(WAIT_MS)));
      check(System.nanoTime() - began >= 3_000_000_000L, "not before its time");
    }
    ok("schedules");
  }

  private static void temporaryQueues(ActiveMQConnectionFactory factory) throws Exception {
    Connection owner = factory.createConnection();
    owner.start();
    Session session = owner.createSession(false, Session.AUTO_ACKNOWLEDGE);
    TemporaryQueue queue = session.createTemporaryQueue();
    try (Connection other = factory.createConnection()) {
      other.start();
      Session sending = other.createSession(false, Session.AUTO_ACKNOWLEDGE);
      sending.createProducer(queue).send(sending.createTextMessage("hello"));
      expect("hello", text(session.createConsumer(queue).receive(WAIT_MS)));
      session.close();
      Session still = owner.createSession(false, Session.AUTO_ACKNOWLEDGE);
      still.createProducer(queue).send(still.createTextMessage("it lives as long as the connection"));
      owner.close();
      expectThrows(Exception.class, () -> sending.createConsumer(queue));
    }
    ok("temporary queues");
  }

  private static void metadata(ClientSessionFactory sessions) throws Exception {
    try (ClientSession one = sessions.createSession();
        ClientSession two = sessions.createSession()) {
      one.addMetaData("plain", "x");
      two.addMetaData("plain", "x");
      one.addUniqueMetaData("unique", "y");
      expectCode(ActiveMQExceptionType.DUPLICATE_METADATA, () -> two.addUniqueMetaData("unique", "y"));
      two.addUniqueMetaData("unique", "z");
    }
    ok("metadata");
  }

  private static void fullyQualifiedNames(ClientSessionFactory sessions) throws Exception {
    try (ClientSession session = sessions.createSession()) {
      for (String name : new String[] {"one", "two"}) {
        session.createQueue(QueueConfiguration.of("fq-" + name).setAddress("interop.fq").setRoutingType(RoutingType.MULTICAST));
      }
      session.start();
      ClientProducer both = session.createProducer("interop.fq");
      ClientProducer second = session.createProducer("interop.fq::fq-two");
      both.send(named(session, "both"));
      second.send(named(session, "second"));
      expect(1L, session.queueQuery(SimpleString.of("interop.fq::fq-one")).getMessageCount());
      expect(2L, session.queueQuery(SimpleString.of("fq-two")).getMessageCount());
      expect(false, session.queueQuery(SimpleString.of("elsewhere::fq-two")).isExists());
      ClientConsumer consumer = session.createConsumer("interop.fq::fq-two");
      expect("both", consumer.receive(WAIT_MS).getStringProperty("name"));
      expect("second", consumer.receive(WAIT_MS).acknowledge().getStringProperty("name"));
      consumer.close();
      session.deleteQueue("interop.fq::fq-one");
      session.deleteQueue("fq-two");
    }
    ok("fully qualified names");
  }

  private static void autoCommits(ClientSessionFactory sessions) throws Exception {
    String name = "interop.commits";
    for (boolean sends : new boolean[] {true, false}) {
      for (boolean acks : new boolean[] {true, false}) {
        try (ClientSession session = sessions.createSession(sends, acks, 0);
            ClientSession looking = sessions.createSession()) {
          session.createQueue(QueueConfiguration.of(name).setRoutingType(RoutingType.ANYCAST));
          session.start();
          session.createProducer(name).send(named(session, "m"));
          expect(sends ? 1L : 0L, looking.queueQuery(SimpleString.of(name)).getMessageCount());
          session.commit();
          ClientConsumer consumer = session.createConsumer(name);
          consumer.receive(WAIT_MS).acknowledge();
          // a synchronous request behind the acknowledgement, so that it has arrived
          session.queueQuery(SimpleString.of(name));
          expect(acks ? 0L : 1L, looking.queueQuery(SimpleString.of(name)).getMessageCount());
          session.rollback();
          consumer.close();
          expect(acks ? 0L : 1L, looking.queueQuery(SimpleString.of(name)).getMessageCount());
          session.deleteQueue(name);
        }
      }
    }
    ok("auto-commits");
  }

  private static ClientMessage named(ClientSession session, String name) {
    ClientMessage message = session.createMessage(true);
    message.putStringProperty("name", name);
    return message;
  }

  private static void queries(ClientSessionFactory sessions) throws Exception {
    try (ClientSession session = sessions.createSession()) {
      expect(false, session.queueQuery(SimpleString.of("interop.nowhere")).isExists());
      expect(true, session.queueQuery(SimpleString.of("interop.nowhere")).isAutoCreateQueues());
      expect(false, session.addressQuery(SimpleString.of("interop.nowhere")).isExists());
      session.createQueue(
          QueueConfiguration.of("interop.query.q")
              .setAddress("interop.query")
              .setRoutingType(RoutingType.MULTICAST)
              .setFilterString("colour = 'red'")
              .setDurable(true)
              .setMaxConsumers(3)
              .setPurgeOnNoConsumers(true)
              .setExclusive(true));
      ClientSession.QueueQuery found = session.queueQuery(SimpleString.of("interop.query.q"));
      expect(true, found.isExists());
      expect("interop.query", found.getAddress().toString());
      expect("colour = 'red'", found.getFilterString().toString());
      expect(RoutingType.MULTICAST, found.getRoutingType());
      expect(3, found.getMaxConsumers());
      expect(true, found.isPurgeOnNoConsumers());
      expect(true, found.isExclusive());
      ClientSession.AddressQuery address = session.addressQuery(SimpleString.of("interop.query"));
      expect(true, address.isExists());
      expect("[interop.query.q]", address.getQueueNames().toString());
      expect(true, address.isSupportsMulticast());
      expect(false, address.isSupportsAnycast());
      session.deleteQueue("interop.query.q");
    }
    ok("queries");
  }

  private static void refusals(ClientSessionFactory sessions) throws Exception {
    try (ClientSession session = sessions.createSession()) {
      session.createQueue(QueueConfiguration.of("interop.refused").setRoutingType(RoutingType.ANYCAST).setMaxConsumers(1));
      expectCode(
          ActiveMQExceptionType.QUEUE_EXISTS,
          () -> session.createQueue(QueueConfiguration.of("interop.refused").setRoutingType(RoutingType.ANYCAST)));
      expectCode(ActiveMQExceptionType.QUEUE_DOES_NOT_EXIST, () -> session.createConsumer("interop.no.queue"));
      expectCode(ActiveMQExceptionType.QUEUE_DOES_NOT_EXIST, () -> session.deleteQueue("interop.no.queue"));
      expectCode(
          ActiveMQExceptionType.INVALID_FILTER_EXPRESSION, () -> session.createConsumer("interop.refused", "not a filter ="));
      ClientConsumer only = session.createConsumer("interop.refused");
      expectCode(ActiveMQExceptionType.MAX_CONSUMER_LIMIT_EXCEEDED, () -> session.createConsumer("interop.refused"));
      expectCode(ActiveMQExceptionType.ILLEGAL_STATE, () -> session.deleteQueue("interop.refused"));
      only.close();
      session.createSharedQueue(
          QueueConfiguration.of("interop.sub").setAddress("interop.subs").setRoutingType(RoutingType.MULTICAST).setDurable(true));
      expectCode(
          ActiveMQExceptionType.INVALID_TRANSIENT_QUEUE_USE,
          () -> session.createSharedQueue(
              QueueConfiguration.of("interop.sub")
                  .setAddress("interop.subs")
                  .setRoutingType(RoutingType.MULTICAST)
                  .setDurable(true)
                  .setFilterString("a = 1")));
      // no refusal: two clients that find an address missing both ask for it
      session.createAddress(SimpleString.of("interop.subs"), RoutingType.MULTICAST, false);
      session.deleteQueue("interop.sub");
      session.deleteQueue("interop.refused");
    }
    ok("refusals");
  }

  private static void deletion(ClientSessionFactory sessions) throws Exception {
    try (ClientSession reading = sessions.createSession()) {
      ClientSession owner = sessions.createSession();
      owner.createQueue(
          QueueConfiguration.of("interop.gone").setRoutingType(RoutingType.ANYCAST).setDurable(false).setTemporary(true));
      ClientConsumer consumer = reading.createConsumer("interop.gone");
      expect(1, reading.queueQuery(SimpleString.of("interop.gone")).getConsumerCount());
      consumer.close();
      owner.deleteQueue("interop.gone");
      owner.close();
      expect(false, reading.queueQuery(SimpleString.of("interop.gone")).isExists());
    }
    ok("deletion");
  }

  /** The active node dies between "ready" and the next line of input. */
  private static void failover(ActiveMQConnectionFactory factory) throws Exception {
    try (Connection connection = factory.createConnection()) {
      connection.setClientID("failing over");
      connection.start();
      Session session = connection.createSession(false, Session.CLIENT_ACKNOWLEDGE);
      Topic topic = session.createTopic("interop.failover.topic");
      MessageConsumer subscriber = session.createDurableSubscriber(topic, "sub");
      Session sharing = connection.createSession(false, Session.AUTO_ACKNOWLEDGE);
      MessageConsumer shared = sharing.createSharedConsumer(topic, "shared");
      TemporaryQueue replies = sharing.createTemporaryQueue();
      MessageConsumer answers = sharing.createConsumer(replies);
      send(session, session.createProducer(topic), "t", 4);
      expect("t0", text(subscriber.receive(WAIT_MS)));
      subscriber.receive(WAIT_MS).acknowledge();
      // that waits for no answer; this does, and the answer comes behind what is safe
      ((ActiveMQSession) session).getCoreSession().commit();
      expect("t2", text(subscriber.receive(WAIT_MS)));
      receive(shared, "t", 0, 4);
      failOver(connection);
      // what was acknowledged is done, what was not comes again
      // (as new ones: how often something was delivered is written down when it fails, not before)
      expect("t2", text(subscriber.receive(WAIT_MS)));
      expect("t3", text(subscriber.receive(WAIT_MS)));
      // the client took its name, its temporary queue and its shared subscription along
      try (Connection other = factory.createConnection()) {
        expectThrows(InvalidClientIDException.class, () -> other.setClientID("failing over"));
        other.start();
        Session sending = other.createSession(false, Session.AUTO_ACKNOWLEDGE);
        sending.createProducer(replies).send(sending.createTextMessage("reply"));
        sending.createProducer(topic).send(sending.createTextMessage("after"));
      }
      expect("reply", text(answers.receive(WAIT_MS)));
      expect("after", text(shared.receive(WAIT_MS)));
      Message after = subscriber.receive(WAIT_MS);
      expect("after", text(after));
      // what the session had not acknowledged when the node died has to be taken again as a whole, and then counts
      expectThrows(TransactionRolledBackException.class, after::acknowledge);
      receive(subscriber, "t", 2, 4);
      Message last = subscriber.receive(WAIT_MS);
      expect("after", text(last));
      last.acknowledge();
    }
    ok("failover");
  }
}
