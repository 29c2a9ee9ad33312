package understudy.interop;

import jakarta.jms.Connection;
import jakarta.jms.Message;
import jakarta.jms.MessageConsumer;
import jakarta.jms.MessageProducer;
import jakarta.jms.Queue;
import jakarta.jms.QueueRequestor;
import jakarta.jms.QueueSession;
import jakarta.jms.Session;
import java.util.Arrays;
import java.util.Map;
import org.apache.activemq.artemis.api.core.QueueConfiguration;
import org.apache.activemq.artemis.api.core.RoutingType;
import org.apache.activemq.artemis.api.core.client.ActiveMQClient;
import org.apache.activemq.artemis.api.core.client.ClientMessage;
import org.apache.activemq.artemis.api.core.client.ClientRequestor;
import org.apache.activemq.artemis.api.core.client.ClientSession;
import org.apache.activemq.artemis.api.core.client.ClientSessionFactory;
import org.apache.activemq.artemis.api.core.client.ServerLocator;
import org.apache.activemq.artemis.api.core.management.ManagementHelper;
import org.apache.activemq.artemis.api.core.management.SimpleManagement;
import org.apache.activemq.artemis.api.jms.management.JMSManagementHelper;
import org.apache.activemq.artemis.jms.client.ActiveMQConnectionFactory;

/**
 * Management by the helpers of the stock client: JMS with a QueueRequestor, core with a ClientRequestor, and
 * SimpleManagement. Argument: url. Prints "ok NAME" for each and fails loudly.
 */
public final class Managing {
  private static final long WAIT_MS = 60_000;

  private Managing() {}

  public static void main(String[] arguments) throws Exception {
    jms(arguments[0]);
    core(arguments[0]);
    simple(arguments[0]);
    System.out.println("done");
  }

  private static void jms(String url) throws Exception {
    try (ActiveMQConnectionFactory factory = new ActiveMQConnectionFactory(url);
        Connection connection = factory.createConnection("u", "p");
        Session session = connection.createSession(false, Session.AUTO_ACKNOWLEDGE)) {
      connection.start();
      Queue queue = session.createQueue("interop.managed");
      MessageProducer producer = session.createProducer(queue);
      for (int number = 0; number < 10; number++) {
        Message message = session.createTextMessage("number " + number);
        message.setIntProperty("n", number);
        producer.send(message);
      }
      QueueRequestor requestor = new QueueRequestor((QueueSession) session, session.createQueue("activemq.management"));

      Message request = session.createMessage();
      JMSManagementHelper.putAttribute(request, "queue.interop.managed", "messageCount");
      expect(10, JMSManagementHelper.getResult(answered(requestor, request), Integer.class));
      System.out.println("ok jms attribute");

      request = session.createMessage();
      JMSManagementHelper.putOperationInvocation(request, "queue.interop.managed", "listMessages", "n < 3");
      Object[] listed = (Object[]) JMSManagementHelper.getResult(answered(requestor, request));
      expect(3, listed.length);
      Map<?, ?> first = (Map<?, ?>) listed[0];
      expect("0", String.valueOf(first.get("n")));
      System.out.println("ok jms list");

      request = session.createMessage();
      JMSManagementHelper.putOperationInvocation(
          request, "queue.interop.managed", "removeMessage", Long.parseLong(String.valueOf(first.get("messageID"))));
      expect(true, JMSManagementHelper.getResult(answered(requestor, request)));
      request = session.createMessage();
      JMSManagementHelper.putOperationInvocation(request, "queue.interop.managed", "removeMessages", "n > 5");
      expect(4, JMSManagementHelper.getResult(answered(requestor, request), Integer.class));
      System.out.println("ok jms remove");

      request = session.createMessage();
      JMSManagementHelper.putOperationInvocation(request, "queue.interop.managed", "frobnicate", 1);
      Message refused = requestor.request(request);
      expect(false, JMSManagementHelper.hasOperationSucceeded(refused));
      expect("AMQ229069: no operation 'frobnicate' on queue", JMSManagementHelper.getResult(refused));
      System.out.println("ok jms refusal");

      request = session.createMessage();
      JMSManagementHelper.putOperationInvocation(request, "queue.interop.managed", "pause");
      answered(requestor, request);
      MessageConsumer consumer = session.createConsumer(queue);
      expect(null, consumer.receive(500));
      request = session.createMessage();
      JMSManagementHelper.putOperationInvocation(request, "queue.interop.managed", "resume");
      answered(requestor, request);
      for (int number = 1; number <= 5; number++) {
        expect(number, consumer.receive(WAIT_MS).getIntProperty("n"));
      }
      expect(null, consumer.receiveNoWait());
      System.out.println("ok jms pause");
    }
  }

  private static Message answered(QueueRequestor requestor, Message request) throws Exception {
    Message reply = requestor.request(request);
    if (!JMSManagementHelper.hasOperationSucceeded(reply)) {
      throw new AssertionError(JMSManagementHelper.getResult(reply));
    }
    return reply;
  }

  private static void core(String url) throws Exception {
    try (ServerLocator locator = ActiveMQClient.createServerLocator(url);
        ClientSessionFactory factory = locator.createSessionFactory();
        ClientSession session = factory.createSession("u", "p", false, true, true, false, 1)) {
      session.start();
      ClientRequestor requestor = new ClientRequestor(session, "activemq.management");
      String asked =
          QueueConfiguration.of("interop.json").setAddress("interop.json").setRoutingType(RoutingType.ANYCAST)
              .setDurable(true).setMaxConsumers(3).setFilterString("n > 1").toJSON();
      QueueConfiguration made = QueueConfiguration.fromJSON((String) invoke(session, requestor, "createQueue", asked));
      expect(3, made.getMaxConsumers());
      expect("n > 1", made.getFilterString().toString());
      expect(true, session.queueQuery(made.getName()).isExists());
      String changed = QueueConfiguration.of("interop.json").setMaxConsumers(5).toJSON();
      expect(5, QueueConfiguration.fromJSON((String) invoke(session, requestor, "updateQueue", changed)).getMaxConsumers());
      System.out.println("ok core queue configuration");

      Object[] names = (Object[]) invoke(session, requestor, "getQueueNames", "ANYCAST");
      expect(true, Arrays.asList(names).contains("interop.json"));
      expect(true, ((String) invoke(session, requestor, "listConnectionsAsJSON")).contains("\"sessionCount\":"));
      invoke(session, requestor, "destroyQueue", "interop.json", true, true);
      expect(false, session.queueQuery(made.getName()).isExists());
      requestor.close();
      System.out.println("ok core operations");
    }
  }

  private static Object invoke(ClientSession session, ClientRequestor requestor, String name, Object... parameters)
      throws Exception {
    ClientMessage request = session.createMessage(false);
    ManagementHelper.putOperationInvocation(request, "broker", name, parameters);
    ClientMessage reply = requestor.request(request, WAIT_MS);
    if (!ManagementHelper.hasOperationSucceeded(reply)) {
      throw new AssertionError(name + ": " + ManagementHelper.getResult(reply));
    }
    return ManagementHelper.getResult(reply);
  }

  private static void simple(String url) throws Exception {
    try (SimpleManagement management = new SimpleManagement(url, "u", "p").open()) {
      expect(36, management.getNodeID().length());
      expect(true, management.listNetworkTopology().size() >= 1);
      expect(0L, management.getMessageCountOnQueue("interop.managed"));
      expect(5L, management.simpleManagementLong("queue.interop.managed", "getMessagesAcknowledged"));
      expect(true, management.getQueueCounts(100).containsKey("interop.managed"));
      expect(true, Math.abs(management.getCurrentTimeMillis() - System.currentTimeMillis()) < 60_000);
      System.out.println("ok simple management");
    }
  }

  private static void expect(Object expected, Object actual) {
    if (expected == null ? actual != null : !expected.equals(actual)) {
      throw new AssertionError("expected " + expected + ", got " + actual);
    }
  }
}
