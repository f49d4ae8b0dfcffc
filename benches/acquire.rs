//! What does a warm acquire and release cost, beside the least that could do the job?

use std::cell::RefCell;
use std::collections::HashMap;
use std::hint::black_box;
use std::io;
use std::net::SocketAddr;

use criterion::Criterion;
use pinpool_benches::{Counting, allocations};
use pool_core::{ConnectOptions, Connector, Core, Pool, PoolConfig, TcpStream};
use test_support::{Server, keep_alive_ok};

#[global_allocator]
static ALLOCATOR: Counting = Counting;

struct Tcp(Core);

impl Connector for Tcp {
    type Key = SocketAddr;
    type Connection = TcpStream;
    type Error = io::Error;

    async fn connect(&self, key: &SocketAddr) -> io::Result<TcpStream> {
        TcpStream::connect(&self.0, *key, &ConnectOptions::default()).await
    }
}

fn main() {
    let server = Server::script(keep_alive_ok());
    let address = server.addr();
    let mut criterion = Criterion::default().configure_from_args();
    let ran = Core::builder().run(|core| async move {
        let pool = Pool::new(&core, PoolConfig::default(), Tcp(core.clone()));
        let first = pool.acquire(&address).await.expect("the server accepts");
        first.release();
        let warm = || {
            let conn = pool.try_acquire(black_box(&address)).expect("one is idle");
            black_box(&conn);
            conn.release();
        };
        warm();
        let made = allocations(|| (0..1000).for_each(|_| warm()));
        assert_eq!(made, 0, "a warm acquire and release allocates");

        let mut group = criterion.benchmark_group("acquire");
        group.bench_function("hash map of vectors", |b| {
            let idle = RefCell::new(HashMap::from([(address, vec![7u32])]));
            b.iter(|| {
                let taken = idle
                    .borrow_mut()
                    .get_mut(black_box(&address))
                    .and_then(Vec::pop);
                let taken = black_box(taken.expect("one is idle"));
                idle.borrow_mut()
                    .get_mut(&address)
                    .expect("it is known")
                    .push(taken);
            });
        });
        group.bench_function("pool, with idle and hold timers", |b| b.iter(warm));
        group.finish();
        criterion.final_summary();
    });
    ran.expect("a core starts");
}
