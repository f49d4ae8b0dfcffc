//! close_reason
