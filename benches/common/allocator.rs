//! The system's allocator, counted by thread.

#![allow(unsafe_code, reason = "a global allocator is unsafe to implement")]

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

/// Blocks of this many bytes and more are known one by one.
pub const LARGE: usize = 16 << 10;

/// Blocks below this size are counted by their size.
const SMALL: usize = 1 << 10;

/// How many large blocks are known at a time.
const LARGE_BLOCKS: usize = 64;

/// A block that is known by itself.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LargeBlock {
    address: usize,
    /// Its size in bytes, as it was asked for.
    pub bytes: usize,
}

/// What was allocated, freed since or not.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Allocated {
    /// How many times memory was asked for, growing included.
    pub blocks: u64,
    /// How many bytes in all.
    pub bytes: u64,
}

struct Counters {
    allocated: Cell<Allocated>,
    bytes: Cell<usize>,
    small: [Cell<usize>; SMALL],
    large: [Cell<LargeBlock>; LARGE_BLOCKS],
}

const NO_BLOCK: LargeBlock = LargeBlock {
    address: 0,
    bytes: 0,
};

thread_local! {
    /// By thread, so that a peer on a thread of its own does not count.
    static COUNTERS: Counters = const {
        Counters {
            allocated: Cell::new(Allocated { blocks: 0, bytes: 0 }),
            bytes: Cell::new(0),
            small: [const { Cell::new(0) }; SMALL],
            large: [const { Cell::new(NO_BLOCK) }; LARGE_BLOCKS],
        }
    };
}

impl Counters {
    fn made(&self, address: *mut u8, bytes: usize) {
        if address.is_null() {
            return;
        }
        let allocated = self.allocated.get();
        self.allocated.set(Allocated {
            blocks: allocated.blocks + 1,
            bytes: allocated.bytes + bytes as u64,
        });
        self.bytes.set(self.bytes.get().wrapping_add(bytes));
        if let Some(count) = self.small.get(bytes) {
            count.set(count.get().wrapping_add(1));
        } else if bytes >= LARGE
            && let Some(free) = self.large.iter().find(|block| block.get() == NO_BLOCK)
        {
            let address = address as usize;
            free.set(LargeBlock { address, bytes });
        }
    }

    fn freed(&self, address: *mut u8, bytes: usize) {
        self.bytes.set(self.bytes.get().wrapping_sub(bytes));
        if let Some(count) = self.small.get(bytes) {
            count.set(count.get().wrapping_sub(1));
        } else if bytes >= LARGE {
            let address = address as usize;
            let known = self.large.iter();
            for block in known.filter(|block| block.get().address == address) {
                block.set(NO_BLOCK);
            }
        }
    }
}

/// A thread that is being torn down has no counters any more.
fn count(note: impl FnOnce(&Counters)) {
    let _ = COUNTERS.try_with(note);
}

/// The system's allocator, counted. A bench makes it its `#[global_allocator]`.
#[derive(Debug)]
pub struct Counting;

// SAFETY: everything is passed on to the system's allocator unchanged.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        // SAFETY: the caller keeps the contract of `alloc`.
        let address = unsafe { System.alloc(layout) };
        count(|counters| counters.made(address, layout.size()));
        address
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        // SAFETY: the caller keeps the contract of `alloc_zeroed`.
        let address = unsafe { System.alloc_zeroed(layout) };
        count(|counters| counters.made(address, layout.size()));
        address
    }

    unsafe fn realloc(&self, old: *mut u8, layout: Layout, bytes: usize) -> *mut u8 {
        // SAFETY: `old` came from this allocator, with this layout.
        let new = unsafe { System.realloc(old, layout, bytes) };
        if !new.is_null() {
            count(|counters| {
                counters.freed(old, layout.size());
                counters.made(new, bytes);
            });
        }
        new
    }

    unsafe fn dealloc(&self, address: *mut u8, layout: Layout) {
        count(|counters| counters.freed(address, layout.size()));
        // SAFETY: `address` came from this allocator, with this layout.
        unsafe { System.dealloc(address, layout) }
    }
}

/// What `work` allocates on this thread.
pub fn allocated(work: impl FnOnce()) -> Allocated {
    let before = COUNTERS.with(|counters| counters.allocated.get());
    work();
    let after = COUNTERS.with(|counters| counters.allocated.get());
    Allocated {
        blocks: after.blocks - before.blocks,
        bytes: after.bytes - before.bytes,
    }
}

/// How many allocations `work` makes on this thread, growing ones included.
pub fn allocations(work: impl FnOnce()) -> u64 {
    allocated(work).blocks
}

/// What this thread has allocated and not freed.
#[derive(Clone, Debug)]
pub struct Live {
    /// All of it, in bytes.
    pub bytes: usize,
    /// How many blocks there are of each size, in bytes, up to 1023.
    pub small: Vec<usize>,
    /// The blocks of [`LARGE`] bytes and more.
    pub large: Vec<LargeBlock>,
}

/// What this thread has allocated and not freed. Freeing a block on another thread than it was
/// made on makes it wrong.
#[must_use]
pub fn live() -> Live {
    COUNTERS.with(|counters| {
        let bytes = counters.bytes.get();
        let small = counters.small.iter().map(Cell::get).collect();
        let large = counters.large.iter().map(Cell::get);
        let large = large.filter(|block| *block != NO_BLOCK).collect();
        Live {
            bytes,
            small,
            large,
        }
    })
}
