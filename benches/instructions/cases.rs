//! The operations whose instructions are counted.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::hint::black_box;
use std::net::SocketAddr;
use std::ops::Range;

use bytes::BytesMut;
use pinpool_benches::codec::{
    REQUEST, RESPONSE, chunked, encode, exchange_request, exchange_response, httparse_request,
    httparse_response, read_body, sent, view_request, view_response,
};
use pinpool_benches::{
    Destinations, FullWheel, Sharing, Tcp, WarmGet, Way, allocations, at_once, deadline,
    enter_turn, queue, shuffled, state_round, turns, within,
};
use pool_core::{Core, Pool, PoolConfig, Pooled, Timestamp};
use test_support::{Server, keep_alive_ok};

/// Part of the name of the function in which everything is counted.
pub(crate) const COUNTED: &str = "counted_operations";

/// Destinations of the cases that look for one among many.
const DESTINATIONS: u32 = 100_000;

/// Timers that wait beside the one that is set and cancelled.
const PENDING: u32 = 1_000_000;

pub(crate) struct Case {
    pub(crate) name: &'static str,
    pub(crate) operations: u32,
    /// Does so many operations after the same number of others; returns their allocations.
    run: fn(u32) -> u64,
}

impl Case {
    pub(crate) fn run(&self, operations: u32) -> u64 {
        (self.run)(operations)
    }
}

pub(crate) const ALL: &[Case] = &[
    case("try_acquire+release", 10_000, |operations| {
        warm(operations, |pool, address| pool.try_acquire(address))
    }),
    case("acquire+release", 10_000, |operations| {
        warm(operations, |pool, address| {
            at_once(pool.acquire(address)).ok()
        })
    }),
    case("by-key-of-100000", 20_000, |operations| {
        among_many(operations, |_, key| *key, |pool, key| pool.try_acquire(key))
    }),
    case("by-handle-of-100000", 20_000, |operations| {
        among_many(
            operations,
            |pool, key| pool.destination(key),
            |_, destination| destination.try_acquire(),
        )
    }),
    case("state-of-100000", 20_000, state_of_many),
    case("hand-over", 10_000, hand_over),
    case("timer-at-1000000", 20_000, timer),
    case("httparse-response", 10_000, |operations| {
        count(operations, |_| {
            _ = black_box(httparse_response(black_box(RESPONSE)));
        })
    }),
    case("view-response", 10_000, |operations| {
        let sent = sent();
        count(operations, |_| {
            _ = black_box(view_response(black_box(RESPONSE), sent));
        })
    }),
    case("exchange-response", 10_000, |operations| {
        let sent = sent();
        kept(operations, RESPONSE, |src| {
            drop(black_box(exchange_response(src, sent)));
        })
    }),
    case("httparse-request", 10_000, |operations| {
        count(operations, |_| {
            _ = black_box(httparse_request(black_box(REQUEST)));
        })
    }),
    case("view-request", 10_000, |operations| {
        count(operations, |_| {
            _ = black_box(view_request(black_box(REQUEST)));
        })
    }),
    case("exchange-request", 10_000, |operations| {
        kept(operations, REQUEST, |src| {
            drop(black_box(exchange_request(src)));
        })
    }),
    case("encode-request", 10_000, |operations| {
        let mut dst = BytesMut::with_capacity(4096);
        count(operations, |_| {
            dst.clear();
            encode(black_box(&mut dst));
        })
    }),
    case("body-of-64-chunks", 100, |operations| {
        let bodies = 2 * operations as usize;
        let mut bodies: Vec<_> = std::iter::repeat_with(chunked).take(bodies).collect();
        let mut bodies = bodies.iter_mut();
        count(operations, |_| _ = bodies.next().map(read_body))
    }),
    case("bare-get", 1000, |operations| {
        warm_get(operations, Way::Bare)
    }),
    case("client-exchange", 1000, |operations| {
        warm_get(operations, Way::Exchange)
    }),
    case("client-send", 1000, |operations| {
        warm_get(operations, Way::Send)
    }),
];

const fn case(name: &'static str, operations: u32, run: fn(u32) -> u64) -> Case {
    Case {
        name,
        operations,
        run,
    }
}

/// The only place where instructions are counted; the loop adds about three to each operation.
#[inline(never)]
fn counted_operations(numbers: Range<u32>, operation: &mut impl FnMut(u32)) {
    for number in numbers {
        operation(number);
    }
}

/// What is done for the first time (rooms grow, symbols are bound) is not counted.
fn count(operations: u32, mut operation: impl FnMut(u32)) -> u64 {
    (0..operations).for_each(&mut operation);
    allocations(|| counted_operations(0..operations, &mut operation))
}

/// As [`count`], by turns of the core; what lies between two of them is not counted.
async fn count_by_turns(core: &Core, operations: u32, mut operation: impl FnMut(u32)) -> u64 {
    for turn in turns(operations) {
        enter_turn(core).await;
        turn.for_each(&mut operation);
    }
    let mut made = 0;
    for turn in turns(operations) {
        enter_turn(core).await;
        made += allocations(|| counted_operations(turn, &mut operation));
    }
    made
}

/// Each operation takes `bytes` off a buffer that holds them for all operations, as they come off a
/// connection: those of many messages stand in one piece of memory.
fn kept(operations: u32, bytes: &[u8], mut operation: impl FnMut(&mut BytesMut)) -> u64 {
    let mut src = BytesMut::from(&*bytes.repeat(2 * operations as usize));
    count(operations, |_| operation(&mut src))
}

/// `full`, or less when only a few operations try whether a case works.
fn in_proportion(full: u32, operations: u32) -> u32 {
    full.min(operations.saturating_mul(100))
}

fn warm(
    operations: u32,
    acquire: impl Fn(&Pool<Tcp>, &SocketAddr) -> Option<Pooled<Tcp>> + 'static,
) -> u64 {
    let server = Server::script(keep_alive_ok());
    let address = server.addr();
    let run = Core::builder().run(|core| async move {
        let pool = Pool::new(&core, PoolConfig::default(), Tcp(core.clone()));
        let first = pool.acquire(&address).await.expect("the server accepts");
        first.release();
        let round = |_| {
            let conn = acquire(&pool, black_box(&address)).expect("one is idle");
            black_box(conn).release();
        };
        count_by_turns(&core, operations, round).await
    });
    run.expect("a core starts")
}

/// `prepare` makes what the caller keeps of a destination, and `acquire` finds it by that.
fn among_many<K: 'static>(
    operations: u32,
    prepare: impl Fn(&Pool<Sharing>, &SocketAddr) -> K + 'static,
    acquire: impl Fn(&Pool<Sharing>, &K) -> Option<Pooled<Sharing>> + 'static,
) -> u64 {
    let server = Server::script(keep_alive_ok());
    let address = server.addr();
    let destinations = in_proportion(DESTINATIONS, operations);
    let run = Core::builder().run(|core| async move {
        let many = Destinations::open(&core, address, destinations, 1).await;
        let kept = many.addresses.iter().map(|key| prepare(&many.pool, key));
        let kept: Vec<K> = kept.collect();
        let order = shuffled(destinations);
        enter_turn(&core).await;
        count(operations, |number| {
            let kept = &kept[order[number as usize] as usize];
            let conn = acquire(&many.pool, kept).expect("one is idle");
            black_box(conn).release();
        })
    });
    run.expect("a core starts")
}

fn state_of_many(operations: u32) -> u64 {
    let destinations = in_proportion(DESTINATIONS, operations);
    let (mut state, keys) = pinpool_benches::state_of_many(destinations);
    let order = shuffled(destinations);
    let now = Timestamp::from_nanos(1_000_000);
    count(operations, |number| {
        state_round(&mut state, now, keys[order[number as usize] as usize]);
    })
}

/// Each operation releases the connection, which goes to the oldest of many waiters, and lets that
/// waiter take it.
fn hand_over(operations: u32) -> u64 {
    let server = Server::script(keep_alive_ok());
    let address = server.addr();
    let run = Core::builder().run(|core| async move {
        let config = PoolConfig::builder().max_connections(1);
        let config = config.acquire_timeout(None).build();
        let config = config.expect("a config");
        let pool = Pool::new(&core, config, Tcp(core.clone()));
        let first = pool.acquire(&address).await.expect("the server accepts");
        let waiters = queue(&pool, &address, 2 * operations).await;
        let waiters = RefCell::new(VecDeque::from(waiters));
        let mut held = Some(first);
        enter_turn(&core).await;
        let made = count(operations, |_| {
            let next = waiters.borrow_mut().pop_front().expect("enough waiters");
            let last = held.take().expect("it is held");
            last.release();
            held = Some(at_once(next).expect("it was delivered"));
        });
        drop(held);
        made
    });
    run.expect("a core starts")
}

fn timer(operations: u32) -> u64 {
    let mut wheel = FullWheel::new(in_proportion(PENDING, operations));
    count(operations, |number| {
        wheel.schedule_and_cancel(deadline(number));
    })
}

/// Only what the client does when it is polled; not its peer, nor the core between two polls.
fn warm_get(operations: u32, way: Way) -> u64 {
    let run = Core::builder().run(move |core| async move {
        let warm = WarmGet::open(&core).await;
        for _ in 0..operations {
            warm.run(warm.prepare(way)).await;
        }
        let mut made = 0;
        for _ in 0..operations {
            let get = warm.run(warm.prepare(way));
            let polled = |poll: &mut dyn FnMut()| {
                made += allocations(|| counted_operations(0..1, &mut |_| poll()));
            };
            within(get, polled).await;
        }
        made
    });
    run.expect("a core starts")
}
