//! Functions that know frames of AMQP 0-9-1.

pub mod deliveries;
mod frames;
pub mod lists;
pub mod publishes;
