package understudy.interop;

import jakarta.jms.Message;
import jakarta.jms.MessageConsumer;
import jakarta.jms.Queue;
import jakarta.jms.Session;
import jakarta.jms.TextMessage;
import jakarta.jms.XAConnection;
import jakarta.jms.XASession;
import java.nio.charset.StandardCharsets;
import java.util.Arrays;
import javax.transaction.xa.XAException;
import javax.transaction.xa.XAResource;
import javax.transaction.xa.Xid;
import org.apache.activemq.artemis.jms.client.ActiveMQXAConnectionFactory;

/**
 * XA as a transaction manager uses it, with the stock client. Argument: url of a pair. Prints "ok NAME" for each part;
 * after "ready" it waits for a line on its input, before which the active node is killed, and then commits the branch
 * that the other node must list as in doubt.
 */
public final class Xa {
  private static final long WAIT_MS = 60_000;

  private Xa() {}

  private record Name(int format, byte[] global, byte[] branch) implements Xid {
    static Name of(String text) {
      return new Name(4711, text.getBytes(StandardCharsets.UTF_8), new byte[] {1, 2, 3});
    }

    @Override
    public int getFormatId() {
      return format;
    }

    @Override
    public byte[] getGlobalTransactionId() {
      return global;
    }

    @Override
    public byte[] getBranchQualifier() {
      return branch;
    }
  }

  public static void main(String[] arguments) throws Exception {
    try (ActiveMQXAConnectionFactory factory = new ActiveMQXAConnectionFactory(arguments[0]);
        XAConnection connection = factory.createXAConnection()) {
      connection.start();
      XASession session = connection.createXASession();
      XAResource resource = session.getXAResource();
      Queue queue = session.createQueue("interop.xa");
      twoPhases(session, resource, queue);
      rollback(session, resource, queue);
      suspend(connection, session, resource, queue);
      errors(resource);
      timeout(connection, session, resource, queue);
      failover(connection, session, resource, queue);
    }
    System.out.println("done");
  }

  private static void twoPhases(XASession session, XAResource resource, Queue queue) throws Exception {
    Xid xid = Name.of("two phases");
    resource.start(xid, XAResource.TMNOFLAGS);
    send(session, queue, "one");
    resource.end(xid, XAResource.TMSUCCESS);
    expect(XAResource.XA_OK, resource.prepare(xid));
    expect(1, resource.recover(XAResource.TMSTARTRSCAN | XAResource.TMENDRSCAN).length);
    resource.commit(xid, false);
    expect(0, resource.recover(XAResource.TMSTARTRSCAN | XAResource.TMENDRSCAN).length);
    Xid second = Name.of("one phase");
    resource.start(second, XAResource.TMNOFLAGS);
    expect("one", receive(session, queue));
    resource.end(second, XAResource.TMSUCCESS);
    resource.commit(second, true);
    System.out.println("ok two phases");
  }

  private static void rollback(XASession session, XAResource resource, Queue queue) throws Exception {
    Xid xid = Name.of("send");
    resource.start(xid, XAResource.TMNOFLAGS);
    send(session, queue, "again");
    resource.end(xid, XAResource.TMSUCCESS);
    resource.commit(xid, true);
    for (boolean prepared : new boolean[] {false, true}) {
      Xid undone = Name.of("undone " + prepared);
      resource.start(undone, XAResource.TMNOFLAGS);
      expect("again", receive(session, queue));
      send(session, queue, "never");
      resource.end(undone, XAResource.TMSUCCESS);
      if (prepared) {
        resource.prepare(undone);
      }
      resource.rollback(undone);
    }
    Xid last = Name.of("last");
    resource.start(last, XAResource.TMNOFLAGS);
    try (MessageConsumer consumer = session.createConsumer(queue)) {
      Message message = consumer.receive(WAIT_MS);
      expect("again", ((TextMessage) message).getText());
      expect(true, message.getJMSRedelivered());
      expect(3, message.getIntProperty("JMSXDeliveryCount"));
      expect(null, consumer.receiveNoWait());
    }
    resource.end(last, XAResource.TMSUCCESS);
    resource.commit(last, true);
    System.out.println("ok rollback");
  }

  private static void suspend(XAConnection connection, XASession session, XAResource resource, Queue queue)
      throws Exception {
    Xid xid = Name.of("suspended");
    resource.start(xid, XAResource.TMNOFLAGS);
    send(session, queue, "before");
    resource.end(xid, XAResource.TMSUSPEND);
    resource.start(xid, XAResource.TMRESUME);
    send(session, queue, "after");
    XASession other = connection.createXASession();
    other.getXAResource().start(xid, XAResource.TMJOIN);
    send(other, queue, "joined");
    other.getXAResource().end(xid, XAResource.TMSUCCESS);
    resource.end(xid, XAResource.TMSUCCESS);
    resource.prepare(xid);
    other.getXAResource().commit(xid, false);
    other.close();
    try (Session plain = connection.createSession(false, Session.AUTO_ACKNOWLEDGE);
        MessageConsumer consumer = plain.createConsumer(queue)) {
      for (String wanted : new String[] {"before", "after", "joined"}) {
        expect(wanted, ((TextMessage) consumer.receive(WAIT_MS)).getText());
      }
    }
    System.out.println("ok suspend and join");
  }

  private static void errors(XAResource resource) throws Exception {
    Xid xid = Name.of("unknown");
    expectCode(XAException.XAER_NOTA, () -> resource.commit(xid, false));
    expectCode(XAException.XAER_NOTA, () -> resource.prepare(xid));
    expectCode(XAException.XAER_NOTA, () -> resource.forget(xid));
    // one branch takes the place of another one, which is rolled back
    Xid replaced = Name.of("replaced");
    resource.start(replaced, XAResource.TMNOFLAGS);
    resource.start(xid, XAResource.TMNOFLAGS);
    expectCode(XAException.XAER_NOTA, () -> resource.rollback(replaced));
    resource.end(xid, XAResource.TMSUCCESS);
    expectCode(XAException.XAER_DUPID, () -> resource.start(xid, XAResource.TMNOFLAGS));
    expectCode(XAException.XAER_PROTO, () -> resource.commit(xid, false));
    resource.rollback(xid);
    System.out.println("ok errors");
  }

  private static void timeout(XAConnection connection, XASession session, XAResource resource, Queue queue)
      throws Exception {
    expect(300, resource.getTransactionTimeout());
    expect(true, resource.setTransactionTimeout(3));
    expect(3, resource.getTransactionTimeout());
    try (Session plain = connection.createSession(false, Session.AUTO_ACKNOWLEDGE)) {
      send(plain, queue, "taken");
    }
    Xid xid = Name.of("late");
    resource.start(xid, XAResource.TMNOFLAGS);
    expect("taken", receive(session, queue));
    resource.end(xid, XAResource.TMSUCCESS);
    // what it took comes back when its time is over and a scan has seen that
    try (Session plain = connection.createSession(false, Session.AUTO_ACKNOWLEDGE);
        MessageConsumer consumer = plain.createConsumer(queue)) {
      expect("taken", ((TextMessage) consumer.receive(WAIT_MS)).getText());
    }
    expectCode(XAException.XAER_NOTA, () -> resource.prepare(xid));
    resource.setTransactionTimeout(0);
    System.out.println("ok timeout");
  }

  private static void failover(XAConnection connection, XASession session, XAResource resource, Queue queue) throws Exception {
    Xid xid = Name.of("failover");
    resource.start(xid, XAResource.TMNOFLAGS);
    send(session, queue, "promised");
    resource.end(xid, XAResource.TMSUCCESS);
    resource.prepare(xid);
    XASession second = connection.createXASession();
    XAResource interrupted = second.getXAResource();
    Queue from = second.createQueue("interop.xa.from");
    Queue to = second.createQueue("interop.xa.to");
    try (Session plain = connection.createSession(false, Session.AUTO_ACKNOWLEDGE)) {
      send(plain, from, "held");
    }
    Xid lost = Name.of("interrupted");
    MessageConsumer consumer = second.createConsumer(from);
    interrupted.start(lost, XAResource.TMNOFLAGS);
    expect("held", ((TextMessage) consumer.receive(WAIT_MS)).getText());
    send(second, to, "before");
    // a request while the client does not know yet that the node is gone would fail, as it may
    Checks.failOver(connection);
    Xid[] found = resource.recover(XAResource.TMSTARTRSCAN | XAResource.TMENDRSCAN);
    expect(1, found.length);
    expect(true, Arrays.equals(xid.getGlobalTransactionId(), found[0].getGlobalTransactionId()));
    expect(true, Arrays.equals(xid.getBranchQualifier(), found[0].getBranchQualifier()));
    expect(4711, found[0].getFormatId());
    expect(null, receiveNoWait(session, queue));
    resource.commit(found[0], false);
    expect("promised", receive(session, queue));
    System.out.println("ok failover");
    // what is received and sent after the failover belongs to the branch that can only be rolled back
    expect("held", ((TextMessage) consumer.receive(WAIT_MS)).getText());
    send(second, to, "after");
    expectCode(XAException.XAER_RMFAIL, () -> interrupted.end(lost, XAResource.TMSUCCESS));
    interrupted.rollback(lost);
    consumer.close();
    expect(null, receiveNoWait(second, to));
    interrupted.start(lost, XAResource.TMNOFLAGS);
    expect("held", receive(second, from));
    expect(null, receiveNoWait(second, from));
    send(second, to, "once");
    interrupted.end(lost, XAResource.TMSUCCESS);
    interrupted.commit(lost, true);
    expect("once", receive(session, to));
    expect(null, receiveNoWait(session, to));
    System.out.println("ok interrupted branch");
  }

  private static void send(Session session, Queue queue, String text) throws Exception {
    session.createProducer(queue).send(session.createTextMessage(text));
  }

  private static String receive(Session session, Queue queue) throws Exception {
    try (MessageConsumer consumer = session.createConsumer(queue)) {
      TextMessage message = (TextMessage) consumer.receive(WAIT_MS);
      return message == null ? null : message.getText();
    }
  }

  private static String receiveNoWait(Session session, Queue queue) throws Exception {
    try (MessageConsumer consumer = session.createConsumer(queue)) {
      TextMessage message = (TextMessage) consumer.receiveNoWait();
      return message == null ? null : message.getText();
    }
  }

  private interface Action {
    void run() throws Exception;
  }

  private static void expectCode(int code, Action action) throws Exception {
    try {
      action.run();
    } catch (XAException error) {
      expect(code, error.errorCode);
      return;
    }
    throw new AssertionError("no XAException " + code);
  }

  private static void expect(Object wanted, Object got) {
    if (wanted == null ? got != null : !wanted.equals(got)) {
      throw new AssertionError("wanted " + wanted + ", got " + got);
    }
  }
}
