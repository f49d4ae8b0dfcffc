//! The pool's timing wheel, which is private to the pool: compiled here once more from its source,
//! so that it can be driven by itself.

#![allow(
    dead_code,
    unreachable_pub,
    unexpected_cfgs,
    reason = "only a part of it is used here, without its crate's features"
)]

#[path = "../../pool-core/src/state/list.rs"]
pub(crate) mod list;
#[path = "../../pool-core/src/state/slab.rs"]
pub(crate) mod slab;
#[path = "../../pool-core/src/state/wheel.rs"]
pub(crate) mod wheel;
