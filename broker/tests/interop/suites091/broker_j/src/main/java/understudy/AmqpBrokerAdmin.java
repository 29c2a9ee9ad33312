package understudy;

import java.io.IOException;
import java.lang.reflect.Method;
import java.net.URI;
import java.net.http.HttpClient;
import java.net.http.HttpRequest;
import java.net.http.HttpResponse;
import java.nio.charset.StandardCharsets;
import java.util.regex.Matcher;
import java.util.regex.Pattern;

import com.rabbitmq.client.Channel;
import com.rabbitmq.client.Connection;
import com.rabbitmq.client.ConnectionFactory;
import com.rabbitmq.client.MessageProperties;
import org.apache.qpid.server.plugin.PluggableService;
import org.apache.qpid.tests.utils.BrokerAdminException;
import org.apache.qpid.tests.utils.ExternalQpidBrokerAdminImpl;

/**
 * A broker of another process whose queues are made, filled and deleted over AMQP 0-9-1, with the Java client of
 * RabbitMQ. Each test of Broker-J begins with an empty virtual host; here the names that the tests use are deleted.
 */
@PluggableService
public class AmqpBrokerAdmin extends ExternalQpidBrokerAdminImpl
{
    private static final String[] QUEUES = {TEST_QUEUE_NAME, "durableQueue"};
    private static final String[] EXCHANGES = {"testExchange", "altExchange"};

    private static final Pattern MESSAGES = Pattern.compile("\"(?:messages|messageCount|message_count)\":\\s*(\\d+)");

    @FunctionalInterface
    private interface Step<T>
    {
        T take(Channel channel) throws Exception;
    }

    @Override
    public String getType()
    {
        return "AMQP_BROKER";
    }

    @Override
    public void beforeTestMethod(final Class testClass, final Method method)
    {
        for (final String name : QUEUES)
        {
            deleteQueue(name);
        }
        for (final String name : EXCHANGES)
        {
            onChannel(channel -> channel.exchangeDelete(name));
        }
    }

    @Override
    public void createQueue(final String name)
    {
        onChannel(channel -> channel.queueDeclare(name, false, false, false, null));
    }

    @Override
    public void deleteQueue(final String name)
    {
        onChannel(channel -> channel.queueDelete(name));
    }

    @Override
    public void putMessageOnQueue(final String name, final String... messages)
    {
        onChannel(channel -> {
            channel.confirmSelect();
            for (final String message : messages)
            {
                final byte[] body = message.getBytes(StandardCharsets.UTF_8);
                channel.basicPublish("", name, MessageProperties.PERSISTENT_TEXT_PLAIN, body);
            }
            channel.waitForConfirmsOrDie(10_000);
            return null;
        });
    }

    /** The messages of a queue with those that are delivered, as the management of a node counts them; RabbitMQ tells
     *  a client of those that wait only. */
    @Override
    public int getQueueDepthMessages(final String name)
    {
        final String node = System.getenv("UNDERSTUDY_MANAGEMENT");
        return node == null
            ? onChannel(channel -> channel.queueDeclarePassive(name).getMessageCount())
            : counted(node, name);
    }

    private static int counted(final String node, final String name)
    {
        final HttpRequest request = HttpRequest.newBuilder(URI.create(node + "/api/v1/queues?filter=name=" + name))
            .header("Authorization", "Bearer " + System.getenv("UNDERSTUDY_TOKEN"))
            .build();
        try
        {
            final String found =
                HttpClient.newHttpClient().send(request, HttpResponse.BodyHandlers.ofString()).body();
            final Matcher count = MESSAGES.matcher(found);
            if (!count.find())
            {
                throw new BrokerAdminException("no count of messages in " + found);
            }
            return Integer.parseInt(count.group(1));
        }
        catch (final IOException | InterruptedException error)
        {
            throw new BrokerAdminException("the management of the node", error);
        }
    }

    @Override
    public boolean isPutMessageOnQueueSupported()
    {
        return true;
    }

    @Override
    public boolean isDeleteQueueSupported()
    {
        return true;
    }

    private <T> T onChannel(final Step<T> step)
    {
        final ConnectionFactory factory = new ConnectionFactory();
        factory.setHost("127.0.0.1");
        factory.setPort(getBrokerAddress(PortType.AMQP).getPort());
        factory.setUsername(getValidUsername());
        factory.setPassword(getValidPassword());
        try (Connection connection = factory.newConnection())
        {
            return step.take(connection.createChannel());
        }
        catch (final Exception error)
        {
            throw new BrokerAdminException("a step of the test's set-up over AMQP 0-9-1", error);
        }
    }
}
