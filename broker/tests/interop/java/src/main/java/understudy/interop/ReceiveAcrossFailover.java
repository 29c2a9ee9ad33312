package understudy.interop;

import jakarta.jms.Connection;
import jakarta.jms.JMSException;
import jakarta.jms.Message;
import jakarta.jms.MessageConsumer;
import jakarta.jms.Session;
import jakarta.jms.TransactionRolledBackException;
import java.util.HashSet;
import java.util.Set;
import org.apache.activemq.artemis.jms.client.ActiveMQConnectionFactory;

/**
 * Receives {@code count} messages with different ledger_number properties in transactions of ten, whatever happens to the broker meanwhile.
 *
 * <p>Arguments: url, queue, count. Prints "got N" after every committed batch and "done N distinct, M seen again" at
 * the end; a message counts when the commit of its batch has succeeded.
 */
public final class ReceiveAcrossFailover {
  private static final int BATCH = 10;
  private static final long QUIET_MS = 60_000;

  private ReceiveAcrossFailover() {}

  public static void main(String[] arguments) throws Exception {
    String url = arguments[0];
    String queue = arguments[1];
    int count = Integer.parseInt(arguments[2]);
    Set<Long> committed = new HashSet<>();
    Set<Long> undecided = new HashSet<>();
    int again = 0;
    try (ActiveMQConnectionFactory factory = new ActiveMQConnectionFactory(url);
        Connection connection = factory.createConnection()) {
      connection.start();
      Session session = connection.createSession(true, Session.SESSION_TRANSACTED);
      MessageConsumer consumer = session.createConsumer(session.createQueue(queue));
      Set<Long> batch = new HashSet<>();
      while (committed.size() < count) {
        Message message = null;
        try {
          message = consumer.receive(committed.size() + batch.size() < count ? QUIET_MS : 1);
          if (message != null) {
            batch.add(message.getLongProperty("ledger_number"));
          }
          if (batch.size() >= BATCH || committed.size() + batch.size() >= count) {
            session.commit();
            for (Long number : batch) {
              if (!committed.add(number) && !undecided.remove(number)) {
                again++;
              }
            }
            batch.clear();
            System.out.println("got " + committed.size());
          } else if (message == null) {
            throw new IllegalStateException("nothing for " + QUIET_MS + " ms at " + committed.size());
          }
        } catch (TransactionRolledBackException failedOver) {
          System.out.println("rolled back " + batch.size());
          batch.clear();
        } catch (JMSException unknown) {
          // the outcome of the commit was cut off: it was done and nothing comes again, or all of it does, once
          System.out.println("unknown outcome of " + batch.size() + ": " + unknown.getMessage());
          committed.addAll(batch);
          undecided.addAll(batch);
          batch.clear();
        }
      }
      session.close();
    }
    System.out.println("done " + committed.size() + " distinct, " + again + " seen again");
  }
}
