package understudy.interop;

import java.util.TreeSet;
import org.apache.activemq.artemis.api.core.TransportConfiguration;
import org.apache.activemq.artemis.api.core.client.ActiveMQClient;
import org.apache.activemq.artemis.api.core.client.ClientSessionFactory;
import org.apache.activemq.artemis.api.core.client.ServerLocator;
import org.apache.activemq.artemis.api.core.client.TopologyMember;

/**
 * The members of the cluster as a client sees them. Arguments: url, number of members to wait for. Prints "member
 * HOST:PORT" for the active node of each.
 */
public final class Members {
  private static final long WAIT_MS = 60_000;

  private Members() {}

  public static void main(String[] arguments) throws Exception {
    int wanted = Integer.parseInt(arguments[1]);
    try (ServerLocator locator = ActiveMQClient.createServerLocator(arguments[0]);
        ClientSessionFactory factory = locator.createSessionFactory()) {
      long deadline = System.currentTimeMillis() + WAIT_MS;
      TreeSet<String> found = members(locator);
      while (found.size() != wanted && System.currentTimeMillis() < deadline) {
        Thread.sleep(50);
        found = members(locator);
      }
      found.forEach(place -> System.out.println("member " + place));
    }
  }

  private static TreeSet<String> members(ServerLocator locator) {
    TreeSet<String> found = new TreeSet<>();
    for (TopologyMember each : locator.getTopology().getMembers()) {
      TransportConfiguration primary = each.getPrimary();
      if (primary != null) {
        found.add(primary.getParams().get("host") + ":" + primary.getParams().get("port"));
      }
    }
    return found;
  }
}
