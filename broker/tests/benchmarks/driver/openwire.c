/* OpenWire 9, the protocol of ActiveMQ classic, in its loose encoding without cache: size i32, type i8, fields. */
#include "driver.h"

enum { CONNECTION_ERROR = 16, MESSAGE_DISPATCH = 21, RESPONSE = 30, EXCEPTION_RESPONSE = 31 };

static const uint8_t *skip_string(const uint8_t *at) { return *at ? at + 3 + u16(at + 1) : at + 1; }
static const uint8_t *skip_bytes(const uint8_t *at) { return *at ? at + 5 + u32(at + 1) : at + 1; }
static const uint8_t *skip_id(const uint8_t *at) { return *at ? skip_string(at + 2) + 16 : at + 1; } /* producer, consumer */
static const uint8_t *skip_queue(const uint8_t *at) { return *at ? skip_string(at + 2) : at + 1; }
static const uint8_t *skip_message_id(const uint8_t *at) { return *at ? skip_id(at + 2) + 16 : at + 1; }

static const uint8_t *skip_absent(const uint8_t *at, const char *what)
{
    if (*at)
        fail("message with %s", what);
    return at + 1;
}

/* consumer's prepared MessageAck up to ackType, then firstMessageId (none), lastMessageId, count, poisonCause (none). */
static void acknowledge(struct connection *consumer, const uint8_t *message_id, size_t message_id_bytes)
{
    uint8_t size[4], tail[5];
    set32(size, (uint32_t)(consumer->acknowledgement_bytes + 1 + message_id_bytes + 5));
    put(&consumer->out, size, 4);
    put(&consumer->out, consumer->acknowledgement, consumer->acknowledgement_bytes);
    put(&consumer->out, "", 1);
    put(&consumer->out, message_id, message_id_bytes);
    set32(tail, (uint32_t)consumer->unacknowledged);
    tail[4] = 0;
    put(&consumer->out, tail, 5);
}

static void take_dispatch(struct connection *consumer, const uint8_t *frame, size_t size)
{
    const uint8_t *at = skip_queue(skip_id(frame + 10));
    if (!at[0])
        fail("dispatch without a message");
    at += 2 + 5;
    at = skip_queue(skip_id(at));
    at = skip_absent(at, "transaction");
    at = skip_queue(at);
    const uint8_t *message_id = at;
    at = skip_message_id(at);
    size_t message_id_bytes = (size_t)(at - message_id);
    at = skip_absent(at, "original transaction");
    at = skip_string(at) + 4;     /* group, its sequence */
    at = skip_string(at) + 1 + 8; /* correlation id, persistent, expiration */
    at = skip_queue(at + 1) + 8;  /* priority, reply-to, timestamp */
    at = skip_string(at);
    if (!at[0])
        fail("message without content");
    const uint8_t *content = at;
    at = skip_bytes(skip_bytes(at)); /* properties */
    at = skip_id(skip_absent(at, "data structure"));
    if (u32(at + 1)) /* behind whether it is compressed */
        fail("delivery marked redelivered");
    delivered(consumer, content + 5, u32(content + 1), size);
    if (acknowledgement_due(consumer)) {
        acknowledge(consumer, message_id, message_id_bytes);
        consumer->unacknowledged = consumer->unacknowledged_bytes = 0;
    }
}

size_t take_openwire(struct connection *connection, const uint8_t *bytes, size_t count)
{
    size_t taken = 0;
    while (count - taken >= 5) {
        const uint8_t *frame = bytes + taken;
        size_t size = u32(frame) + 4;
        if (count - taken < size)
            break;
        switch (frame[4]) {
        case RESPONSE:
            if (u32(frame + 10) >= 1000)
                confirmed(connection, u32(frame + 10) - 1000, 0);
            break;
        case MESSAGE_DISPATCH:
            take_dispatch(connection, frame, size);
            break;
        case CONNECTION_ERROR:
        case EXCEPTION_RESPONSE:
            fail("the broker reports an error");
        }
        taken += size;
    }
    return taken;
}
