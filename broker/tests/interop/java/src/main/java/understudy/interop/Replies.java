package understudy.interop;

import jakarta.jms.Connection;
import jakarta.jms.Destination;
import jakarta.jms.Message;
import jakarta.jms.MessageConsumer;
import jakarta.jms.MessageProducer;
import jakarta.jms.Session;
import jakarta.jms.TextMessage;
import org.apache.activemq.artemis.jms.client.ActiveMQConnectionFactory;

/**
 * Request and reply with a client of another kind. Arguments: url, queue, and "request" or "respond".
 *
 * <p>request: asks four times, with each kind of destination for the answer, and prints "answer KIND TEXT". respond: answers
 * the requests that come, until one says "end".
 */
public final class Replies {
  private static final long WAIT_MS = 60_000;

  private Replies() {}

  public static void main(String[] arguments) throws Exception {
    try (ActiveMQConnectionFactory factory = new ActiveMQConnectionFactory(arguments[0]);
        Connection connection = factory.createConnection();
        Session session = connection.createSession(false, Session.AUTO_ACKNOWLEDGE)) {
      connection.start();
      if (arguments[2].equals("request")) {
        request(session, arguments[1], "temp-queue", session.createTemporaryQueue());
        request(session, arguments[1], "queue", session.createQueue(arguments[1] + ".answers"));
        request(session, arguments[1], "temp-topic", session.createTemporaryTopic());
        request(session, arguments[1], "topic", session.createTopic(arguments[1] + ".news"));
      } else {
        respond(session, arguments[1]);
      }
    }
  }

  private static void request(Session session, String queue, String kind, Destination answers) throws Exception {
    try (MessageConsumer consumer = session.createConsumer(answers);
        MessageProducer producer = session.createProducer(session.createQueue(queue))) {
      TextMessage request = session.createTextMessage(kind);
      request.setJMSReplyTo(answers);
      producer.send(request);
      TextMessage answer = (TextMessage) consumer.receive(WAIT_MS);
      if (answer == null) {
        throw new AssertionError("no answer to " + kind);
      }
      if (!request.getJMSMessageID().equals(answer.getJMSCorrelationID())) {
        throw new AssertionError("correlation id " + answer.getJMSCorrelationID());
      }
      System.out.println("answer " + kind + " " + answer.getText());
    }
  }

  private static void respond(Session session, String queue) throws Exception {
    try (MessageConsumer consumer = session.createConsumer(session.createQueue(queue));
        MessageProducer producer = session.createProducer(null)) {
      System.out.println("ready");
      String text = "";
      while (!text.equals("end")) {
        Message request = consumer.receive(WAIT_MS);
        if (request == null) {
          throw new AssertionError("no request");
        }
        text = ((TextMessage) request).getText();
        TextMessage answer = session.createTextMessage("java says " + text);
        answer.setJMSCorrelationID(request.getJMSCorrelationID());
        producer.send(request.getJMSReplyTo(), answer);
      }
    }
  }
}
