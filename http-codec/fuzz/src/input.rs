/// Takes choices off the front of a target's input. Once the input has run out every choice is
/// zero, so that each input means something.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Input<'i>(&'i [u8]);

impl<'i> Input<'i> {
    pub(crate) fn new(bytes: &'i [u8]) -> Self {
        Self(bytes)
    }

    pub(crate) fn byte(&mut self) -> u8 {
        match self.0 {
            [first, rest @ ..] => {
                self.0 = rest;
                *first
            }
            [] => 0,
        }
    }

    pub(crate) fn number(&mut self) -> u16 {
        u16::from_be_bytes([self.byte(), self.byte()])
    }

    pub(crate) fn pick<T: Copy>(&mut self, choices: &[T]) -> T {
        choices[usize::from(self.byte()) % choices.len()]
    }

    /// A run of bytes: its length, of up to 255, and as many bytes as are left of it.
    pub(crate) fn run(&mut self) -> &'i [u8] {
        let len = usize::from(self.byte()).min(self.0.len());
        let (run, rest) = self.0.split_at(len);
        self.0 = rest;
        run
    }

    /// One of `words`, or a run of bytes where that is the empty one.
    pub(crate) fn word(&mut self, words: &[&'static str]) -> &'i [u8] {
        match self.pick(words) {
            "" => self.run(),
            word => word.as_bytes(),
        }
    }

    pub(crate) fn rest(self) -> &'i [u8] {
        self.0
    }
}
