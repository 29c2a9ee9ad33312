/* What this machine allows: the least that a broker has to do for the driver's CORE client, and nothing else.
 *
 *     floor PORT FILE ANSWERS
 *
 * One thread. Each turn reads what is ready, writes all durable messages of the turn to a file that was written before
 * (from its beginning again when it is full), syncs it once, and only then sends confirmations and deliveries. Messages
 * wait in memory for the one consumer of their queue, whose credits count; a queue is its name, of an address or of a
 * consumer. Nothing is read back, acknowledgements are not kept, and a message that was delivered is forgotten.
 *
 * ANSWERS has, for each other request, its type (a byte) and the whole frame of the response, whose channel is replaced
 * (targets.py writes it with the codec of the broker). Whatever has neither ends the connection with a line on standard
 * error, as a frame does whose fields are not within it.
 */
#define _GNU_SOURCE
#include "core.h"
#include "driver.h"

#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

enum { CLIENTS_MAX = 512, QUEUES_MAX = 1 << 16, NAME_BYTES_MAX = 1024, ANSWERS_BYTES_MAX = 1 << 16 };
enum { IN_BYTES = 1 << 20, FRAME_BYTES_MAX = 1 << 20, FILE_BYTES = 1 << 26, EVENTS = 128, MAGIC_BYTES = 7 };
#define WAITING_BYTES_MAX ((size_t)1 << 32)

struct client {
    int fd, greeted, watched; /* fd: -1 = free; watched: for being writable, too */
    struct buffer in, out;
    struct name *sent_to; /* by its last message */
    /* of a consumer */
    struct name *queue;
    uint8_t channel[8], id[8];
    int64_t credits; /* bytes */
    int started;
};

struct name {
    uint8_t text[NAME_BYTES_MAX];
    size_t bytes;
    struct client *consumer;
    struct buffer waiting; /* frames of deliveries, one after the other; the consumer's fields are still empty */
};

static struct client clients[CLIENTS_MAX];
static struct name *queues[QUEUES_MAX];
static int queue_count, epoll_fd, listener, log_fd;
static struct buffer log_bytes;
static size_t log_offset, waiting_bytes;
static uint64_t last_message_id;
static struct {
    const uint8_t *frame;
    size_t bytes;
} answers[256];

void fail(const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    vfprintf(stderr, format, arguments);
    va_end(arguments);
    fputc('\n', stderr);
    exit(1);
}

/* --- clients ----------------------------------------------------------------------------------------------- */

static void forget(struct buffer *buffer)
{
    free(buffer->bytes);
    *buffer = (struct buffer){0};
}

/* Messages of a consumer that leaves are dropped: a run has queues of its own. */
static void drop(struct client *client, const char *why)
{
    if (why)
        fprintf(stderr, "a connection is closed: %s\n", why);
    if (client->queue) {
        waiting_bytes -= client->queue->waiting.end - client->queue->waiting.begin;
        forget(&client->queue->waiting);
        client->queue->consumer = NULL;
    }
    close(client->fd);
    forget(&client->in);
    forget(&client->out);
    *client = (struct client){.fd = -1};
}

static void watch(struct client *client, int writable)
{
    struct epoll_event event = {.events = EPOLLIN | (writable ? EPOLLOUT : 0), .data.ptr = client};
    if (client->watched != writable && epoll_ctl(epoll_fd, EPOLL_CTL_MOD, client->fd, &event))
        fail("epoll_ctl: %s", strerror(errno));
    client->watched = writable;
}

static void accept_clients(void)
{
    int fd, one = 1;
    while ((fd = accept4(listener, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC)) >= 0) {
        struct client *client = clients;
        while (client < clients + CLIENTS_MAX && client->fd >= 0)
            client++;
        if (client == clients + CLIENTS_MAX) {
            close(fd);
            continue;
        }
        *client = (struct client){.fd = fd};
        setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
        struct epoll_event event = {.events = EPOLLIN, .data.ptr = client};
        if (epoll_ctl(epoll_fd, EPOLL_CTL_ADD, fd, &event))
            fail("epoll_ctl: %s", strerror(errno));
    }
}

/* NULL: there are too many, or the name is too long. */
static struct name *queue_of(const uint8_t *text, size_t bytes)
{
    for (int i = queue_count - 1; i >= 0; i--)
        if (queues[i]->bytes == bytes && !memcmp(queues[i]->text, text, bytes))
            return queues[i];
    if (queue_count == QUEUES_MAX || bytes > NAME_BYTES_MAX)
        return NULL;
    struct name *queue = calloc(1, sizeof *queue);
    if (!queue)
        fail("no memory");
    memcpy(queue->text, text, queue->bytes = bytes);
    return queues[queue_count++] = queue;
}

/* --- requests; each returns why it is refused, or NULL ------------------------------------------------------- */

static void answer(struct client *client, const uint8_t *channel, uint8_t type)
{
    size_t begin = client->out.end - client->out.begin;
    put(&client->out, answers[type].frame, answers[type].bytes);
    memcpy(client->out.bytes + client->out.begin + begin + 5, channel, 8);
}

static void confirm(struct client *client, const uint8_t *channel, const uint8_t *correlation_id)
{
    uint8_t out[HEAD + 8];
    set32(out, sizeof out - 4);
    out[4] = NULL_RESPONSE;
    memcpy(out + 5, channel, 8);
    memcpy(out + HEAD, correlation_id, 8);
    put(&client->out, out, sizeof out);
}

/* A string after its length; returns what follows it, or NULL if it does not end before ``end``. */
static const uint8_t *take_name(const uint8_t *at, const uint8_t *end, const uint8_t **text, size_t *bytes)
{
    if (end - at < 4)
        return NULL;
    *bytes = u32(at);
    *text = at + 4;
    return *bytes <= (size_t)(end - *text) ? *text + *bytes : NULL;
}

static void enqueue(struct name *queue, const uint8_t *message, size_t bytes, size_t id_offset)
{
    static const uint8_t head_and_tail[HEAD + RECEIVE_TAIL];
    struct buffer *waiting = &queue->waiting;
    size_t size = HEAD + bytes + RECEIVE_TAIL;
    reserve(waiting, size);
    uint8_t *frame = waiting->bytes + waiting->end;
    put(waiting, head_and_tail, HEAD);
    put(waiting, message, bytes);
    put(waiting, head_and_tail, RECEIVE_TAIL);
    set32(frame, (uint32_t)size - 4);
    frame[4] = RECEIVE;
    set64(frame + HEAD + id_offset, ++last_message_id);
    set32(frame + size - 4, 1);
    waiting_bytes += size;
    if (waiting_bytes > WAITING_BYTES_MAX)
        fail("more than %zu bytes wait", WAITING_BYTES_MAX);
}

static const char *take_send(struct client *client, const uint8_t *frame, size_t size)
{
    if (size < HEAD + BODY_BEGIN + SEND_TAIL)
        return "a message is cut";
    const uint8_t *message = frame + HEAD, *tail = frame + size - SEND_TAIL, *text;
    size_t body_end = u32(message), id_offset = body_end + BODY_BEGIN - BODY_SHIFT, bytes;
    if (body_end < BODY_SHIFT || id_offset > (size_t)(tail - message) || (size_t)(tail - message) - id_offset < 9)
        return "the body of a message does not end within it";
    const uint8_t *at = message + id_offset + 8;
    if (!*at || !(at = take_name(at + 1, tail, &text, &bytes)))
        return "a message without an address";
    if (at == tail || tail - at < 1 + (*at ? 16 : 0) + 2) /* user id, type, whether it is durable */
        return "the header of a message is cut";
    at += *at ? 18 : 2;
    struct name *queue = client->sent_to;
    if (!queue || queue->bytes != bytes || memcmp(queue->text, text, bytes))
        queue = client->sent_to = queue_of(text, bytes);
    if (!queue)
        return "too many queues, or a long name";
    if (*at)
        put(&log_bytes, frame, size);
    enqueue(queue, message, (size_t)(tail - message), id_offset);
    if (*tail)
        confirm(client, frame + 5, tail + 1);
    return NULL;
}

static const char *take_consumer(struct client *client, const uint8_t *frame, size_t size)
{
    const uint8_t *text;
    size_t bytes;
    if (size < HEAD + 8 || !take_name(frame + HEAD + 8, frame + size, &text, &bytes))
        return "a request for a consumer is cut";
    struct name *queue = queue_of(text, bytes);
    if (!queue || queue->consumer || client->queue)
        return "too many queues, a long name, or a second consumer of a queue or a connection";
    queue->consumer = client;
    client->queue = queue;
    memcpy(client->channel, frame + 5, 8);
    memcpy(client->id, frame + HEAD, 8);
    return NULL;
}

static const char *take_credits(struct client *client, const uint8_t *frame, size_t size)
{
    if (size < HEAD + 12 || !client->queue || memcmp(client->id, frame + HEAD, 8))
        return "credits of no consumer";
    client->credits += (int32_t)u32(frame + HEAD + 8);
    return NULL;
}

static const char *take_frame(struct client *client, const uint8_t *frame, size_t size)
{
    uint8_t type = frame[4];
    const char *refused = NULL;
    switch (type) {
    case SEND:
        return take_send(client, frame, size);
    case FLOW_TOKEN:
        return take_credits(client, frame, size);
    case SESSION_START:
        client->started = 1;
        return NULL;
    case ACKNOWLEDGE:
        return NULL;
    case CREATE_CONSUMER:
        refused = take_consumer(client, frame, size);
    }
    if (!refused && !answers[type].bytes)
        return "a request that the floor does not know";
    if (!refused)
        answer(client, frame + 5, type);
    return refused;
}

/* --- a turn -------------------------------------------------------------------------------------------------- */

static void receive(struct client *client)
{
    struct buffer *in = &client->in;
    reserve(in, IN_BYTES / 2);
    ssize_t count = read(client->fd, in->bytes + in->end, in->capacity - in->end);
    if (count < 0 && errno == EAGAIN)
        return;
    if (count <= 0) {
        drop(client, NULL);
        return;
    }
    in->end += (size_t)count;
    if (!client->greeted && in->end - in->begin >= MAGIC_BYTES) {
        if (!memcmp(in->bytes + in->begin, "ARTEMIS", MAGIC_BYTES))
            in->begin += MAGIC_BYTES;
        client->greeted = 1;
    }
    while (client->greeted && in->end - in->begin >= HEAD) {
        const uint8_t *frame = in->bytes + in->begin;
        size_t size = (size_t)u32(frame) + 4;
        const char *refused = size < HEAD || size > FRAME_BYTES_MAX ? "a frame has an impossible length" : NULL;
        if (!refused && in->end - in->begin < size)
            break;
        if (!refused)
            refused = take_frame(client, frame, size);
        if (refused) {
            drop(client, refused);
            return;
        }
        in->begin += size;
    }
}

/* Everything durable of this turn is on the disk. */
static void sync_log(void)
{
    if (log_bytes.begin == log_bytes.end)
        return;
    while (log_bytes.begin < log_bytes.end) {
        size_t count = log_bytes.end - log_bytes.begin;
        if (count > FILE_BYTES - log_offset)
            count = FILE_BYTES - log_offset;
        ssize_t written = pwrite(log_fd, log_bytes.bytes + log_bytes.begin, count, (off_t)log_offset);
        if (written <= 0)
            fail("pwrite: %s", strerror(errno));
        log_bytes.begin += (size_t)written;
        log_offset = (log_offset + (size_t)written) % FILE_BYTES;
    }
    if (fdatasync(log_fd))
        fail("fdatasync: %s", strerror(errno));
}

static void deliver(struct client *consumer)
{
    struct buffer *waiting = &consumer->queue->waiting;
    while (consumer->started && consumer->credits > 0 && waiting->begin < waiting->end) {
        uint8_t *frame = waiting->bytes + waiting->begin;
        size_t size = (size_t)u32(frame) + 4;
        memcpy(frame + 5, consumer->channel, 8);
        memcpy(frame + size - RECEIVE_TAIL, consumer->id, 8);
        put(&consumer->out, frame, size);
        waiting->begin += size;
        waiting_bytes -= size;
        consumer->credits -= (int64_t)size;
    }
}

static void flush(struct client *client)
{
    struct buffer *out = &client->out;
    while (out->begin < out->end) {
        ssize_t count = send(client->fd, out->bytes + out->begin, out->end - out->begin, MSG_NOSIGNAL);
        if (count < 0 && errno == EAGAIN)
            break;
        if (count < 0) {
            drop(client, NULL);
            return;
        }
        out->begin += (size_t)count;
    }
    watch(client, out->begin < out->end);
}

static void turn(void)
{
    struct epoll_event events[EVENTS];
    int count = epoll_wait(epoll_fd, events, EVENTS, -1);
    for (int i = 0; i < count; i++) {
        if (!events[i].data.ptr)
            accept_clients();
        else if (events[i].events & (EPOLLIN | EPOLLHUP | EPOLLERR))
            receive(events[i].data.ptr);
    }
    sync_log(); /* nothing of this turn has left before */
    for (struct client *client = clients; client < clients + CLIENTS_MAX; client++) {
        if (client->fd >= 0 && client->queue)
            deliver(client);
        if (client->fd >= 0 && client->out.begin < client->out.end)
            flush(client);
    }
}

/* --- to begin with ------------------------------------------------------------------------------------------- */

/* Written once, so that a sync in a turn has no blocks to allocate. */
static void prepare_log(const char *path)
{
    static const uint8_t zeros[1 << 20];
    log_fd = open(path, O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    if (log_fd < 0)
        fail("%s: %s", path, strerror(errno));
    for (size_t offset = 0; offset < FILE_BYTES; offset += sizeof zeros)
        if (pwrite(log_fd, zeros, sizeof zeros, (off_t)offset) != (ssize_t)sizeof zeros)
            fail("%s: cannot be filled: %s", path, strerror(errno));
    if (fsync(log_fd))
        fail("%s: fsync: %s", path, strerror(errno));
}

static void read_answers(const char *path)
{
    static uint8_t bytes[ANSWERS_BYTES_MAX];
    FILE *file = fopen(path, "rb");
    size_t count = file ? fread(bytes, 1, sizeof bytes, file) : 0, size;
    if (!file || ferror(file) || !count || count == sizeof bytes)
        fail("%s: cannot be read, is empty or too long", path);
    fclose(file);
    for (const uint8_t *at = bytes; at < bytes + count; at += 1 + size) {
        size_t left = (size_t)(bytes + count - at) - 1;
        size = left >= HEAD ? (size_t)u32(at + 1) + 4 : 0;
        if (size < HEAD || size > left)
            fail("%s: a frame is cut", path);
        answers[*at].frame = at + 1;
        answers[*at].bytes = size;
    }
}

static void listen_on(const char *port)
{
    char *end;
    long number = strtol(port, &end, 10);
    if (*end || number < 1 || number > 65535)
        fail("not a port: %s", port);
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_port = htons((uint16_t)number), .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    struct epoll_event event = {.events = EPOLLIN};
    int one = 1;
    listener = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    setsockopt(listener, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one);
    epoll_fd = epoll_create1(EPOLL_CLOEXEC);
    if (bind(listener, (struct sockaddr *)&address, sizeof address) || listen(listener, CLIENTS_MAX) ||
        epoll_ctl(epoll_fd, EPOLL_CTL_ADD, listener, &event))
        fail("port %s: %s", port, strerror(errno));
}

int main(int count, char **arguments)
{
    if (count != 4)
        fail("usage: floor PORT FILE ANSWERS");
    for (int i = 0; i < CLIENTS_MAX; i++)
        clients[i].fd = -1;
    read_answers(arguments[3]);
    prepare_log(arguments[2]);
    listen_on(arguments[1]);
    for (;;)
        turn();
}
