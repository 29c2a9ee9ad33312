//! What knows CORE frames.

pub(crate) mod forwarding;
pub(crate) mod frames;
