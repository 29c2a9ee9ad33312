/* The growing buffer of the driver and the floor. */
#include "driver.h"

#include <stdlib.h>
#include <string.h>

void reserve(struct buffer *buffer, size_t count)
{
    if (buffer->begin == buffer->end)
        buffer->begin = buffer->end = 0;
    if (count <= buffer->capacity - buffer->end)
        return;
    if (buffer->begin > buffer->capacity / 2) { /* moving less than half of it pays off */
        memmove(buffer->bytes, buffer->bytes + buffer->begin, buffer->end - buffer->begin);
        buffer->end -= buffer->begin;
        buffer->begin = 0;
    }
    while (count > buffer->capacity - buffer->end) {
        buffer->capacity = buffer->capacity ? 2 * buffer->capacity : 4096;
        buffer->bytes = realloc(buffer->bytes, buffer->capacity);
        if (!buffer->bytes)
            fail("no memory for %zu bytes", buffer->capacity);
    }
}

void put(struct buffer *buffer, const void *bytes, size_t count)
{
    reserve(buffer, count);
    memcpy(buffer->bytes + buffer->end, bytes, count);
    buffer->end += count;
}
