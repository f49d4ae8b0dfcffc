//! state/mod
