/* CORE, the protocol of Artemis and Understudy: length i32, type i8, channel i64, body. */
#include "driver.h"

enum { HEAD = 13, EXCEPTION = 20, NULL_RESPONSE = 21, RECEIVE = 75, ACKNOWLEDGE = 41, FLOW_TOKEN = 70, DISCONNECT = 11 };

static void acknowledge(struct connection *consumer, const uint8_t *frame, size_t frame_bytes)
{
    const uint8_t *header = frame + HEAD + u32(frame + HEAD) - 9; /* E counts 13 bytes that are not there */
    uint8_t out[HEAD + 17 + HEAD + 12];
    set32(out, 9 + 17);
    out[4] = ACKNOWLEDGE;
    __builtin_memcpy(out + 5, frame + 5, 8);
    __builtin_memcpy(out + 13, frame + frame_bytes - 12, 8); /* consumer */
    __builtin_memcpy(out + 21, header, 8);                   /* message id */
    out[29] = 0;
    set32(out + 30, 9 + 12);
    out[34] = FLOW_TOKEN;
    __builtin_memcpy(out + 35, frame + 5, 8);
    __builtin_memcpy(out + 43, frame + frame_bytes - 12, 8);
    set32(out + 51, (uint32_t)consumer->unacknowledged_bytes);
    put(&consumer->out, out, sizeof out);
}

size_t take_core(struct connection *connection, const uint8_t *bytes, size_t count)
{
    size_t taken = 0;
    while (count - taken >= HEAD) {
        const uint8_t *frame = bytes + taken;
        size_t size = u32(frame) + 4;
        if (count - taken < size)
            break;
        switch ((int8_t)frame[4]) {
        case NULL_RESPONSE:
            confirmed(connection, u64(frame + HEAD), 0);
            break;
        case RECEIVE:
            delivered(connection, frame + HEAD + 4, size);
            if (acknowledgement_due(connection)) {
                acknowledge(connection, frame, size);
                connection->unacknowledged = connection->unacknowledged_bytes = 0;
            }
            break;
        case EXCEPTION:
            fail("EXCEPTION, code %u", u32(frame + HEAD));
        case DISCONNECT:
            fail("the broker disconnects");
        }
        taken += size;
    }
    return taken;
}
