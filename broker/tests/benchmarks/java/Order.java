/** Checks that the messages of each of some producers arrive once and in order. The producer is in the upper bits. */
final class Order {
  private static final int SHIFT = 40;
  private final long[] next;
  private volatile long received;

  Order(int producers) {
    next = new long[producers];
  }

  static long number(int producer, long sequence) {
    return ((long) producer << SHIFT) | sequence;
  }

  void take(long number) {
    int producer = (int) (number >> SHIFT);
    long sequence = number & ((1L << SHIFT) - 1);
    if (sequence != next[producer]) {
      throw new IllegalStateException(
          "message " + sequence + " of producer " + producer + " where " + next[producer] + " is the next one");
    }
    next[producer]++;
    received++;
  }

  long received() {
    return received;
  }
}
