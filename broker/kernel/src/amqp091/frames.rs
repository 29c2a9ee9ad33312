//! Sizes and types of frames of AMQP 0-9-1. Twin: `understudy/kernel/amqp091/publishes.py`.

pub(super) const METHOD: u8 = 1;
pub(super) const HEADER: u8 = 2;
pub(super) const BODY: u8 = 3;
pub(super) const FRAME_END: u8 = 0xCE;
/// Bytes of a frame before its payload.
pub(super) const HEAD_BYTES: usize = 7;
/// Bytes of a frame beside its payload.
pub(super) const OVERHEAD_BYTES: usize = 8;
/// Class of the methods that have a content.
pub(super) const BASIC: u16 = 60;
/// Types of properties of a message.
pub(super) const PROPERTY_BYTES: u8 = 4;
pub(super) const PROPERTY_STRING: u8 = 10;

/// Why there is no frame.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Missing {
    /// It is not whole.
    Cut,
    /// It is not the one that is expected.
    Other,
}

pub(super) fn u16_at(data: &[u8], at: usize) -> Option<u16> {
    let mut bytes = [0; 2];
    bytes.copy_from_slice(data.get(at..at + 2)?);
    Some(u16::from_be_bytes(bytes))
}

pub(super) fn u32_at(data: &[u8], at: usize) -> Option<u32> {
    let mut bytes = [0; 4];
    bytes.copy_from_slice(data.get(at..at + 4)?);
    Some(u32::from_be_bytes(bytes))
}

pub(super) fn u64_at(data: &[u8], at: usize) -> Option<u64> {
    let mut bytes = [0; 8];
    bytes.copy_from_slice(data.get(at..at + 8)?);
    Some(u64::from_be_bytes(bytes))
}

/// Bytes of the frame of this type and channel at `offset`.
pub(super) fn frame_at(data: &[u8], offset: usize, head: [u8; 3], payload_max: usize) -> Result<usize, Missing> {
    let rest = data.get(offset..).unwrap_or(&[]);
    let seen = rest.len().min(head.len());
    if rest[..seen] != head[..seen] {
        return Err(Missing::Other);
    }
    if rest.len() < HEAD_BYTES {
        return Err(Missing::Cut);
    }
    let size = u32_at(rest, 3).map_or(usize::MAX, |size| size as usize);
    if size > payload_max {
        return Err(Missing::Other);
    }
    let size = size.checked_add(OVERHEAD_BYTES).ok_or(Missing::Other)?;
    if size > rest.len() {
        return Err(Missing::Cut);
    }
    if rest[size - 1] == FRAME_END {
        Ok(size)
    } else {
        Err(Missing::Other)
    }
}

/// An ASCII text in UTF-16, little-endian.
pub(super) fn put_ascii(out: &mut Vec<u8>, text: &str) {
    for byte in text.bytes() {
        out.push(byte);
        out.push(0);
    }
}

/// A property name with its length, and the type of its value.
pub(super) fn put_name(out: &mut Vec<u8>, name: &str, tag: u8) {
    out.extend_from_slice(&(2 * name.len() as i32).to_be_bytes());
    put_ascii(out, name);
    out.push(tag);
}
