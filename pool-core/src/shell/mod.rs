//! shell/mod
