//! http-client
