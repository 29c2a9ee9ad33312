import java.util.HashMap;
import java.util.HexFormat;
import java.util.Map;

import org.apache.activemq.artemis.api.core.ActiveMQBuffer;
import org.apache.activemq.artemis.api.core.ActiveMQBuffers;
import org.apache.activemq.artemis.api.core.SimpleString;
import org.apache.activemq.artemis.api.core.TransportConfiguration;
import org.apache.activemq.artemis.core.protocol.core.impl.wireformat.QuorumVoteMessage;
import org.apache.activemq.artemis.core.protocol.core.impl.wireformat.QuorumVoteReplyMessage;
import org.apache.activemq.artemis.core.server.cluster.quorum.QuorumVoteHandler;
import org.apache.activemq.artemis.core.server.cluster.quorum.QuorumVoteServerConnect;
import org.apache.activemq.artemis.core.server.cluster.quorum.ServerConnectVote;
import org.apache.activemq.artemis.core.server.cluster.quorum.Vote;

/** Votes by the classes of the broker. Arguments: a word and hexadecimal bodies of packets; prints one result per line. */
public class Votes implements QuorumVoteHandler {

    private static final String CONNECTOR = "org.apache.activemq.artemis.core.remoting.impl.netty.NettyConnectorFactory";

    @Override
    public Vote vote(Vote vote) {
        return vote;
    }

    @Override
    public SimpleString getQuorumName() {
        return QuorumVoteServerConnect.PRIMARY_FAILOVER_VOTE;
    }

    @Override
    public Vote decode(ActiveMQBuffer buffer) {
        ServerConnectVote vote = new ServerConnectVote();
        vote.decode(buffer);
        return vote;
    }

    private static ActiveMQBuffer buffer(String body) {
        return ActiveMQBuffers.wrappedBuffer(HexFormat.of().parseHex(body));
    }

    private static String written(ActiveMQBuffer buffer) {
        byte[] bytes = new byte[buffer.readableBytes()];
        buffer.readBytes(bytes);
        return HexFormat.of().formatHex(bytes);
    }

    private static TransportConfiguration connector(String port) {
        return new TransportConfiguration(CONNECTOR, new HashMap<>(Map.of("host", "10.0.0.1", "port", port)), "own");
    }

    private static String request(boolean stay) {
        ActiveMQBuffer buffer = ActiveMQBuffers.dynamicBuffer(64);
        new QuorumVoteMessage(QuorumVoteServerConnect.PRIMARY_FAILOVER_VOTE, new ServerConnectVote("pair", stay, null))
            .encodeRest(buffer);
        return written(buffer);
    }

    private static String reply(boolean agreed, TransportConfiguration connector) {
        ActiveMQBuffer buffer = ActiveMQBuffers.dynamicBuffer(64);
        ServerConnectVote vote = new ServerConnectVote("pair", agreed, connector == null ? null : connector.toString());
        new QuorumVoteReplyMessage(QuorumVoteServerConnect.PRIMARY_FAILOVER_VOTE, vote).encodeRest(buffer);
        return written(buffer);
    }

    private static ServerConnectVote cast(String body) {
        QuorumVoteReplyMessage packet = new QuorumVoteReplyMessage();
        packet.decodeRest(buffer(body));
        Votes handler = new Votes();
        packet.decodeRest(handler);
        return (ServerConnectVote) packet.getVote();
    }

    public static void main(String[] arguments) {
        if (arguments[0].equals("make")) {
            System.out.println(request(false));
            System.out.println(request(true));
            System.out.println(reply(true, connector("61616")));
            System.out.println(reply(true, connector("61617")));
            System.out.println(reply(true, null));
            System.out.println(reply(false, null));
            for (String port : new String[] {"61616", "61617"}) {
                ActiveMQBuffer buffer = ActiveMQBuffers.dynamicBuffer(64);
                connector(port).encode(buffer);
                System.out.println(written(buffer));
            }
            return;
        }
        // decide: bodies of replies, those of a backup and those of a primary
        for (int i = 1; i < arguments.length; i++) {
            QuorumVoteServerConnect backup = new QuorumVoteServerConnect(2, "pair");
            backup.vote(cast(arguments[i]));
            QuorumVoteServerConnect primary =
                new QuorumVoteServerConnect(2, "pair", true, connector("61616").toString());
            ServerConnectVote vote = cast(arguments[i]);
            if (!vote.getVote() || vote.getTransportConfiguration() != null) {
                primary.vote(vote);
            }
            System.out.println(backup.getDecision() + " " + primary.getDecision());
        }
    }
}
