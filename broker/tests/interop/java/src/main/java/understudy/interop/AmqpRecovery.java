package understudy.interop;

import com.rabbitmq.client.Address;
import com.rabbitmq.client.BuiltinExchangeType;
import com.rabbitmq.client.Channel;
import com.rabbitmq.client.Connection;
import com.rabbitmq.client.ConnectionFactory;
import com.rabbitmq.client.MessageProperties;
import com.rabbitmq.client.ShutdownSignalException;
import java.io.BufferedReader;
import java.io.IOException;
import java.io.InputStreamReader;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.TimeoutException;
import java.util.concurrent.atomic.AtomicBoolean;
import java.util.concurrent.atomic.AtomicReference;

/**
 * The client of RabbitMQ with its automatic recovery: connection, channels, a queue with a name of the broker's choice,
 * an exchange, a binding and a consumer come back by themselves.
 *
 * <p>Arguments: ports. Publishes each line of the standard input with a confirm, again until it has one and was routed,
 * and prints "got LINE" for each message that its consumer gets.
 */
public final class AmqpRecovery {
  private static final long CONFIRM_MS = 10_000;
  private static final long AGAIN_MS = 200;
  private static final String EXCHANGE = "recovered";

  private AmqpRecovery() {}

  public static void main(String[] ports) throws Exception {
    ConnectionFactory factory = new ConnectionFactory();
    factory.setAutomaticRecoveryEnabled(true);
    factory.setTopologyRecoveryEnabled(true);
    factory.setNetworkRecoveryInterval(1000);
    List<Address> addresses = new ArrayList<>();
    for (String port : ports) {
      addresses.add(new Address("127.0.0.1", Integer.parseInt(port)));
    }
    try (Connection connection = factory.newConnection(addresses)) {
      Channel consuming = connection.createChannel();
      consuming.exchangeDeclare(EXCHANGE, BuiltinExchangeType.FANOUT, false, true, null);
      String queue = consuming.queueDeclare().getQueue();
      consuming.queueBind(queue, EXCHANGE, "");
      consuming.basicConsume(
          queue,
          false,
          (tag, delivery) -> {
            System.out.println("got " + new String(delivery.getBody(), StandardCharsets.UTF_8));
            consuming.basicAck(delivery.getEnvelope().getDeliveryTag(), false);
          },
          tag -> System.out.println("cancelled"));
      Channel publishing = connection.createChannel();
      AtomicBoolean returned = new AtomicBoolean();
      AtomicReference<CompletableFuture<Boolean>> outcome = new AtomicReference<>(new CompletableFuture<>());
      publishing.addReturnListener(message -> returned.set(true));
      // waitForConfirms does not do: on a channel that has just recovered it knows of no earlier message, and returns
      publishing.addConfirmListener(
          (number, multiple) -> outcome.get().complete(!returned.get()),
          (number, multiple) -> outcome.get().complete(false));
      publishing.addShutdownListener(cause -> outcome.get().complete(false));
      publishing.confirmSelect();
      BufferedReader lines = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
      for (String line = lines.readLine(); line != null; line = lines.readLine()) {
        while (!published(publishing, line, returned, outcome)) {
          Thread.sleep(AGAIN_MS);
        }
      }
    }
  }

  private static boolean published(
      Channel channel,
      String line,
      AtomicBoolean returned,
      AtomicReference<CompletableFuture<Boolean>> outcome)
      throws InterruptedException, ExecutionException {
    returned.set(false);
    outcome.set(new CompletableFuture<>());
    try {
      byte[] body = line.getBytes(StandardCharsets.UTF_8);
      channel.basicPublish(EXCHANGE, "", true, MessageProperties.PERSISTENT_BASIC, body);
      return outcome.get().get(CONFIRM_MS, TimeUnit.MILLISECONDS);
    } catch (IOException | TimeoutException | ShutdownSignalException lost) {
      return false;
    }
  }
}
