//! http-codec
