use http_codec::{
    BodyLength, KeepAliveHint, RequestHead, RequestView, ResponseHead, ResponseView, Version,
};

/// A copy of all that a head says, to compare.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Head {
    pub(crate) start: StartLine,
    pub(crate) version: Version,
    pub(crate) fields: FieldList,
    pub(crate) body: BodyLength,
    pub(crate) keep_alive: bool,
    pub(crate) upgrade: bool,
}

/// Field lines, names as they were spelled.
pub(crate) type FieldList = Vec<(String, Vec<u8>)>;

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum StartLine {
    Request {
        method: String,
        target: String,
        authority: Option<String>,
        expects_continue: bool,
    },
    Response {
        status: u16,
        reason: Vec<u8>,
        content_length: Option<u64>,
        hint: KeepAliveHint,
    },
}

/// Copies the lines of `Fields` and of `FieldsView`, which share no trait.
macro_rules! field_list {
    ($fields:expr) => {
        $fields
            .iter()
            .map(|field| (field.name.to_owned(), field.value.to_vec()))
            .collect()
    };
}
pub(crate) use field_list;

/// As heads and views have the same methods but no trait in common.
macro_rules! head {
    ($head:expr, $start:expr) => {
        Head {
            start: $start,
            version: $head.version(),
            fields: field_list!($head.fields()),
            body: $head.body_length(),
            keep_alive: $head.keep_alive(),
            upgrade: $head.upgrade(),
        }
    };
}

macro_rules! request_line {
    ($head:expr) => {
        StartLine::Request {
            method: $head.method().to_owned(),
            target: $head.target().to_owned(),
            authority: $head.authority().map(str::to_owned),
            expects_continue: $head.expects_continue(),
        }
    };
}

macro_rules! status_line {
    ($head:expr) => {
        StartLine::Response {
            status: $head.status(),
            reason: $head.reason().to_vec(),
            content_length: $head.content_length(),
            hint: $head.keep_alive_hint(),
        }
    };
}

impl From<&RequestHead> for Head {
    fn from(head: &RequestHead) -> Self {
        head!(head, request_line!(head))
    }
}

impl From<&RequestView<'_>> for Head {
    fn from(head: &RequestView<'_>) -> Self {
        head!(head, request_line!(head))
    }
}

impl From<&ResponseHead> for Head {
    fn from(head: &ResponseHead) -> Self {
        head!(head, status_line!(head))
    }
}

impl From<&ResponseView<'_>> for Head {
    fn from(head: &ResponseView<'_>) -> Self {
        head!(head, status_line!(head))
    }
}
