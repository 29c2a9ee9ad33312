/* The least that a broker can do with a durable message: one thread reads frames from a socket into one buffer, writes
 * them to a file and syncs it, confirms them to the producer with 21 bytes each, and sends them to a consumer. No
 * checksum, no parsing but the length of a frame, no acknowledgements. Producer and consumer are processes of their own.
 *
 * floor FILE FRAME_BYTES IN_FLIGHT SECONDS: prints one JSON object with the CPU time of that thread for each message.
 */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define ANSWER_BYTES 21
#define BUFFER_BYTES (8 << 20)
#define FILE_BYTES (64 << 20)

static void fail(const char *what) {
    perror(what);
    exit(1);
}

static double seconds(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return now.tv_sec + now.tv_nsec / 1e9;
}

static double cpu_seconds(void) {
    struct rusage usage;
    getrusage(RUSAGE_SELF, &usage);
    return usage.ru_utime.tv_sec + usage.ru_stime.tv_sec + (usage.ru_utime.tv_usec + usage.ru_stime.tv_usec) / 1e6;
}

static int listener(struct sockaddr_in *where) {
    int one = socket(AF_INET, SOCK_STREAM, 0);
    socklen_t length = sizeof *where;
    memset(where, 0, sizeof *where);
    where->sin_family = AF_INET;
    where->sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    if (one < 0 || bind(one, (struct sockaddr *)where, sizeof *where) || listen(one, 2) ||
        getsockname(one, (struct sockaddr *)where, &length))
        fail("listen");
    return one;
}

static int dial(const struct sockaddr_in *where) {
    int one = socket(AF_INET, SOCK_STREAM, 0), on = 1;
    if (one < 0 || connect(one, (const struct sockaddr *)where, sizeof *where)) fail("connect");
    setsockopt(one, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    return one;
}

static void send_all(int to, const char *data, size_t length) {
    while (length) {
        ssize_t sent = send(to, data, length, MSG_NOSIGNAL);
        if (sent <= 0) exit(0);
        data += sent;
        length -= sent;
    }
}

static void produce(const struct sockaddr_in *where, size_t frame_bytes, long in_flight) {
    int to = dial(where);
    char *frame = calloc(1, frame_bytes), answers[65536];
    long room = in_flight * ANSWER_BYTES;
    for (;;) {
        while (room < ANSWER_BYTES) {
            ssize_t got = recv(to, answers, sizeof answers, 0);
            if (got <= 0) exit(0);
            room += got;
        }
        room -= ANSWER_BYTES;
        send_all(to, frame, frame_bytes);
    }
}

static void consume(const struct sockaddr_in *where) {
    int from = dial(where);
    char *data = malloc(1 << 20);
    while (recv(from, data, 1 << 20, 0) > 0) {
    }
    exit(0);
}

int main(int count, char **arguments) {
    if (count != 5) return 2;
    size_t frame_bytes = atol(arguments[2]), held = 0;
    long in_flight = atol(arguments[3]), messages = 0, syncs = 0;
    double window = atof(arguments[4]);
    struct sockaddr_in in_at, out_at;
    int in_listener = listener(&in_at), out_listener = listener(&out_at);
    pid_t producer = fork();
    if (!producer) produce(&in_at, frame_bytes, in_flight);
    pid_t consumer = fork();
    if (!consumer) consume(&out_at);
    int in = accept(in_listener, NULL, NULL), out = accept(out_listener, NULL, NULL), on = 1;
    int file = open(arguments[1], O_RDWR | O_CREAT | O_TRUNC, 0600);
    if (file < 0 || posix_fallocate(file, 0, FILE_BYTES)) fail(arguments[1]);
    setsockopt(in, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    setsockopt(out, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    char *buffer = malloc(BUFFER_BYTES), *answers = calloc(BUFFER_BYTES / frame_bytes + 2, ANSWER_BYTES);
    memset(buffer, 1, BUFFER_BYTES);
    off_t at = 0;
    double began = seconds(), cpu_began = cpu_seconds(), now = began;
    while ((now = seconds()) < began + window) {
        struct pollfd ready = {.fd = in, .events = POLLIN};
        poll(&ready, 1, 100);
        /* all that has come, up to a buffer */
        while (held < BUFFER_BYTES) {
            ssize_t got = recv(in, buffer + held, BUFFER_BYTES - held, MSG_DONTWAIT);
            if (got <= 0) break;
            held += got;
        }
        size_t whole = held / frame_bytes, bytes = whole * frame_bytes;
        if (!whole) continue;
        if (at + (off_t)bytes > FILE_BYTES) at = 0;
        if (pwrite(file, buffer, bytes, at) != (ssize_t)bytes || fdatasync(file)) fail("write");
        at += bytes;
        send_all(in, answers, whole * ANSWER_BYTES);
        send_all(out, buffer, bytes);
        memmove(buffer, buffer + bytes, held - bytes);
        held -= bytes;
        messages += whole;
        syncs++;
    }
    double took = seconds() - began, cpu = cpu_seconds() - cpu_began;
    close(in);
    close(out);
    waitpid(producer, NULL, 0);
    waitpid(consumer, NULL, 0);
    unlink(arguments[1]);
    printf("{\"messages\": %ld, \"syncs\": %ld, \"per_s\": %.1f, \"cpu_us\": %.4f}\n", messages, syncs, messages / took,
           messages ? cpu * 1e6 / messages : 0.0);
    return 0;
}
