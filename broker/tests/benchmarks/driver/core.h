/* Frames of CORE: length i32 (of what follows it), type i8, channel i64, body. What the driver and the floor know of them. */
#ifndef CORE_H
#define CORE_H

enum { HEAD = 13 }; /* length, type and channel */
enum { DISCONNECT = 11, EXCEPTION = 20, NULL_RESPONSE = 21, CREATE_CONSUMER = 40, ACKNOWLEDGE = 41, SESSION_START = 67 };
enum { FLOW_TOKEN = 70, SEND = 71, RECEIVE = 75, RECEIVE_LARGE = 76, RECEIVE_CONTINUATION = 77 };

/* A message: offset i32 of the end of its body, counted with 13 bytes that are not there; body; message id i64, address,
 * and the rest of the header. */
enum { BODY_BEGIN = 4, BODY_SHIFT = 13 };
/* After the message: of SEND, response wanted bool, correlation id i64, sender i32; of RECEIVE, consumer i64, count i32. */
enum { SEND_TAIL = 13, RECEIVE_TAIL = 12 };

#endif
