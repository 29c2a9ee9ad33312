/* One load driver for every broker: see driver.c. A wire format only cuts frames and builds acknowledgements. */
#ifndef DRIVER_H
#define DRIVER_H

#include <stddef.h>
#include <stdint.h>

enum { PATCHES_MAX = 8 };

/* A growing byte buffer: [begin, end) is what has not been written or read yet. */
struct buffer {
    uint8_t *bytes;
    size_t begin, end, capacity;
};

struct patch {
    size_t offset;
    char kind;     /* 'Q' u64, 'I' u32, both big-endian; 16 hexadecimal digits: 'X' in ASCII, 'W' in UTF-16-LE */
    uint64_t base; /* added to the message's sequence */
    int body;      /* the number in the body: the producer's index is in its upper bits */
};

struct connection {
    int fd, index, is_producer, wants_write;
    struct buffer in, out;
    /* of a producer; frame lies in the plan's file, which is mapped for this process alone */
    uint8_t *frame;
    size_t frame_bytes;
    struct patch patches[PATCHES_MAX];
    int patch_count;
    uint64_t sent, confirmed, oldest; /* oldest: the first that may wait for its confirmation */
    uint64_t *sent_ns; /* by sequence modulo the ring; 0 = not outstanding */
    uint64_t due_ns;
    struct queue *queue;
    /* of a consumer */
    uint8_t *start, *acknowledgement;
    size_t start_bytes, acknowledgement_bytes;
    uint64_t unacknowledged, unacknowledged_bytes;
    struct {
        int open;         /* announced, not all of it there */
        uint8_t id[8];    /* as the broker numbers it */
        uint8_t number[8]; /* the first bytes of its body */
        uint64_t bytes;
    } large;
};

struct queue {
    uint64_t sent, delivered;
};

/* What a wire format calls. */
void confirmed(struct connection *producer, uint64_t sequence, int all_before);
void delivered(struct connection *consumer, const uint8_t *body, size_t body_bytes, size_t frame_bytes);
int acknowledgement_due(struct connection *consumer);
void reserve(struct buffer *buffer, size_t count); /* so that so many bytes fit after its end */
void put(struct buffer *buffer, const void *bytes, size_t count);
void fail(const char *format, ...) __attribute__((noreturn, format(printf, 1, 2)));

/* Take whole frames from [bytes, bytes + count); returns how many bytes they were. */
typedef size_t take_frames(struct connection *connection, const uint8_t *bytes, size_t count);
take_frames take_core, take_amqp, take_openwire, take_nats;

static inline uint16_t u16(const uint8_t *at) { return (uint16_t)(at[0] << 8 | at[1]); }
static inline uint32_t u32(const uint8_t *at) { uint32_t value; __builtin_memcpy(&value, at, 4); return __builtin_bswap32(value); }
static inline uint64_t u64(const uint8_t *at) { uint64_t value; __builtin_memcpy(&value, at, 8); return __builtin_bswap64(value); }
static inline void set32(uint8_t *at, uint32_t value) { value = __builtin_bswap32(value); __builtin_memcpy(at, &value, 4); }
static inline void set64(uint8_t *at, uint64_t value) { value = __builtin_bswap64(value); __builtin_memcpy(at, &value, 8); }

#endif
