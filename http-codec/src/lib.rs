//! A sans-I/O HTTP/1.1 codec for clients, servers and gateways.
//!
//! The codec reads and writes bytes in memory and never a socket, so it fits any runtime and can
//! be tested without one. It speaks HTTP/1.1 and HTTP/1.0 in both roles (RFC 9110, RFC 9112):
//!
//! - [`ClientExchange`] frames one request and reads its response; [`RequestWriter`] writes the
//!   head.
//! - [`ServerExchange`] reads one request after another and writes the responses, by
//!   [`ResponseWriter`] and [`InterimWriter`].
//!
//! Heads and body data are slices of the input. Input may be split at any byte with the same
//! result. All that a peer can make grow has a bound in [`Limits`]. Errors are split by culprit:
//! [`DecodeError`] is the peer's, [`EncodeError`] ours.
//!
//! # The life of an exchange
//!
//! The two halves go on side by side; a response may even end before its request.
//!
//! ```text
//! request    head written ──► frame_data … ──► frame_end ─────────────────┐
//!                                                                         ├─► reuse
//! response   head ──┬─► Head ──► Data … ──► End ──────────────────────────┘
//!             ▲     │
//!             └─────┴─► Interim (1xx)
//!
//! reuse      NotYet ──► KeepAlive          both halves ended clean
//!               └─────► MustClose(why)     as soon as it is certain
//! ```
//!
//! Only [`Reuse::KeepAlive`] may lead to another exchange on the connection. Messages whose end
//! two readers could see in two places (RFC 9112 §6.3) are refused or end their connection.
//!
//! # One whole exchange without a socket
//!
//! ```
//! use bytes::BytesMut;
//! use http_codec::{
//!     BodyLength, ClientExchange, Limits, RequestEvent, RequestWriter, ResponseEvent, Reuse,
//!     ServerExchange,
//! };
//!
//! # fn main() -> Result<(), Box<dyn core::error::Error>> {
//! let limits = Limits::default();
//! let (mut to_server, mut to_client) = (BytesMut::new(), BytesMut::new());
//!
//! // The client writes a request with a chunked body.
//! let mut writer = RequestWriter::new(&mut to_server, "POST", "/greet")?;
//! writer.field("Host", "example.org")?;
//! let sent = writer.finish(BodyLength::Chunked)?;
//! let mut client = ClientExchange::new(sent, &limits);
//! client.head_sent();
//! let frame = client.frame_data(5)?;
//! to_server.extend_from_slice(frame.prefix.as_ref());
//! to_server.extend_from_slice(b"world");
//! to_server.extend_from_slice(frame.suffix);
//! client.frame_end(None, &mut to_server)?;
//!
//! // The server reads it to its end.
//! let mut server = ServerExchange::new(&limits);
//! let mut name = Vec::new();
//! loop {
//!     match server.decode(&mut to_server)? {
//!         RequestEvent::Head(head) => assert_eq!(head.target(), "/greet"),
//!         RequestEvent::Data(data) => name.extend_from_slice(&data),
//!         RequestEvent::End(_) => break,
//!         RequestEvent::NeedData | RequestEvent::Closed => unreachable!("all bytes are there"),
//!     }
//! }
//!
//! // It answers; data whose length was announced needs no frame around it.
//! let answer = [b"hello ", name.as_slice()].concat();
//! let mut writer = server.respond(&mut to_client, 200)?;
//! writer.field("Content-Type", "text/plain")?;
//! writer.finish(BodyLength::Exact(answer.len() as u64))?;
//! server.frame_data(answer.len())?;
//! to_client.extend_from_slice(&answer);
//! assert_eq!(server.reuse(), Reuse::KeepAlive);
//!
//! // The client reads the answer, and its connection may be used again.
//! let mut body = Vec::new();
//! loop {
//!     match client.decode(&mut to_client)? {
//!         ResponseEvent::Head(head) => assert_eq!(head.status(), 200),
//!         ResponseEvent::Data(data) => body.extend_from_slice(&data),
//!         ResponseEvent::End(_) => break,
//!         ResponseEvent::Interim(_) => {}
//!         ResponseEvent::NeedData => unreachable!("all bytes are there"),
//!     }
//! }
//! assert_eq!(body, b"hello world");
//! assert_eq!(client.reuse(to_client.len()), Reuse::KeepAlive);
//! # Ok(())
//! # }
//! ```

#![forbid(unsafe_code)]
#![cfg_attr(not(test), no_std)]

extern crate alloc;

mod body;
mod chunked;
mod client_exchange;
#[cfg(feature = "http")]
mod convert;
mod error;
mod fields;
mod fields_view;
mod frame;
mod framing;
mod head;
mod limits;
mod request;
mod request_view;
mod request_writer;
mod response;
mod response_view;
mod response_writer;
mod reuse;
mod server_exchange;
mod syntax;
mod target;

pub use client_exchange::{ClientExchange, ResponseEvent};
#[cfg(feature = "http")]
pub use convert::ReasonPhrase;
pub use error::{DecodeError, DecodeErrorKind, EncodeError};
pub use fields::{Field, Fields, connection_tokens, is_hop_by_hop};
pub use fields_view::{FieldSlots, FieldsView};
pub use frame::{ChunkPrefix, DataFrame};
pub use framing::BodyLength;
pub use head::Version;
pub use limits::{Limit, Limits};
pub use request::RequestHead;
pub use request_view::RequestView;
pub use request_writer::{RequestWriter, SentRequest};
pub use response::{KeepAliveHint, ResponseHead};
pub use response_view::ResponseView;
pub use response_writer::{InterimWriter, ResponseWriter};
pub use reuse::{MustClose, Progress, Reuse};
pub use server_exchange::{RequestEvent, ServerExchange};

/// The README's program is compiled and run with the tests.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
