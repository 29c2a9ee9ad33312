import java.io.BufferedReader;
import java.io.InputStreamReader;

/**
 * The load of {@code python -m benchmarks jms}: one process with the stock JMS client of Artemis for all brokers, so
 * that all are measured with the same compiled code.
 *
 * <p>Reads a run from each line of its input: case, url, address, warm-up and window in milliseconds. Answers "begin"
 * when the time that is measured begins, "end COUNT NANOSECONDS" when it ends, and then, when every message was
 * checked, "done" or "failed WHY".
 */
public final class JmsLoad {
  private JmsLoad() {}

  public static void main(String[] arguments) throws Exception {
    BufferedReader input = new BufferedReader(new InputStreamReader(System.in));
    for (String line = input.readLine(); line != null; line = input.readLine()) {
      String[] words = line.split(" ");
      Window window = new Window(Long.parseLong(words[3]), Long.parseLong(words[4]));
      String outcome = "done";
      try (Clients clients = new Clients(words[1], words[2], window)) {
        Cases.run(words[0], clients);
        window.check();
      } catch (Exception error) {
        Throwable cause = window.failure() == null ? error : window.failure();
        outcome = failed(cause);
      }
      say(window.failure() == null ? outcome : failed(window.failure()));
    }
  }

  private static String failed(Throwable cause) {
    return "failed " + String.valueOf(cause).replace('\n', ' ');
  }

  /** Write a line that the benchmark waits for. */
  static void say(String line) {
    System.out.println(line);
    System.out.flush();
  }
}
