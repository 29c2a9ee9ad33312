import java.io.OutputStream;
import java.nio.ByteBuffer;
import java.util.Arrays;

/** A stream that takes the body of one message: its number, and then the bytes that each message has. */
final class CheckedBody extends OutputStream {
  private final int bytes;
  private final byte[] wanted;
  private final byte[] number = new byte[Long.BYTES];
  private int taken;

  CheckedBody(int bytes) {
    this.bytes = bytes;
    wanted = Clients.filling(bytes);
  }

  @Override
  public void write(int value) {
    write(new byte[] {(byte) value}, 0, 1);
  }

  @Override
  public void write(byte[] data, int offset, int length) {
    int head = Math.max(0, Math.min(Long.BYTES - taken, length));
    System.arraycopy(data, offset, number, Math.min(taken, Long.BYTES), head);
    int from = taken + head - Long.BYTES;
    taken += length;
    if (taken > bytes
        || !Arrays.equals(data, offset + head, offset + length, wanted, from, from + length - head)) {
      throw new IllegalStateException("a body that is not the one that was sent");
    }
  }

  /** The number of the message, whose body has come whole. */
  long number() {
    if (taken != bytes) {
      throw new IllegalStateException("a body of " + taken + " bytes in place of " + bytes);
    }
    return ByteBuffer.wrap(number).getLong();
  }
}
