use alloc::vec::Vec;

use core::fmt;
use core::mem::MaybeUninit;

use httparse::Header;

use crate::fields::{Field, Line, debug_fields};

/// Room for the field lines of a head that is parsed in place, by
/// [`RequestView`](crate::RequestView) and [`ResponseView`](crate::ResponseView).
///
/// Four kilobytes on the stack that are not touched before a field needs them.
pub struct FieldSlots<'b>([MaybeUninit<Header<'b>>; FieldSlots::CAPACITY]);

impl FieldSlots<'_> {
    /// How many field lines there is room for.
    pub const CAPACITY: usize = 128;

    /// Empty slots, for one head.
    #[must_use]
    #[inline]
    pub fn new() -> Self {
        Self([const { MaybeUninit::uninit() }; Self::CAPACITY])
    }
}

impl<'b> FieldSlots<'b> {
    /// The first `count` of them, at most [`CAPACITY`](Self::CAPACITY).
    pub(crate) fn take(&mut self, count: usize) -> &mut [MaybeUninit<Header<'b>>] {
        &mut self.0[..count.min(Self::CAPACITY)]
    }
}

impl Default for FieldSlots<'_> {
    fn default() -> Self {
        Self::new()
    }
}

impl fmt::Debug for FieldSlots<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("FieldSlots").finish_non_exhaustive()
    }
}

/// The field lines of a head, borrowed from the bytes it came in.
///
/// As in [`Fields`](crate::Fields), the order, the spelling of names and repeated lines are as they
/// came (RFC 9110 §5.3), and names compare without case.
#[derive(Clone, Copy, Default)]
pub struct FieldsView<'a>(&'a [Header<'a>]);

impl<'a> FieldsView<'a> {
    pub(crate) fn new<'b: 'a>(headers: &'a [Header<'b>]) -> Self {
        Self(headers)
    }

    /// Where the lines stand in `block`, which they are slices of.
    pub(crate) fn lines(self, block: &[u8]) -> Vec<Line> {
        let headers = self.0.iter();
        headers.map(|header| Line::of(block, header)).collect()
    }

    /// The number of field lines.
    #[must_use]
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Is there no field line?
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The field lines in the order received.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = Field<'a>> + Clone + use<'a> {
        self.0.iter().map(|header| Field {
            name: header.name,
            value: header.value,
        })
    }

    /// The value of the first line with this name.
    #[must_use]
    pub fn get(&self, name: &str) -> Option<&'a [u8]> {
        self.get_all(name).next()
    }

    /// The values of all lines with this name, in the order received.
    pub fn get_all<'n>(&self, name: &'n str) -> impl Iterator<Item = &'a [u8]> + use<'a, 'n> {
        let fields = self.iter();
        let named = fields.filter(move |field| field.name.eq_ignore_ascii_case(name));
        named.map(|field| field.value)
    }

    /// Is there a line with this name?
    #[must_use]
    pub fn contains(&self, name: &str) -> bool {
        self.get(name).is_some()
    }
}

impl fmt::Debug for FieldsView<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        debug_fields(f, self.iter())
    }
}
