package understudy.interop;

import jakarta.jms.Connection;
import jakarta.jms.JMSException;
import jakarta.jms.Message;
import jakarta.jms.MessageProducer;
import jakarta.jms.Session;
import java.util.HashSet;
import java.util.Set;
import jakarta.jms.MessageConsumer;
import org.apache.activemq.artemis.api.core.ActiveMQException;
import org.apache.activemq.artemis.jms.client.ActiveMQConnectionFactory;

/**
 * Sends durable messages with duplicate ids one after the other; a send without an answer is repeated with its id.
 *
 * <p>Arguments: url, queue, count. Prints "sent N" after every confirmed send and "unblocked N CODE MILLISECONDS" for a send that a failover
 * released; then receives everything and prints "done N distinct, M released".
 */
public final class BlockedSend {
  private static final long QUIET_MS = 5_000;

  private BlockedSend() {}

  public static void main(String[] arguments) throws Exception {
    int count = Integer.parseInt(arguments[2]);
    int released = 0;
    try (ActiveMQConnectionFactory factory = new ActiveMQConnectionFactory(arguments[0]);
        Connection connection = factory.createConnection()) {
      connection.start();
      Session session = connection.createSession(false, Session.AUTO_ACKNOWLEDGE);
      MessageProducer producer = session.createProducer(session.createQueue(arguments[1]));
      int number = 0;
      while (number < count) {
        Message message = session.createTextMessage("x".repeat(100));
        message.setIntProperty("number", number);
        message.setStringProperty("_AMQ_DUPL_ID", "id-" + number);
        long begun = System.nanoTime();
        try {
          producer.send(message);
          System.out.println("sent " + number);
          number++;
        } catch (JMSException unknown) {
          String code = unknown.getCause() instanceof ActiveMQException cause ? cause.getType().toString() : "none";
          System.out.println("unblocked " + number + " " + code + " " + (System.nanoTime() - begun) / 1_000_000);
          released++;
        }
      }
      Set<Integer> distinct = new HashSet<>();
      int twice = 0;
      try (MessageConsumer consumer = session.createConsumer(session.createQueue(arguments[1]))) {
        Message message;
        while ((message = consumer.receive(QUIET_MS)) != null) {
          if (!distinct.add(message.getIntProperty("number"))) {
            twice++;
          }
        }
      }
      if (twice > 0) {
        throw new AssertionError(twice + " messages are there twice");
      }
      System.out.println("done " + distinct.size() + " distinct, " + released + " released");
    }
  }
}
