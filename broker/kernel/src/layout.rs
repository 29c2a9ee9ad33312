//! Sizes of the records of messages in the log and of the frames in which they are delivered.

/// Bytes of a MESSAGE_ADD record before the ids of its queues, the duplicate id, if any, and the message.
pub const RECORD_HEAD_BYTES: usize = 72;
/// Bytes of the id of one queue.
pub const QUEUE_ID_BYTES: usize = 8;
/// Type of a frame with a message for a consumer.
pub const SESS_RECEIVE_MSG: u8 = 75;
/// Bytes of a SESS_RECEIVE_MSG frame before its message: length, type, channel.
pub const RECEIVE_HEAD_BYTES: usize = 13;
/// Bytes after it: consumer, delivery count.
pub const RECEIVE_TAIL_BYTES: usize = 12;
/// Bytes of a SESS_RECEIVE_MSG frame beside its message.
pub const RECEIVE_OVERHEAD_BYTES: usize = RECEIVE_HEAD_BYTES + RECEIVE_TAIL_BYTES;
