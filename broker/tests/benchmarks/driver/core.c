/* CORE, the protocol of Artemis and Understudy. */
#include "core.h"
#include "driver.h"

enum { GRANT_BYTES = 1 << 19 };

/* Gives the bytes of frames back to the broker as credits. ``id`` is that of the consumer. */
static void grant(struct connection *consumer, const uint8_t *channel, const uint8_t *id)
{
    uint8_t out[HEAD + 12];
    set32(out, 9 + 12);
    out[4] = FLOW_TOKEN;
    __builtin_memcpy(out + 5, channel, 8);
    __builtin_memcpy(out + 13, id, 8);
    set32(out + 21, (uint32_t)consumer->unacknowledged_bytes);
    put(&consumer->out, out, sizeof out);
    consumer->unacknowledged_bytes = 0;
}

static void acknowledge(struct connection *consumer, const uint8_t *channel, const uint8_t *id, const uint8_t *message)
{
    uint8_t out[HEAD + 17];
    set32(out, 9 + 17);
    out[4] = ACKNOWLEDGE;
    __builtin_memcpy(out + 5, channel, 8);
    __builtin_memcpy(out + 13, id, 8);
    __builtin_memcpy(out + 21, message, 8);
    out[29] = 0;
    put(&consumer->out, out, sizeof out);
    grant(consumer, channel, id);
    consumer->unacknowledged = 0;
}

/* message, consumer i64, delivery count i32 */
static void take_message(struct connection *consumer, const uint8_t *frame, size_t size)
{
    uint32_t end = u32(frame + HEAD);
    if (u32(frame + size - 4) != 1)
        fail("delivery marked redelivered");
    delivered(consumer, frame + HEAD + BODY_BEGIN, end - BODY_SHIFT, size);
    if (acknowledgement_due(consumer))
        acknowledge(consumer, frame + 5, frame + size - RECEIVE_TAIL, frame + HEAD + end + BODY_BEGIN - BODY_SHIFT);
}

/* consumer i64, delivery count i32, body size i64, header from the message id on */
static void take_large(struct connection *consumer, const uint8_t *frame, size_t size)
{
    if (consumer->large.open)
        fail("a large message begins within another");
    if (u32(frame + HEAD + 8) != 1)
        fail("delivery marked redelivered");
    consumer->large.open = 1;
    consumer->large.bytes = 0;
    __builtin_memcpy(consumer->large.id, frame + HEAD + 20, 8);
    consumer->unacknowledged_bytes += size;
}

/* body with its size i32, continues bool, consumer i64 */
static void take_continuation(struct connection *consumer, const uint8_t *frame, size_t size)
{
    uint32_t bytes = u32(frame + HEAD);
    const uint8_t *body = frame + HEAD + 4, *id = frame + size - 8;
    if (!consumer->large.open)
        fail("a piece of no large message");
    if (!consumer->large.bytes) {
        if (bytes < 8)
            fail("a first piece of %u bytes", bytes);
        __builtin_memcpy(consumer->large.number, body, 8);
    }
    consumer->large.bytes += bytes;
    if (body[bytes]) {
        consumer->unacknowledged_bytes += size;
        if (consumer->unacknowledged_bytes >= GRANT_BYTES)
            grant(consumer, frame + 5, id);
        return;
    }
    consumer->large.open = 0;
    delivered(consumer, consumer->large.number, consumer->large.bytes, size);
    if (acknowledgement_due(consumer))
        acknowledge(consumer, frame + 5, id, consumer->large.id);
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
            take_message(connection, frame, size);
            break;
        case RECEIVE_LARGE:
            take_large(connection, frame, size);
            break;
        case RECEIVE_CONTINUATION:
            take_continuation(connection, frame, size);
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
