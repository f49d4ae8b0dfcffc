use core::fmt;

/// Upper bounds on what a peer may make the codec hold or count.
///
/// Every bound bites before the end of what exceeds it has arrived, so memory stays flat. Build
/// one with [`Limits::default`] and the `with_*` setters:
///
/// ```
/// use http_codec::Limits;
///
/// let limits = Limits::default().with_max_head_bytes(16 * 1024).with_max_body_bytes(Some(1 << 20));
/// assert_eq!(limits.max_head_bytes(), 16 * 1024);
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    head_bytes: usize,
    fields: usize,
    target_bytes: usize,
    chunk_line_bytes: usize,
    chunk_extension_bytes: usize,
    trailer_bytes: usize,
    interim: usize,
    body_bytes: Option<u64>,
}

impl Default for Limits {
    /// 64 KiB heads, 128 fields, 16 KiB targets, 8 KiB chunk lines, 64 KiB chunk extensions, 16 KiB
    /// trailers, 16 interim responses, bodies unbounded.
    fn default() -> Self {
        Self {
            head_bytes: 64 * 1024,
            fields: 128,
            target_bytes: 16 * 1024,
            chunk_line_bytes: 8 * 1024,
            chunk_extension_bytes: 64 * 1024,
            trailer_bytes: 16 * 1024,
            interim: 16,
            body_bytes: None,
        }
    }
}

impl Limits {
    /// Bytes of one head: start line, fields and the empty line that ends it, together with empty
    /// lines skipped before it. Default 65,536. Heads of 4 GiB and more are refused whatever is
    /// set here.
    #[must_use]
    pub fn max_head_bytes(&self) -> usize {
        self.head_bytes
    }

    /// Field lines in one head, and field lines in one trailer section. Default 128.
    #[must_use]
    pub fn max_fields(&self) -> usize {
        self.fields
    }

    /// Bytes of a request target. Default 16,384.
    #[must_use]
    pub fn max_target_bytes(&self) -> usize {
        self.target_bytes
    }

    /// Bytes of one chunk-size line with its extensions and line end. Default 8,192.
    #[must_use]
    pub fn max_chunk_line_bytes(&self) -> usize {
        self.chunk_line_bytes
    }

    /// Bytes of the chunk extensions of one message, in all. Whatever pads a chunk-size line counts
    /// as well: blanks, and leading zeros beyond sixteen digits. Extensions are read and thrown
    /// away, so without a bound a peer can have much work done for little body. Default 65,536.
    #[must_use]
    pub fn max_chunk_extension_bytes(&self) -> usize {
        self.chunk_extension_bytes
    }

    /// Bytes of a trailer section with the empty line that ends it. Default 16,384.
    #[must_use]
    pub fn max_trailer_bytes(&self) -> usize {
        self.trailer_bytes
    }

    /// Interim (1xx) responses before the final one. Default 16.
    #[must_use]
    pub fn max_interim(&self) -> usize {
        self.interim
    }

    /// Body bytes of one message, without framing. Default `None`: unbounded.
    #[must_use]
    pub fn max_body_bytes(&self) -> Option<u64> {
        self.body_bytes
    }

    /// Sets [`max_head_bytes`](Self::max_head_bytes).
    #[must_use]
    pub fn with_max_head_bytes(mut self, bytes: usize) -> Self {
        self.head_bytes = bytes;
        self
    }

    /// Sets [`max_fields`](Self::max_fields).
    #[must_use]
    pub fn with_max_fields(mut self, count: usize) -> Self {
        self.fields = count;
        self
    }

    /// Sets [`max_target_bytes`](Self::max_target_bytes).
    #[must_use]
    pub fn with_max_target_bytes(mut self, bytes: usize) -> Self {
        self.target_bytes = bytes;
        self
    }

    /// Sets [`max_chunk_line_bytes`](Self::max_chunk_line_bytes).
    #[must_use]
    pub fn with_max_chunk_line_bytes(mut self, bytes: usize) -> Self {
        self.chunk_line_bytes = bytes;
        self
    }

    /// Sets [`max_chunk_extension_bytes`](Self::max_chunk_extension_bytes).
    #[must_use]
    pub fn with_max_chunk_extension_bytes(mut self, bytes: usize) -> Self {
        self.chunk_extension_bytes = bytes;
        self
    }

    /// Sets [`max_trailer_bytes`](Self::max_trailer_bytes).
    #[must_use]
    pub fn with_max_trailer_bytes(mut self, bytes: usize) -> Self {
        self.trailer_bytes = bytes;
        self
    }

    /// Sets [`max_interim`](Self::max_interim).
    #[must_use]
    pub fn with_max_interim(mut self, count: usize) -> Self {
        self.interim = count;
        self
    }

    /// Sets [`max_body_bytes`](Self::max_body_bytes).
    #[must_use]
    pub fn with_max_body_bytes(mut self, bytes: Option<u64>) -> Self {
        self.body_bytes = bytes;
        self
    }
}

/// Names the bound in [`Limits`] that a peer ran into.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Limit {
    /// [`Limits::max_head_bytes`].
    HeadBytes,
    /// [`Limits::max_fields`].
    Fields,
    /// [`Limits::max_target_bytes`].
    TargetBytes,
    /// [`Limits::max_chunk_line_bytes`].
    ChunkLineBytes,
    /// [`Limits::max_chunk_extension_bytes`].
    ChunkExtensionBytes,
    /// [`Limits::max_trailer_bytes`].
    TrailerBytes,
    /// [`Limits::max_interim`].
    Interim,
    /// [`Limits::max_body_bytes`].
    BodyBytes,
}

impl fmt::Display for Limit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::HeadBytes => "max_head_bytes",
            Self::Fields => "max_fields",
            Self::TargetBytes => "max_target_bytes",
            Self::ChunkLineBytes => "max_chunk_line_bytes",
            Self::ChunkExtensionBytes => "max_chunk_extension_bytes",
            Self::TrailerBytes => "max_trailer_bytes",
            Self::Interim => "max_interim",
            Self::BodyBytes => "max_body_bytes",
        })
    }
}
