import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicInteger;
import java.util.concurrent.atomic.LongAdder;

/** The time that is measured, the threads that work in it, and what they count. */
final class Window {
  /** A case that makes no progress for so long has failed. */
  static final long QUIET_MS = 30_000;

  private final long warmUpMs;
  private final long windowMs;
  private final LongAdder counted = new LongAdder();
  private final List<Thread> threads = new ArrayList<>();
  private final AtomicInteger producing = new AtomicInteger();
  private volatile boolean stopped;
  private volatile Throwable failure;

  Window(long warmUpMs, long windowMs) {
    this.warmUpMs = warmUpMs;
    this.windowMs = windowMs;
  }

  /** A step of a thread. */
  interface Step {
    void run() throws Exception;
  }

  /** A step of a thread that says whether there is more to do. */
  interface More {
    boolean run() throws Exception;
  }

  void count(long messages) {
    counted.add(messages);
  }

  boolean stopped() {
    return stopped;
  }

  Throwable failure() {
    return failure;
  }

  /** Remember the first failure, which ends the run. */
  void fail(Throwable error) {
    if (failure == null) {
      failure = error;
    }
    stopped = true;
  }

  /** Start a thread that does the work until it returns. */
  void start(Step work) {
    Thread thread =
        new Thread(
            () -> {
              try {
                work.run();
              } catch (Throwable error) {
                fail(error);
              }
            });
    thread.setDaemon(true);
    threads.add(thread);
    thread.start();
  }

  /** Start a thread that repeats a step until the window has ended. */
  void repeat(More step) {
    start(
        () -> {
          while (!stopped && step.run()) {}
        });
  }

  /** Start a thread that repeats a step that sends, until the window has ended. */
  void produce(More step) {
    producing.incrementAndGet();
    start(
        () -> {
          try {
            while (!stopped && step.run()) {}
          } finally {
            producing.decrementAndGet();
          }
        });
  }

  /** Whether a thread that sends has not ended yet. */
  boolean producing() {
    return producing.get() > 0;
  }

  /** Measure what the threads count in the window; they are told to stop at its end, or when one of them has ended. */
  void measure() throws Exception {
    pause(warmUpMs);
    long before = counted.sum();
    JmsLoad.say("begin");
    long began = System.nanoTime();
    pause(windowMs);
    long count = counted.sum() - before;
    JmsLoad.say("end " + count + " " + (System.nanoTime() - began));
    stopped = true;
    join();
  }

  /** Measure a step that has an amount of work; some time of it is known to be waiting and does not count. */
  void measureAll(Step work, long waitingMs) throws Exception {
    JmsLoad.say("begin");
    long began = System.nanoTime();
    work.run();
    long took = System.nanoTime() - began - TimeUnit.MILLISECONDS.toNanos(waitingMs);
    JmsLoad.say("end " + counted.sum() + " " + took);
    stopped = true;
    join();
  }

  /** Wait for all threads. */
  void join() throws Exception {
    for (Thread thread : List.copyOf(threads)) {
      thread.join(QUIET_MS);
      if (thread.isAlive()) {
        throw new IllegalStateException("a thread does not end within " + QUIET_MS + " ms");
      }
    }
    threads.clear();
    check();
  }

  /** Throw what a thread met. */
  void check() throws Exception {
    if (failure != null) {
      throw new Exception(failure);
    }
  }

  /** Wait, but no longer than the threads work. */
  private void pause(long milliseconds) throws Exception {
    long end = System.nanoTime() + TimeUnit.MILLISECONDS.toNanos(milliseconds);
    while (System.nanoTime() < end && !stopped && threads.stream().allMatch(Thread::isAlive)) {
      Thread.sleep(Math.min(5, Math.max(1, (end - System.nanoTime()) / 1_000_000)));
    }
  }
}
