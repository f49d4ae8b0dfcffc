//! Message bodies, read (RFC 9112 §6).

use bytes::{Bytes, BytesMut};

use crate::chunked::ChunkedDecoder;
use crate::error::DecodeError;
use crate::fields::Fields;
use crate::framing::BodyLength;
use crate::limits::{Limit, Limits};

pub(crate) enum BodyEvent {
    NeedData,
    Data(Bytes),
    End(Option<Fields>),
}

#[derive(Debug)]
pub(crate) enum BodyDecoder {
    Exact { remaining: u64 },
    Chunked(ChunkedDecoder),
    UntilClose { received: u64 },
}

impl BodyDecoder {
    /// `None` where no byte of a body follows.
    pub(crate) fn new(length: BodyLength, limits: &Limits) -> Result<Option<Self>, DecodeError> {
        Ok(match length {
            BodyLength::None | BodyLength::Exact(0) => None,
            BodyLength::Exact(remaining) => {
                if limits.max_body_bytes().is_some_and(|max| remaining > max) {
                    return Err(DecodeError::too_large(Limit::BodyBytes));
                }
                Some(Self::Exact { remaining })
            }
            BodyLength::Chunked => Some(Self::Chunked(ChunkedDecoder::default())),
            BodyLength::UntilClose => Some(Self::UntilClose { received: 0 }),
        })
    }

    pub(crate) fn decode(
        &mut self,
        src: &mut BytesMut,
        limits: &Limits,
        eof: bool,
    ) -> Result<BodyEvent, DecodeError> {
        match self {
            Self::Chunked(chunked) => chunked.decode(src, limits, eof),
            Self::Exact { remaining: 0 } => Ok(BodyEvent::End(None)),
            Self::Exact { .. } if src.is_empty() && eof => Err(DecodeError::incomplete(
                "the connection ended before Content-Length bytes",
            )),
            Self::UntilClose { .. } if src.is_empty() && eof => Ok(BodyEvent::End(None)),
            _ if src.is_empty() => Ok(BodyEvent::NeedData),
            Self::Exact { remaining } => {
                let taken = usize::try_from(*remaining).map_or(src.len(), |n| n.min(src.len()));
                *remaining -= taken as u64;
                Ok(BodyEvent::Data(src.split_to(taken).freeze()))
            }
            Self::UntilClose { received } => {
                *received = received.saturating_add(src.len() as u64);
                if limits.max_body_bytes().is_some_and(|max| *received > max) {
                    return Err(DecodeError::too_large(Limit::BodyBytes));
                }
                Ok(BodyEvent::Data(src.split().freeze()))
            }
        }
    }

    /// Has every byte been taken, so that only the end is left to report?
    pub(crate) fn is_drained(&self) -> bool {
        matches!(self, Self::Exact { remaining: 0 })
    }
}
