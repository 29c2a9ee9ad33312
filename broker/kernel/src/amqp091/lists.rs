//! Property lists and field tables of AMQP 0-9-1, looked at in place. Twin, and the description of arguments and
//! results: `understudy/kernel/amqp091/lists.py`.

use super::frames::{u16_at, u32_at};

/// Numbers of the properties, from the highest flag on.
pub(super) const HEADERS: usize = 2;
pub(super) const DELIVERY_MODE: usize = 3;
pub(super) const PRIORITY: usize = 4;
pub(super) const CORRELATION_ID: usize = 5;
pub(super) const REPLY_TO: usize = 6;
pub(super) const EXPIRATION: usize = 7;
pub(super) const MESSAGE_ID: usize = 8;
pub(super) const TIMESTAMP: usize = 9;
pub(super) const TYPE: usize = 10;
pub(super) const USER_ID: usize = 11;
const COUNT: usize = 14;

/// Limits of `understudy/limits.py`; a test compares them.
pub(crate) const TABLE_DEPTH_MAX: usize = 32;
pub(crate) const TABLE_VALUES_MAX: usize = 1024;

/// Begin and end of each property in its list; without a length, but for the headers.
pub(super) type Places = [Option<(usize, usize)>; COUNT];

/// The places of the properties in a list. None: it is malformed.
pub(super) fn property_places(list: &[u8]) -> Option<Places> {
    let flags = u16_at(list, 0)?;
    if flags & 3 != 0 {
        return None;
    }
    let mut found = [None; COUNT];
    let mut offset = 2;
    for (number, place) in found.iter_mut().enumerate() {
        if flags >> (15 - number) & 1 == 0 {
            continue;
        }
        let mut begin = offset;
        match number {
            HEADERS => offset += 4 + u32_at(list, offset)? as usize,
            DELIVERY_MODE | PRIORITY => offset += 1,
            TIMESTAMP => offset += 8,
            _ => {
                begin += 1;
                offset += 1 + *list.get(offset)? as usize;
                std::str::from_utf8(list.get(begin..offset)?).ok()?;
            }
        }
        if offset > list.len() {
            return None;
        }
        *place = Some((begin, offset));
    }
    if offset == list.len() {
        Some(found)
    } else {
        None
    }
}

/// A field of a table: its name, the type of its value, and where the value begins and ends, without its length.
pub(super) struct Field<'a> {
    pub(super) name: &'a str,
    pub(super) tag: u8,
    pub(super) value: &'a [u8],
}

/// Bytes of a value by its type, for types of fixed size.
fn fixed_bytes(tag: u8) -> Option<usize> {
    match tag {
        b'V' => Some(0),
        b't' | b'b' | b'B' => Some(1),
        b's' | b'u' => Some(2),
        b'I' | b'i' | b'f' => Some(4),
        b'D' => Some(5),
        b'l' | b'L' | b'd' | b'T' => Some(8),
        _ => None,
    }
}

/// Give `take` the fields of a table, length first, without those inside of others. None: the table is malformed, or
/// `take` returned None.
pub(super) fn walk_table<'a>(table: &'a [u8], mut take: impl FnMut(Field<'a>) -> Option<()>) -> Option<()> {
    let mut open = Vec::with_capacity(4);
    open.push((table.len(), true));
    let mut offset = 4;
    let mut left = TABLE_VALUES_MAX;
    while let Some(&(limit, named)) = open.last() {
        if offset == limit {
            open.pop();
            continue;
        }
        let mut name = "";
        if named {
            let begin = offset + 1;
            offset = begin + *table.get(offset)? as usize;
            if offset > limit {
                return None;
            }
            name = std::str::from_utf8(table.get(begin..offset)?).ok()?;
        }
        if left == 0 || offset >= limit {
            return None;
        }
        left -= 1;
        let tag = table[offset];
        offset += 1;
        let size = match fixed_bytes(tag) {
            Some(size) => size,
            None => {
                if !matches!(tag, b'S' | b'x' | b'A' | b'F') || offset + 4 > limit {
                    return None;
                }
                let size = u32_at(table, offset)? as usize;
                offset += 4;
                size
            }
        };
        let stop = offset + size;
        if stop > limit {
            return None;
        }
        if open.len() == 1 {
            let value = table.get(offset..stop)?;
            take(Field { name, tag, value })?;
        }
        if matches!(tag, b'A' | b'F') {
            if open.len() >= TABLE_DEPTH_MAX {
                return None;
            }
            open.push((stop, tag == b'F'));
        } else {
            offset = stop;
        }
    }
    Some(())
}
