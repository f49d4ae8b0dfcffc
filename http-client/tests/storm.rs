//! A destination that refuses all that it is asked, and then comes back.
#![allow(clippy::unwrap_used, reason = "a panic is how a test reports")]

mod common;

use std::cell::Cell;
use std::net::SocketAddr;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use common::*;
use http_client::{Backoff, RetryTable};
use pool_core::Core;

const REQUESTS: usize = 1000;

/// Fault row E9, and the storm that it comes from.
#[test]
fn a_storm_of_failures_is_not_fed_beyond_the_budget_and_leaves_nothing_behind() {
    let healthy = Arc::new(AtomicBool::new(false));
    let is_healthy = Arc::clone(&healthy);
    let server = refuse(refusal(503, ""), move |_| {
        !is_healthy.load(Ordering::Relaxed)
    });
    let address = server.addr();
    let pause = Duration::from_millis(20);
    let policy = RetryTable::default().backoff(Backoff::fixed(pause));
    let config = client_config()
        .retry(policy)
        .retry_budget(Some(budget(0.2)));
    let pool = pool_config().max_connections(32);
    let (server, healthy) = (&server, &healthy);
    with_client(pool, config, |core, client| async move {
        let statuses = burst(&core, &client, address, REQUESTS).await;
        assert_eq!(statuses, (0, REQUESTS));
        let arrived = server.counts().requests;
        assert!(
            (REQUESTS + 1..=REQUESTS * 6 / 5).contains(&arrived),
            "{arrived}"
        );
        let counts = client.retry_counts();
        assert_eq!(counts.granted, (arrived - REQUESTS) as u64);
        assert!(counts.refused >= 800, "{counts:?}");

        healthy.store(true, Ordering::Relaxed);
        assert_eq!(
            burst(&core, &client, address, REQUESTS).await,
            (REQUESTS, 0)
        );
        assert_eq!(server.counts().requests, arrived + REQUESTS);

        // With good requests behind it, the destination is worth a retry again.
        healthy.store(false, Ordering::Relaxed);
        let response = client.send(get(address)).await.unwrap();
        assert!(response.body().attempts().len() > 1);
        text(response).await.unwrap();
        healthy.store(true, Ordering::Relaxed);
        assert_in_order(&core, &client, 32).await;
    });
}

/// It comes back while some of those that it refused wait to ask again: others are answered
/// meanwhile, and each of these when its pause is over.
#[test]
fn traffic_is_normal_one_pause_after_a_destination_has_come_back() {
    let server = refuse(refusal(503, ""), |number| number < REQUESTS);
    let address = server.addr();
    // Longer than a burst takes, so that it comes back in the middle of a pause.
    let policy = RetryTable::default().backoff(Backoff::fixed(Duration::from_secs(1)));
    let config = client_config()
        .retry(policy)
        .retry_budget(Some(budget(0.2)));
    let pool = pool_config().max_connections(32);
    let server = &server;
    with_client(pool, config, |core, client| async move {
        let first = begin(&core, &client, address, REQUESTS);
        until(&core, "every refusal is decided on", || {
            let counts = client.retry_counts();
            counts.granted + counts.refused >= REQUESTS as u64
        })
        .await;
        let granted = usize::try_from(client.retry_counts().granted).unwrap();
        assert!((1..=REQUESTS / 5).contains(&granted), "{granted}");
        let second = burst(&core, &client, address, REQUESTS).await;
        assert_eq!(second, (REQUESTS, 0));

        until(&core, "all are answered", || first.answered() == REQUESTS).await;
        assert_eq!(first.counts(), (granted, REQUESTS - granted));
        assert_eq!(server.counts().requests, 2 * REQUESTS + granted);
        assert_in_order(&core, &client, 32).await;
    });
}

/// How requests were answered.
#[derive(Default)]
struct Answers {
    good: Cell<usize>,
    refused: Cell<usize>,
}

impl Answers {
    fn counts(&self) -> (usize, usize) {
        (self.good.get(), self.refused.get())
    }

    fn answered(&self) -> usize {
        self.good.get() + self.refused.get()
    }
}

/// Sends so many at once.
fn begin(core: &Core, client: &TestClient, address: SocketAddr, requests: usize) -> Rc<Answers> {
    let answers = Rc::new(Answers::default());
    for _ in 0..requests {
        let (client, answers) = (client.clone(), Rc::clone(&answers));
        core.spawn(async move {
            let response = client.send(get(address)).await.unwrap();
            let status = response.status().as_u16();
            text(response).await.unwrap();
            let count = match status {
                200 => &answers.good,
                503 => &answers.refused,
                other => panic!("{other}"),
            };
            count.set(count.get() + 1);
        });
    }
    answers
}

/// Sends so many at once; how many were answered well, and how many refused.
async fn burst(
    core: &Core,
    client: &TestClient,
    address: SocketAddr,
    requests: usize,
) -> (usize, usize) {
    let answers = begin(core, client, address, requests);
    until(core, "all are answered", || answers.answered() == requests).await;
    answers.counts()
}
