//! One driver for both roles, which holds every call to the limits.

use bytes::{Bytes, BytesMut};
use http_codec::{
    BodyLength, ClientExchange, DecodeError, Limits, RequestEvent, ResponseEvent, Reuse,
    ServerExchange,
};
use stats_alloc::Region;

use crate::ALLOCATOR;
use crate::head::{FieldList, Head, StartLine, field_list};

/// Reads one side of a connection.
pub(crate) struct Reader {
    exchange: Exchange,
    limits: Limits,
    in_head: bool,
    interim: usize,
    body_bytes: u64,
}

enum Exchange {
    Client(ClientExchange),
    Server(ServerExchange),
}

/// The events of both roles.
#[derive(Debug)]
pub(crate) enum Event {
    NeedData,
    Interim(Head),
    Head(Head),
    Data(Bytes),
    End(Option<FieldList>),
    Closed,
}

/// Either event of the codec, before it is copied.
enum Raw {
    Request(RequestEvent),
    Response(ResponseEvent),
}

impl Reader {
    /// Reads the response of an exchange that has the same limits.
    pub(crate) fn client(exchange: ClientExchange, limits: &Limits) -> Self {
        Self::of(Exchange::Client(exchange), limits)
    }

    pub(crate) fn server(limits: &Limits) -> Self {
        Self::of(Exchange::Server(ServerExchange::new(limits)), limits)
    }

    fn of(exchange: Exchange, limits: &Limits) -> Self {
        Self {
            exchange,
            limits: *limits,
            in_head: true,
            interim: 0,
            body_bytes: 0,
        }
    }

    /// The next event. Panics if the call held or allocated more than the limits allow.
    pub(crate) fn next(&mut self, src: &mut BytesMut, eof: bool) -> Result<Event, DecodeError> {
        let (len, capacity) = (src.len(), src.capacity());
        let region = Region::new(&ALLOCATOR);
        let raw = match (&mut self.exchange, eof) {
            (Exchange::Client(exchange), false) => exchange.decode(src).map(Raw::Response),
            (Exchange::Client(exchange), true) => exchange.decode_eof(src).map(Raw::Response),
            (Exchange::Server(exchange), false) => exchange.decode(src).map(Raw::Request),
            (Exchange::Server(exchange), true) => exchange.decode_eof(src).map(Raw::Request),
        };
        let allocated = region.change().bytes_allocated;
        // A field line has three bytes or more, and two places are kept of it; a slice of the input
        // costs a count of its owners.
        let lines = self.limits.max_fields().min(len / 3 + 1);
        assert!(allocated <= 64 * lines + 256, "{allocated} bytes allocated");
        assert!(src.capacity() <= capacity, "the input has grown");
        let event = raw.map(Event::from);
        if let Ok(event) = &event {
            self.check(event, len - src.len(), src.len());
        }
        event
    }

    fn check(&mut self, event: &Event, taken: usize, unread: usize) {
        let limits = &self.limits;
        match event {
            Event::NeedData if self.in_head => {
                assert!(unread < limits.max_head_bytes(), "{unread} bytes of a head");
            }
            // One byte waits for LF whatever the limit.
            Event::NeedData => assert!(unread < limits.max_trailer_bytes().max(2)),
            Event::Interim(head) | Event::Head(head) => {
                assert!(taken <= limits.max_head_bytes());
                assert!(head.fields.len() <= limits.max_fields());
                if let StartLine::Request { target, .. } = &head.start {
                    assert!(target.len() <= limits.max_target_bytes());
                }
                self.in_head = matches!(event, Event::Interim(_));
                self.interim += usize::from(self.in_head);
                assert!(self.interim <= limits.max_interim());
                if let (Some(max), BodyLength::Exact(bytes)) = (limits.max_body_bytes(), head.body)
                {
                    assert!(bytes <= max);
                }
            }
            Event::Data(data) => {
                assert!(!data.is_empty(), "data without bytes");
                self.body_bytes += data.len() as u64;
                assert!(
                    limits
                        .max_body_bytes()
                        .is_none_or(|max| self.body_bytes <= max)
                );
            }
            Event::End(Some(trailers)) => {
                let bytes = |(name, value): &(String, Vec<u8>)| name.len() + value.len() + 1;
                let bytes: usize = trailers.iter().map(bytes).sum();
                assert!(bytes <= limits.max_trailer_bytes());
                assert!(trailers.len() <= limits.max_fields());
            }
            Event::End(None) | Event::Closed => {}
        }
    }

    /// The verdict, with `unread` bytes left in the input.
    pub(crate) fn reuse(&self, unread: usize) -> Reuse {
        match &self.exchange {
            Exchange::Client(exchange) => exchange.reuse(unread),
            Exchange::Server(exchange) => exchange.reuse(),
        }
    }

    /// The exchange of a server. Panics for a client.
    pub(crate) fn server_exchange(&mut self) -> &mut ServerExchange {
        match &mut self.exchange {
            Exchange::Server(exchange) => exchange,
            Exchange::Client(_) => panic!("a client"),
        }
    }

    /// Answers the request that was read, and turns to the next; false where none may follow.
    pub(crate) fn turn(&mut self) -> bool {
        let Exchange::Server(exchange) = &mut self.exchange else {
            return false;
        };
        let mut answer = BytesMut::new();
        let writer = exchange.respond(&mut answer, 404).expect("no answer yet");
        writer.finish(BodyLength::None).expect("a whole head");
        let verdict = exchange.reuse();
        let follows = exchange.start_next().is_ok();
        assert_eq!(follows, verdict == Reuse::KeepAlive);
        if follows {
            (self.in_head, self.body_bytes) = (true, 0);
        }
        follows
    }
}

impl From<Raw> for Event {
    fn from(raw: Raw) -> Self {
        let trailers = |fields: &http_codec::Fields| field_list!(fields);
        match raw {
            Raw::Request(RequestEvent::NeedData) | Raw::Response(ResponseEvent::NeedData) => {
                Self::NeedData
            }
            Raw::Request(RequestEvent::Head(head)) => Self::Head(Head::from(&head)),
            Raw::Response(ResponseEvent::Head(head)) => Self::Head(Head::from(&head)),
            Raw::Response(ResponseEvent::Interim(head)) => Self::Interim(Head::from(&head)),
            Raw::Request(RequestEvent::Data(data)) | Raw::Response(ResponseEvent::Data(data)) => {
                Self::Data(data)
            }
            Raw::Request(RequestEvent::End(fields)) | Raw::Response(ResponseEvent::End(fields)) => {
                Self::End(fields.as_ref().map(trailers))
            }
            Raw::Request(RequestEvent::Closed) => Self::Closed,
        }
    }
}
