//! How many bytes of heap does an idle connection cost?
//!
//! Opens many connections to one destination, releases them all, and prints what is allocated then
//! and was not before, by what the allocator was asked for: the sockets' peer is another process.
//! Beside the sum stand the blocks that make it up: small ones by their size, of which there is one
//! per connection, and large ones, which are the tables that all connections share.

use std::io::{BufRead, BufReader, Read};
use std::net::SocketAddr;
use std::process::{Child, Command, Stdio};

use pinpool_benches::{
    Counting, Live, Tcp, enter_turn, keep_connections, live, measures, raise_descriptor_limit,
};
use pool_core::{Core, Pool, PoolConfig};

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// Asks this program to be the peer.
const PEER: &str = "PINPOOL_PEER";

fn main() {
    let limit = raise_descriptor_limit();
    if std::env::var_os(PEER).is_some() {
        println!("{}", keep_connections().expect("a listener"));
        // Until the other side closes its end.
        let _ = std::io::stdin().read_to_end(&mut Vec::new());
        return;
    }
    let wanted = if measures() { 10_000 } else { 100 };
    let connections = wanted.min(u32::try_from(limit.saturating_sub(256)).unwrap_or(wanted));
    let (mut peer, address) = start_peer();
    let ran = Core::builder().run(|core| async move {
        let (before, after) = fill(&core, address, connections).await;
        report(connections, &before, &after);
    });
    ran.expect("a core starts");
    // Ends it.
    drop(peer.stdin.take());
    peer.wait().expect("the peer ends");
}

fn start_peer() -> (Child, SocketAddr) {
    let program = std::env::current_exe().expect("this program is a file");
    let mut peer = Command::new(program)
        .env(PEER, "1")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .expect("the peer starts");
    let told = peer.stdout.take().expect("its output is piped");
    let mut line = String::new();
    let read = BufReader::new(told).read_line(&mut line);
    read.expect("the peer tells its address");
    let address = line.trim().parse().expect("an address");
    (peer, address)
}

/// What is allocated before and after.
async fn fill(core: &Core, address: SocketAddr, connections: u32) -> (Live, Live) {
    let config = PoolConfig::builder()
        .max_connections(connections)
        .hold_timeout(None)
        .build();
    let pool = Pool::new(core, config.expect("a config"), Tcp(core.clone()));
    let mut held = Vec::with_capacity(connections as usize);
    // The first one pays for what there is once.
    let first = pool.acquire(&address).await.expect("the peer accepts");
    held.push(first);
    let before = live();
    for _ in 1..connections {
        held.push(pool.acquire(&address).await.expect("the peer accepts"));
    }
    for conn in held.drain(..) {
        conn.release();
    }
    // Whatever a turn frees is freed.
    enter_turn(core).await;
    let after = live();
    assert_eq!(pool.snapshot().total.idle.current, connections);
    (before, after)
}

fn report(connections: u32, before: &Live, after: &Live) {
    let made = f64::from(connections - 1);
    let each = |bytes: usize| bytes as f64 / made;
    println!("{connections} idle connections, bytes of heap for each:");
    for (bytes, (now, then)) in after.small.iter().zip(&before.small).enumerate() {
        let more = now.saturating_sub(*then);
        if f64::from(u32::try_from(more).unwrap_or(0)) > made / 100.0 {
            let blocks = each(more);
            let sum = each(more * bytes);
            println!("{sum:8.1}  {blocks:.2} blocks of {bytes} bytes");
        }
    }
    for block in after
        .large
        .iter()
        .filter(|block| !before.large.contains(block))
    {
        let (sum, bytes) = (each(block.bytes), block.bytes);
        println!("{sum:8.1}  a table of {bytes} bytes");
    }
    let all = each(after.bytes.saturating_sub(before.bytes));
    println!("{all:8.1}  in all");
}
