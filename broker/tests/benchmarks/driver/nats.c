/* NATS JetStream: lines of text that end with CR LF; messages have a payload behind their line.
 *
 * A send is a PUB or HPUB whose reply subject ends with the sequence in 16 hexadecimal digits; its confirmation is a
 * message to that subject. A delivery has the reply subject $JS.ACK.STREAM.CONSUMER.COUNT.…, to which an empty message
 * is an acknowledgement of it and of all before (policy "all").
 */
#define _GNU_SOURCE
#include "driver.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { WORDS_MAX = 6, DIGITS = 16, LINE_BYTES_MAX = 4096 };

struct word {
    const char *text;
    size_t bytes;
};

static int words_of(const char *line, size_t bytes, struct word *words)
{
    int count = 0;
    const char *end = line + bytes;
    while (line < end) {
        const char *space = memchr(line, ' ', (size_t)(end - line));
        size_t length = (size_t)((space ? space : end) - line);
        if (count == WORDS_MAX)
            fail("a line of more than %d words", WORDS_MAX);
        words[count++] = (struct word){line, length};
        line += length + 1;
    }
    return count;
}

static size_t number_of(struct word word)
{
    size_t number = 0;
    for (size_t i = 0; i < word.bytes; i++) {
        if (word.text[i] < '0' || word.text[i] > '9')
            fail("not a number: %.*s", (int)word.bytes, word.text);
        number = number * 10 + (size_t)(word.text[i] - '0');
    }
    return number;
}

static void take_confirmation(struct connection *producer, struct word subject, const char *payload, size_t bytes)
{
    uint64_t sequence = 0;
    if (subject.bytes < DIGITS)
        fail("a confirmation to %.*s", (int)subject.bytes, subject.text);
    for (const char *at = subject.text + subject.bytes - DIGITS; at < subject.text + subject.bytes; at++) {
        const char *digits = "0123456789abcdef", *digit = *at ? strchr(digits, *at) : NULL;
        if (!digit)
            fail("a confirmation to %.*s", (int)subject.bytes, subject.text);
        sequence = sequence << 4 | (uint64_t)(digit - digits);
    }
    if (!memmem(payload, bytes, "\"seq\":", 6) || memmem(payload, bytes, "\"error\":", 8))
        fail("not confirmed: %.*s", (int)(bytes < 200 ? bytes : 200), payload);
    if (memmem(payload, bytes, "\"duplicate\":", 12))
        fail("taken for a duplicate: %.*s", (int)(bytes < 200 ? bytes : 200), payload);
    confirmed(producer, sequence, 0);
}

/* Subject $JS.ACK.STREAM.CONSUMER.COUNT.…: the number of times it was delivered. */
static size_t delivery_count(struct word reply)
{
    const char *at = reply.text, *end = reply.text + reply.bytes;
    for (int i = 0; i < 4 && at; i++)
        at = memchr(at, '.', (size_t)(end - at)) ? (char *)memchr(at, '.', (size_t)(end - at)) + 1 : NULL;
    const char *dot = at ? memchr(at, '.', (size_t)(end - at)) : NULL;
    if (!dot)
        fail("a delivery with the reply subject %.*s", (int)reply.bytes, reply.text);
    return number_of((struct word){at, (size_t)(dot - at)});
}

static void acknowledge(struct connection *consumer, struct word reply)
{
    put(&consumer->out, "PUB ", 4);
    put(&consumer->out, reply.text, reply.bytes);
    put(&consumer->out, " 0\r\n\r\n", 6);
    consumer->unacknowledged = consumer->unacknowledged_bytes = 0;
}

/* MSG subject subscription [reply] bytes, HMSG subject subscription [reply] header-bytes bytes; 0 = not all is there. */
static size_t take_message(struct connection *connection, const char *line, size_t line_bytes, size_t count)
{
    struct word words[WORDS_MAX];
    int has_header = line[0] == 'H', word_count = words_of(line, line_bytes - 2, words), sizes = has_header ? 2 : 1;
    if (word_count < 3 + sizes)
        fail("bad line: %.*s", (int)line_bytes, line);
    size_t bytes = number_of(words[word_count - 1]), header_bytes = has_header ? number_of(words[word_count - 2]) : 0;
    if (count < line_bytes + bytes + 2)
        return 0;
    if (header_bytes > bytes)
        fail("bad line: %.*s", (int)line_bytes, line);
    const char *payload = line + line_bytes + header_bytes;
    size_t payload_bytes = bytes - header_bytes, size = line_bytes + bytes + 2;
    if (connection->is_producer) {
        take_confirmation(connection, words[1], payload, payload_bytes);
        return size;
    }
    if (word_count < 4 + sizes || payload_bytes < 8)
        fail("not a delivery: %.*s", (int)line_bytes, line);
    if (delivery_count(words[3]) != 1)
        fail("delivery marked redelivered");
    delivered(connection, (const uint8_t *)payload, payload_bytes, size);
    if (acknowledgement_due(connection))
        acknowledge(connection, words[3]);
    return size;
}

static int begins(const char *line, size_t bytes, const char *word)
{
    return bytes >= strlen(word) && !memcmp(line, word, strlen(word));
}

size_t take_nats(struct connection *connection, const uint8_t *bytes, size_t count)
{
    size_t taken = 0;
    while (taken < count) {
        const char *line = (const char *)bytes + taken, *feed = memchr(line, '\n', count - taken);
        if (!feed) {
            if (count - taken > LINE_BYTES_MAX)
                fail("a line of more than %d bytes", LINE_BYTES_MAX);
            break;
        }
        size_t line_bytes = (size_t)(feed + 1 - line), size = line_bytes;
        if (line_bytes < 2 || feed[-1] != '\r')
            fail("a line without CR LF");
        if (begins(line, line_bytes, "MSG ") || begins(line, line_bytes, "HMSG "))
            size = take_message(connection, line, line_bytes, count - taken);
        else if (begins(line, line_bytes, "PING"))
            put(&connection->out, "PONG\r\n", 6);
        else if (begins(line, line_bytes, "-ERR"))
            fail("the broker reports: %.*s", (int)(line_bytes - 2), line);
        if (!size)
            break;
        taken += size;
    }
    return taken;
}
