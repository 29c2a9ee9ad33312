/* AMQP 0-9-1, the protocol of RabbitMQ: type u8, channel u16, size u32, payload, 0xCE. */
#include "driver.h"

enum { METHOD = 1, HEADER = 2, BODY = 3, END = 0xCE };
enum { BASIC_DELIVER = 60 << 16 | 60, BASIC_ACK = 60 << 16 | 80, BASIC_NACK = 60 << 16 | 120 };
enum { CHANNEL_CLOSE = 20 << 16 | 40, CONNECTION_CLOSE = 10 << 16 | 50 };

static void acknowledge(struct connection *consumer, const uint8_t *tag)
{
    uint8_t out[21] = {METHOD, 0, 1, 0, 0, 0, 13, 0, 60, 0, 80, [20] = END};
    __builtin_memcpy(out + 11, tag, 8);
    out[19] = consumer->unacknowledged > 1; /* multiple */
    put(&consumer->out, out, sizeof out);
}

/* A whole delivery (method, header, body frames); 0 = not all of it is there. */
static size_t take_delivery(struct connection *consumer, const uint8_t *bytes, size_t count)
{
    size_t method = 8 + u32(bytes + 3);
    if (count < method + 7)
        return 0;
    const uint8_t *header = bytes + method;
    size_t taken = method + 8 + u32(header + 3);
    if (count < taken)
        return 0;
    uint64_t body_bytes = u64(header + 11), seen = 0;
    const uint8_t *body = bytes + taken + 7;
    while (seen < body_bytes) {
        if (count < taken + 7)
            return 0;
        size_t frame = 8 + u32(bytes + taken + 3);
        if (count < taken + frame)
            return 0;
        seen += frame - 8;
        taken += frame;
    }
    const uint8_t *tag = bytes + 11 + 1 + bytes[11];
    if (tag[8])
        fail("delivery marked redelivered");
    delivered(consumer, body, body_bytes, taken);
    if (acknowledgement_due(consumer)) {
        acknowledge(consumer, tag);
        consumer->unacknowledged = consumer->unacknowledged_bytes = 0;
    }
    return taken;
}

size_t take_amqp(struct connection *connection, const uint8_t *bytes, size_t count)
{
    size_t taken = 0;
    while (count - taken >= 12) {
        const uint8_t *frame = bytes + taken;
        size_t size = 8 + u32(frame + 3);
        if (count - taken < size)
            break;
        if (frame[0] == METHOD) {
            switch (u32(frame + 7)) {
            case BASIC_ACK:
                confirmed(connection, u64(frame + 11) - 1, frame[19] & 1);
                break;
            case BASIC_DELIVER:
                size = take_delivery(connection, frame, count - taken);
                if (!size)
                    return taken;
                break;
            case BASIC_NACK:
                fail("basic.nack");
            case CHANNEL_CLOSE:
            case CONNECTION_CLOSE:
                fail("the broker closes: %.*s", frame[13], frame + 14);
            }
        }
        taken += size;
    }
    return taken;
}
