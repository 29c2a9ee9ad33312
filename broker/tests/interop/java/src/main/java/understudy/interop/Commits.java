package understudy.interop;

import jakarta.jms.Connection;
import jakarta.jms.JMSException;
import jakarta.jms.Message;
import jakarta.jms.MessageProducer;
import jakarta.jms.Queue;
import jakarta.jms.Session;
import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.util.ArrayList;
import java.util.List;
import java.util.function.Function;
import java.util.stream.Collectors;
import org.apache.activemq.artemis.api.core.ActiveMQException;
import org.apache.activemq.artemis.api.core.ActiveMQExceptionType;
import org.apache.activemq.artemis.jms.client.ActiveMQConnectionFactory;

/**
 * Commits in a loop on several connections and reports how each commit ended.
 *
 * <p>Arguments: url, queue, number of connections, callTimeout of the url in milliseconds. Each connection has one
 * transacted session with a consumer of an empty queue; a transaction is one message with the properties "worker" and
 * "number". The number is increased after every commit, whatever its outcome. Each line of the standard input is answered
 * with one line of JSON about the commits so far; "other" counts exceptions that do not say whether the transaction was
 * rolled back or its outcome is unknown. At the end of the input the commits that are under way are finished;
 * then this line and another one with the numbers of the commits that did not succeed are printed.
 */
public final class Commits {
  private static final long PAUSE_MS = 10;
  /** A commit that has lasted this long counts as outstanding. */
  private static final long OUTSTANDING_MS = 100;

  private Commits() {}

  private static final class Worker extends Thread {
    private final String url;
    private final String queue;
    private final int index;
    private final long callTimeoutMs;
    private final List<Integer> rolledBack = new ArrayList<>();
    private final List<Integer> unknown = new ArrayList<>();
    private int number;
    private int succeeded;
    private int timedOut;
    private int other;
    private long longestMs;
    private long begunNanos;
    private boolean failed;
    private volatile boolean stopping;

    Worker(String url, String queue, int index, long callTimeoutMs) {
      this.url = url;
      this.queue = queue;
      this.index = index;
      this.callTimeoutMs = callTimeoutMs;
    }

    @Override
    public void run() {
      try (ActiveMQConnectionFactory factory = new ActiveMQConnectionFactory(url);
          Connection connection = factory.createConnection()) {
        connection.start();
        Session session = connection.createSession(true, Session.SESSION_TRANSACTED);
        session.createConsumer(session.createQueue(queue + ".empty." + index));
        Queue target = session.createQueue(queue);
        MessageProducer producer = session.createProducer(target);
        while (!stopping) {
          Message message = session.createMessage();
          message.setIntProperty("worker", index);
          message.setIntProperty("number", number);
          producer.send(message);
          begin();
          try {
            session.commit();
            end(null);
          } catch (JMSException error) {
            end(error);
          }
          Thread.sleep(PAUSE_MS);
        }
      } catch (Exception error) {
        error.printStackTrace();
        synchronized (this) {
          failed = true;
        }
      }
    }

    private synchronized void begin() {
      begunNanos = System.nanoTime();
    }

    private synchronized void end(JMSException error) {
      long tookMs = inCommitMs();
      begunNanos = 0;
      longestMs = Math.max(longestMs, tookMs);
      if (tookMs >= callTimeoutMs) {
        timedOut++;
      }
      if (error == null) {
        succeeded++;
      } else if (typeOf(error) == ActiveMQExceptionType.TRANSACTION_ROLLED_BACK) {
        rolledBack.add(number);
      } else {
        unknown.add(number);
        if (typeOf(error) != ActiveMQExceptionType.TRANSACTION_OUTCOME_UNKNOWN) {
          other++;
          error.printStackTrace();
        }
      }
      number++;
    }

    private static ActiveMQExceptionType typeOf(JMSException error) {
      return error.getCause() instanceof ActiveMQException cause ? cause.getType() : null;
    }

    private long inCommitMs() {
      return begunNanos == 0 ? 0 : (System.nanoTime() - begunNanos) / 1_000_000;
    }

    synchronized String report() {
      return "{\"outstanding\": " + (inCommitMs() >= OUTSTANDING_MS)
          + ", \"commits\": " + number
          + ", \"succeeded\": " + succeeded
          + ", \"timed_out\": " + timedOut
          + ", \"other\": " + other
          + ", \"longest_ms\": " + longestMs
          + ", \"failed\": " + failed + "}";
    }

    synchronized String exceptions() {
      return "{\"rolled_back\": " + rolledBack + ", \"unknown\": " + unknown + "}";
    }
  }

  public static void main(String[] arguments) throws Exception {
    List<Worker> workers = new ArrayList<>();
    for (int i = 0; i < Integer.parseInt(arguments[2]); i++) {
      workers.add(new Worker(arguments[0], arguments[1], i, Long.parseLong(arguments[3])));
    }
    workers.forEach(Thread::start);
    BufferedReader requests = new BufferedReader(new InputStreamReader(System.in));
    while (requests.readLine() != null) {
      System.out.println(array(workers, Worker::report));
    }
    for (Worker worker : workers) {
      worker.stopping = true;
    }
    for (Worker worker : workers) {
      worker.join();
    }
    System.out.println(array(workers, Worker::report));
    System.out.println(array(workers, Worker::exceptions));
  }

  private static String array(List<Worker> workers, Function<Worker, String> part) {
    return workers.stream().map(part).collect(Collectors.joining(", ", "[", "]"));
  }
}
