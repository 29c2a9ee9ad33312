/* One load driver for every broker, fast enough not to be what is measured.
 *
 * The connections come open, logged in and with their queues declared, as inherited descriptors; standard input
 * says what to do with them, one setting per line. Frames are prepared: sending one is a copy and a few numbers
 * written over. They lie in an inherited file, because a message may have 100 MB. Replies are cut in batches by a wire
 * format (core.c, amqp.c, openwire.c, nats.c).
 *
 * Every message carries (producer << 40 | sequence). Every confirmation must be for a message that waits for one,
 * every delivery must be the next of its producer in its queue and of the size that was sent: anything lost, repeated,
 * cut or out of order ends the run with an error. Consumers that share a queue each get a producer's messages in their
 * order, and each message comes to one of them. After the window everything sent must be confirmed and delivered. Prints
 * one line of JSON.
 */
#define _GNU_SOURCE
#include "driver.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

enum { CONNECTIONS_MAX = 512, RING = 1 << 13, IN_BYTES = 1 << 20, OUT_BYTES = 1 << 18, PIDS_MAX = 64, DRAIN_S = 90 };
enum { LATENCIES_MAX = 1 << 20, TURN_NS = 10000000 };

static struct connection connections[CONNECTIONS_MAX], *consumers[CONNECTIONS_MAX];
static struct queue queues[CONNECTIONS_MAX];
static uint64_t next_of_producer[CONNECTIONS_MAX][CONNECTIONS_MAX]; /* by queue, of a shared queue by consumer */
static struct seen {
    uint8_t *bits;
    uint64_t count;
} seen_of_producer[CONNECTIONS_MAX];
static int connection_count, consumer_count, epoll_fd, pids[PIDS_MAX], pid_count, measuring;
static take_frames *take;
static uint64_t queues_of_producer = 1; /* a producer sends to so many queues in turn */
static uint64_t in_flight = 1, ack_batch = 50, backlog_max = 50000, rate, warmup_ms = 1000, window_ms = 3000;
static uint64_t expected_bytes; /* of every body */
static int consume_during, shared_queues;
static uint8_t *frames;
static size_t frames_bytes;
static uint64_t total_sent, total_confirmed, total_delivered, latency_count;
static uint32_t latencies_us[LATENCIES_MAX];

void fail(const char *format, ...)
{
    va_list arguments;
    char text[300];
    va_start(arguments, format);
    vsnprintf(text, sizeof text, format, arguments);
    va_end(arguments);
    fprintf(stderr, "%s (sent %lu, confirmed %lu, delivered %lu)\n", text, total_sent, total_confirmed, total_delivered);
    exit(1);
}

static uint64_t now_ns(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

/* --- what the wire formats report ------------------------------------------------------------------------ */

static void confirm_one(struct connection *producer, uint64_t sequence, uint64_t now)
{
    uint64_t *slot = &producer->sent_ns[sequence % RING];
    if (sequence >= producer->sent || !*slot)
        fail("producer %d: confirmation of %lu, which does not wait for one", producer->index, sequence);
    if (measuring && latency_count < LATENCIES_MAX)
        latencies_us[latency_count++] = (uint32_t)((now - *slot) / 1000);
    *slot = 0;
    producer->confirmed++;
    total_confirmed++;
}

void confirmed(struct connection *producer, uint64_t sequence, int all_before)
{
    uint64_t now = measuring ? now_ns() : 0;
    if (all_before)
        for (uint64_t each = producer->oldest; each < sequence; each++)
            if (producer->sent_ns[each % RING])
                confirm_one(producer, each, now);
    confirm_one(producer, sequence, now);
    while (producer->oldest < producer->sent && !producer->sent_ns[producer->oldest % RING])
        producer->oldest++;
}

/* The first delivery of a message whose queue has several consumers. */
static void see(uint64_t producer, uint64_t sequence)
{
    struct seen *seen = &seen_of_producer[producer];
    if (sequence >= seen->count) {
        uint64_t count = 2 * sequence + (1 << 20);
        seen->bits = realloc(seen->bits, count / 8 + 1);
        memset(seen->bits + seen->count / 8, 0, count / 8 + 1 - seen->count / 8);
        seen->count = count / 8 * 8;
    }
    if (seen->bits[sequence / 8] >> sequence % 8 & 1)
        fail("producer %lu: two deliveries of %lu", producer, sequence);
    seen->bits[sequence / 8] |= (uint8_t)(1 << sequence % 8);
}

void delivered(struct connection *consumer, const uint8_t *body, size_t body_bytes, size_t frame_bytes)
{
    if (body_bytes != expected_bytes)
        fail("delivery of %zu bytes where %lu were sent", body_bytes, expected_bytes);
    uint64_t number = u64(body), producer = number >> 40, sequence = number & 0xFFFFFFFFFFu;
    if (producer >= CONNECTIONS_MAX)
        fail("delivery of an unknown producer %lu", producer);
    uint64_t queue = (uint64_t)(consumer->queue - queues);
    uint64_t *next = &next_of_producer[shared_queues ? consumer->index : (int)queue][producer];
    uint64_t expected = *next ? *next : queue % queues_of_producer;
    if (shared_queues ? sequence < expected : sequence != expected)
        fail("producer %lu: delivery of %lu where %lu was next", producer, sequence, expected);
    *next = sequence + queues_of_producer;
    if (shared_queues)
        see(producer, sequence);
    consumer->queue->delivered++;
    consumer->unacknowledged++;
    consumer->unacknowledged_bytes += frame_bytes;
    total_delivered++;
}

int acknowledgement_due(struct connection *consumer)
{
    return consumer->unacknowledged >= ack_batch || (!consume_during && consumer->queue->delivered == consumer->queue->sent);
}

/* --- sending and receiving ------------------------------------------------------------------------------- */

/* 16 hexadecimal digits, ``step`` bytes from one to the next. */
static void set_digits(uint8_t *at, uint64_t number, int step)
{
    for (int i = 15; i >= 0; i--, number >>= 4)
        at[i * step] = (uint8_t)"0123456789abcdef"[number & 15];
}

static void write_numbers(struct connection *producer, uint8_t *frame, uint64_t sequence)
{
    for (int i = 0; i < producer->patch_count; i++) {
        struct patch *patch = &producer->patches[i];
        uint8_t *at = frame + patch->offset;
        uint64_t number = sequence + patch->base + (patch->body ? (uint64_t)producer->index << 40 : 0);
        switch (patch->kind) {
        case 'I':
            set32(at, (uint32_t)number);
            break;
        case 'Q':
            set64(at, number);
            break;
        case 'X':
            set_digits(at, number, 1);
            break;
        case 'W':
            set_digits(at, number, 2);
            break;
        }
    }
}

static void send_one(struct connection *producer, uint64_t now)
{
    uint64_t sequence = producer->sent++, turn = sequence % queues_of_producer;
    uint8_t *frame = producer->frame + turn * producer->frame_bytes;
    write_numbers(producer, frame, sequence);
    put(&producer->out, frame, producer->frame_bytes);
    producer->sent_ns[sequence % RING] = now;
    producer->queue[turn].sent++;
    total_sent++;
}

static void produce(struct connection *producer, uint64_t now)
{
    struct queue *queue = producer->queue;
    while (producer->sent - producer->confirmed < in_flight && producer->out.end - producer->out.begin < OUT_BYTES) {
        if (consume_during && queue->sent - queue->delivered >= backlog_max)
            return;
        if (producer->sent - producer->oldest >= RING)
            return;
        if (rate) {
            if (producer->due_ns > now)
                return;
            producer->due_ns += 1000000000u / rate;
        }
        send_one(producer, now);
    }
}

static void watch(struct connection *connection, int wants_write)
{
    struct epoll_event event = {.events = EPOLLIN | (wants_write ? EPOLLOUT : 0), .data.ptr = connection};
    if (connection->wants_write != wants_write && epoll_ctl(epoll_fd, EPOLL_CTL_MOD, connection->fd, &event))
        fail("epoll_ctl: %s", strerror(errno));
    connection->wants_write = wants_write;
}

static void flush(struct connection *connection)
{
    struct buffer *out = &connection->out;
    while (out->begin < out->end) {
        ssize_t count = send(connection->fd, out->bytes + out->begin, out->end - out->begin, MSG_NOSIGNAL | MSG_DONTWAIT);
        if (count < 0 && errno == EAGAIN)
            break;
        if (count < 0)
            fail("the broker closed a connection: send: %s", strerror(errno));
        out->begin += (size_t)count;
    }
    watch(connection, out->begin < out->end);
}

static void receive(struct connection *connection)
{
    struct buffer *in = &connection->in;
    ssize_t count = read(connection->fd, in->bytes + in->end, in->capacity - in->end);
    if (count < 0 && errno == EAGAIN)
        return;
    if (count <= 0)
        fail("the broker closed a connection: %s", count ? strerror(errno) : "end of stream");
    in->end += (size_t)count;
    in->begin += take(connection, in->bytes + in->begin, in->end - in->begin);
    if (in->begin == in->end) {
        in->begin = in->end = 0;
    } else if (in->begin && in->capacity - in->end < in->capacity / 2) {
        memmove(in->bytes, in->bytes + in->begin, in->end - in->begin);
        in->end -= in->begin;
        in->begin = 0;
    }
    if (in->end == in->capacity) /* one frame is larger */
        in->bytes = realloc(in->bytes, in->capacity *= 2);
}

/* One turn: what is ready, then what may be sent. */
static void turn(int64_t timeout_ns, int producing)
{
    struct epoll_event events[128];
    struct timespec timeout = {timeout_ns / 1000000000, timeout_ns % 1000000000};
    int count = epoll_pwait2(epoll_fd, events, 128, &timeout, NULL);
    for (int i = 0; i < count; i++) {
        struct connection *connection = events[i].data.ptr;
        if (events[i].events & (EPOLLIN | EPOLLHUP | EPOLLERR))
            receive(connection);
    }
    uint64_t now = now_ns();
    for (int i = 0; i < connection_count; i++) {
        struct connection *connection = &connections[i];
        if (producing && connection->is_producer)
            produce(connection, now);
        if (connection->out.begin < connection->out.end)
            flush(connection);
    }
}

/* --- measuring ------------------------------------------------------------------------------------------- */

struct figures {
    uint64_t at_ns, confirmed, delivered;
    double driver_cpu_s, broker_cpu_s;
};

static double broker_cpu_s(void)
{
    double sum = 0;
    for (int i = 0; i < pid_count; i++) {
        char path[64], text[2048];
        unsigned long user, system;
        long user_children, system_children;
        snprintf(path, sizeof path, "/proc/%d/stat", pids[i]);
        FILE *file = fopen(path, "r");
        size_t count = file ? fread(text, 1, sizeof text - 1, file) : 0;
        text[count] = 0;
        if (file)
            fclose(file);
        char *behind_name = strrchr(text, ')');
        if (behind_name && sscanf(behind_name + 1, " %*c %*d %*d %*d %*d %*d %*u %*u %*u %*u %*u %lu %lu %ld %ld", &user,
                                  &system, &user_children, &system_children) == 4)
            sum += (double)(user + system + (unsigned long)user_children + (unsigned long)system_children);
    }
    return sum / (double)sysconf(_SC_CLK_TCK);
}

static double broker_resident_mib(void)
{
    double sum = 0;
    for (int i = 0; i < pid_count; i++) {
        char path[64];
        unsigned long pages = 0;
        snprintf(path, sizeof path, "/proc/%d/statm", pids[i]);
        FILE *file = fopen(path, "r");
        if (file && fscanf(file, "%*u %lu", &pages) == 1)
            sum += (double)pages * (double)sysconf(_SC_PAGESIZE) / 1048576;
        if (file)
            fclose(file);
    }
    return sum;
}

static struct figures figures_now(void)
{
    struct rusage usage;
    getrusage(RUSAGE_SELF, &usage);
    return (struct figures){
        now_ns(), total_confirmed, total_delivered,
        (double)(usage.ru_utime.tv_sec + usage.ru_stime.tv_sec) + (double)(usage.ru_utime.tv_usec + usage.ru_stime.tv_usec) / 1e6,
        broker_cpu_s(),
    };
}

static int ascending(const void *left, const void *right)
{
    uint32_t a = *(const uint32_t *)left, b = *(const uint32_t *)right;
    return (a > b) - (a < b);
}

static uint32_t percentile(double share)
{
    return latency_count ? latencies_us[(uint64_t)((double)(latency_count - 1) * share)] : 0;
}

/* --- what to do ------------------------------------------------------------------------------------------ */

static size_t from_hex(const char *text, uint8_t **bytes)
{
    size_t count = strlen(text) / 2;
    *bytes = malloc(count + 1);
    for (size_t i = 0; i < count; i++)
        if (sscanf(text + 2 * i, "%2hhx", *bytes + i) != 1)
            fail("not hexadecimal: %.20s", text);
    return count;
}

static struct connection *add_connection(int fd, int queue, int is_producer)
{
    if (connection_count == CONNECTIONS_MAX)
        fail("more than %d connections", CONNECTIONS_MAX);
    struct connection *connection = &connections[connection_count];
    connection->fd = fd;
    connection->index = connection_count++;
    connection->is_producer = is_producer;
    connection->queue = &queues[queue];
    connection->in = (struct buffer){malloc(IN_BYTES), 0, 0, IN_BYTES};
    connection->out = (struct buffer){malloc(OUT_BYTES), 0, 0, OUT_BYTES};
    struct epoll_event event = {.events = EPOLLIN, .data.ptr = connection};
    if (epoll_ctl(epoll_fd, EPOLL_CTL_ADD, fd, &event))
        fail("epoll_ctl: %s", strerror(errno));
    return connection;
}

static void map_frames(int fd)
{
    struct stat facts;
    if (fstat(fd, &facts))
        fail("frames: %s", strerror(errno));
    frames_bytes = (size_t)facts.st_size;
    frames = mmap(NULL, frames_bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE, fd, 0);
    if (frames == MAP_FAILED)
        fail("frames: %s", strerror(errno));
}

/* producer FD QUEUE OFFSET BYTES (its frame, and behind it those for the queues after its first one) then for each number to write over: OFFSET:KIND:BASE:BODY */
static void add_producer(char *rest)
{
    char *fd = strtok(rest, " "), *queue = strtok(NULL, " "), *offset = strtok(NULL, " "), *bytes = strtok(NULL, " ");
    struct connection *producer = add_connection(atoi(fd), atoi(queue), 1);
    size_t begin = strtoull(offset, NULL, 10);
    producer->frame_bytes = strtoull(bytes, NULL, 10);
    if (begin > frames_bytes || queues_of_producer * producer->frame_bytes > frames_bytes - begin)
        fail("frame outside of the file: %zu bytes at %zu", producer->frame_bytes, begin);
    producer->frame = frames + begin;
    producer->sent_ns = calloc(RING, sizeof *producer->sent_ns);
    for (char *text = strtok(NULL, " "); text; text = strtok(NULL, " ")) {
        if (producer->patch_count == PATCHES_MAX)
            fail("more than %d numbers in a frame", PATCHES_MAX);
        struct patch *patch = &producer->patches[producer->patch_count++];
        if (sscanf(text, "%zu:%c:%lu:%d", &patch->offset, &patch->kind, &patch->base, &patch->body) != 4
            || !strchr("IQXW", patch->kind)
            || patch->offset + (patch->kind == 'W' ? 32 : patch->kind == 'X' ? 16 : patch->kind == 'Q' ? 8 : 4) > producer->frame_bytes)
            fail("bad number in a frame: %s", text);
    }
}

/* consumer FD QUEUE START ACKNOWLEDGEMENT ('-' = none) */
static void add_consumer(char *rest)
{
    char *fd = strtok(rest, " "), *queue = strtok(NULL, " "), *start = strtok(NULL, " "), *prepared = strtok(NULL, " ");
    struct connection *consumer = add_connection(atoi(fd), atoi(queue), 0);
    consumer->start_bytes = from_hex(start, &consumer->start);
    if (strcmp(prepared, "-"))
        consumer->acknowledgement_bytes = from_hex(prepared, &consumer->acknowledgement);
    consumers[consumer_count++] = consumer;
}

static take_frames *wire_format(const char *name)
{
    static const struct {
        const char *name;
        take_frames *take;
    } known[] = {{"core", take_core}, {"amqp", take_amqp}, {"openwire", take_openwire}, {"nats", take_nats}};
    for (size_t i = 0; i < sizeof known / sizeof *known; i++)
        if (!strcmp(name, known[i].name))
            return known[i].take;
    fail("unknown protocol %s", name);
}

static void read_plan(void)
{
    char *line = NULL;
    size_t capacity = 0;
    while (getline(&line, &capacity, stdin) > 0) {
        line[strcspn(line, "\n")] = 0;
        char *value = strchr(line, ' ');
        if (!value)
            fail("bad line: %s", line);
        *value++ = 0;
        if (!strcmp(line, "protocol"))
            take = wire_format(value);
        else if (!strcmp(line, "frames"))
            map_frames(atoi(value));
        else if (!strcmp(line, "body_bytes"))
            expected_bytes = strtoull(value, NULL, 10);
        else if (!strcmp(line, "in_flight"))
            in_flight = strtoull(value, NULL, 10);
        else if (!strcmp(line, "ack_batch"))
            ack_batch = strtoull(value, NULL, 10);
        else if (!strcmp(line, "queues_of_producer"))
            queues_of_producer = strtoull(value, NULL, 10);
        else if (!strcmp(line, "shared_queues"))
            shared_queues = atoi(value);
        else if (!strcmp(line, "backlog_max"))
            backlog_max = strtoull(value, NULL, 10);
        else if (!strcmp(line, "rate"))
            rate = strtoull(value, NULL, 10);
        else if (!strcmp(line, "warmup_ms"))
            warmup_ms = strtoull(value, NULL, 10);
        else if (!strcmp(line, "window_ms"))
            window_ms = strtoull(value, NULL, 10);
        else if (!strcmp(line, "consume_during"))
            consume_during = atoi(value);
        else if (!strcmp(line, "producer"))
            add_producer(value);
        else if (!strcmp(line, "consumer"))
            add_consumer(value);
        else if (!strcmp(line, "pids"))
            for (char *pid = strtok(value, " "); pid && pid_count < PIDS_MAX; pid = strtok(NULL, " "))
                pids[pid_count++] = atoi(pid);
        else
            fail("unknown setting %s", line);
    }
    if (in_flight > RING)
        fail("at most %d unconfirmed", RING);
}

static void start_consumers(void)
{
    for (int i = 0; i < consumer_count; i++)
        put(&consumers[i]->out, consumers[i]->start, consumers[i]->start_bytes);
}

static void run_until(uint64_t end_ns)
{
    for (uint64_t now = now_ns(); now < end_ns; now = now_ns()) {
        uint64_t until_ns = now + TURN_NS < end_ns ? now + TURN_NS : end_ns;
        for (int i = 0; rate && i < connection_count; i++)
            if (connections[i].is_producer && connections[i].due_ns < until_ns)
                until_ns = connections[i].due_ns;
        turn(until_ns > now ? (int64_t)(until_ns - now) : 0, 1);
    }
}

/* Everything sent must come to its end: confirmed and delivered. */
static void drain(void)
{
    uint64_t end_ns = now_ns() + (uint64_t)DRAIN_S * 1000000000u;
    while (total_confirmed < total_sent && now_ns() < end_ns)
        turn(TURN_NS, 0);
    if (!consume_during)
        start_consumers();
    while (total_delivered < total_sent && now_ns() < end_ns)
        turn(TURN_NS, 0);
    if (total_confirmed != total_sent || total_delivered != total_sent)
        fail("not everything was confirmed and delivered within %d s", DRAIN_S);
    /* anything that comes now is one too many, and ends the run in delivered() or confirmed() */
    for (uint64_t quiet_ns = now_ns() + 50000000u; now_ns() < quiet_ns;)
        turn(TURN_NS, 0);
}

int main(void)
{
    epoll_fd = epoll_create1(0);
    read_plan();
    uint64_t begin_ns = now_ns();
    for (int i = 0; i < connection_count; i++)
        connections[i].due_ns = begin_ns;
    if (consume_during)
        start_consumers();
    run_until(begin_ns + warmup_ms * 1000000u);
    struct figures before = figures_now();
    measuring = 1;
    run_until(before.at_ns + window_ms * 1000000u);
    measuring = 0;
    struct figures after = figures_now();
    double resident_mib = broker_resident_mib();
    drain();
    uint64_t done = after.confirmed - before.confirmed;
    if (consume_during && after.delivered - before.delivered < done)
        done = after.delivered - before.delivered;
    if (!done)
        fail("nothing was done in the window");
    qsort(latencies_us, latency_count, sizeof *latencies_us, ascending);
    printf("{\"messages\": %lu, \"per_s\": %.1f, \"driver_cpu_us\": %.2f, \"broker_cpu_us\": %.2f, \"resident_mib\": %.1f, "
           "\"p50_us\": %u, \"p99_us\": %u, \"total\": %lu}\n",
           done, (double)done * 1e9 / (double)(after.at_ns - before.at_ns), (after.driver_cpu_s - before.driver_cpu_s) * 1e6 / (double)done,
           (after.broker_cpu_s - before.broker_cpu_s) * 1e6 / (double)done, resident_mib, percentile(0.5), percentile(0.99), total_sent);
    return 0;
}
