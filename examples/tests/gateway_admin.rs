//! What the admin address answers.
#![allow(clippy::unwrap_used, reason = "a panic is how a test reports")]

mod common;

use std::collections::BTreeSet;
use std::thread;

use common::{Client, Rig, Running, get};
use serde_json::{Value, json};
use test_support::{Gate, OK, Server, keep_alive_ok};

/// The counters of a place where nothing has happened.
fn nothing() -> Value {
    json!({
        "acquired": 0,
        "idle": 0,
        "connecting": 0,
        "pending": 0,
        "acquires": {"fresh": 0, "reused": 0, "queued": 0},
        "closes": {
            "abandoned": 0,
            "connect_timeout": 0,
            "connection_close": 0,
            "detached": 0,
            "drained": 0,
            "evicted": 0,
            "exchange_failed": 0,
            "heartbeat_failed": 0,
    "hold_timeout": 0,
            "idle_timeout": 0,
            "keep_alive_expired": 0,
    "max_lifetime": 0,
            "max_uses": 0,
            "overflow": 0,
    "peer_closed": 0,
            "reset": 0,
            "stray_bytes": 0,
            "surplus": 0,
        },
        "timeouts": {"acquire": 0, "connect": 0, "hold": 0},
    })
}

#[test]
fn stats_of_a_gateway_without_requests_are_empty() {
    let rig = Rig::new(keep_alive_ok());
    let expected = json!({
        "cores": [{"core": 0, "destinations": []}],
        "total": nothing(),
    });
    assert_eq!(rig.stats(), expected);
    rig.finish();
}

#[test]
fn stats_say_what_happened_by_core_and_destination() {
    let gate = Gate::new();
    let gated = gate.clone();
    let rig = Rig::with("--max-connections 1 --acquire-timeout 500ms", move |peer| {
        while peer.read_request()?.is_some() {
            peer.wait_at(&gated)?;
            peer.answer(OK)?;
        }
        Ok(())
    });
    let (mut first, mut second) = (rig.client(), rig.client());
    first.send(get("/"));
    gate.wait_for_arrivals(1);
    assert_eq!(second.get("/").status(), 503);

    let mut counters = nothing();
    counters["acquired"] = 1.into();
    counters["acquires"]["fresh"] = 1.into();
    counters["timeouts"]["acquire"] = 1.into();
    let expected = |counters: &Value| {
        let mut destination = counters.clone();
        destination["key"] = rig.upstream().into();
        json!({"cores": [{"core": 0, "destinations": [destination]}], "total": counters})
    };
    assert_eq!(rig.stats(), expected(&counters));

    gate.open();
    assert_eq!(first.response().text(), "ok");
    rig.wait_settled();
    assert_eq!(second.get("/").text(), "ok");
    rig.wait_settled();
    counters["acquired"] = 0.into();
    counters["idle"] = 1.into();
    counters["acquires"]["reused"] = 1.into();
    assert_eq!(rig.stats(), expected(&counters));
    rig.finish();
}

#[test]
fn stats_are_json_on_a_connection_that_is_kept() {
    let rig = Rig::new(keep_alive_ok());
    let mut client = Client::connect(rig.gateway().admin_address());
    for path in ["/stats", "/stats?pretty", "/stats"] {
        let response = client.get(path);
        assert_eq!(response.status(), 200);
        assert_eq!(response.field("Content-Type"), Some("application/json"));
        assert_eq!(response.field("Connection"), None);
        assert!(response.text().ends_with("}\n"));
        serde_json::from_str::<Value>(response.text()).unwrap();
    }
    client.send("HEAD /stats HTTP/1.1\r\nHost: site\r\n\r\n");
    let head = client.head();
    assert_eq!(head.status(), 200);
    let length = client.get("/stats").body.len().to_string();
    assert_eq!(
        head.field("Content-Length"),
        Some(&*length),
        "and no body followed"
    );
    rig.finish();
}

#[test]
fn other_paths_and_methods_are_told_what_there_is() {
    let rig = Rig::new(keep_alive_ok());
    let mut client = Client::connect(rig.gateway().admin_address());
    for path in ["/", "/stat", "/stats/", "/STATS"] {
        let response = client.get(path);
        assert_eq!((response.status(), response.text()), (404, "try /stats\n"));
        assert_eq!(response.field("Allow"), None);
    }
    for method in ["DELETE", "PUT"] {
        let head = format!("{method} /stats HTTP/1.1\r\nHost: site\r\nContent-Length: 5\r\n\r\n");
        client.send(head + "hello");
        let response = client.response();
        assert_eq!(
            (response.status(), response.text()),
            (405, "only GET and HEAD\n")
        );
        assert_eq!(response.field("Allow"), Some("GET, HEAD"));
    }
    client.send("nonsense\r\n\r\n");
    let response = client.response();
    assert_eq!(
        (response.status(), response.field("Connection")),
        (400, Some("close"))
    );
    client.expect_eof();
    drop(client);
    rig.finish();
}

/// Adds the numbers of `from` to those of `sum`, place by place.
fn add(sum: &mut Value, from: &Value) {
    match (sum, from) {
        (Value::Object(sum), Value::Object(from)) => {
            for (key, value) in from.iter().filter(|(key, _)| *key != "key") {
                add(&mut sum[key], value);
            }
        }
        (sum, from) => *sum = (sum.as_u64().unwrap() + from.as_u64().unwrap()).into(),
    }
}

#[test]
fn total_is_the_sum_over_all_cores_and_destinations() {
    let servers = [(); 2].map(|()| Server::script(keep_alive_ok()));
    let cores = thread::available_parallelism().unwrap().get().min(2);
    let gateway = Running::before(
        &[servers[0].addr(), servers[1].addr()],
        &format!("--cores {cores}"),
    );
    assert_eq!(gateway.gateway().cores(), cores);
    // The kernel chooses the core of a connection; after so many each has had some.
    for _ in 0..100 {
        let mut client = gateway.client();
        for _ in 0..3 {
            assert_eq!(client.get("/").text(), "ok");
        }
    }
    gateway.wait_settled();
    let stats = gateway.stats();
    let mut sum = nothing();
    let mut busy = BTreeSet::new();
    for core in stats["cores"].as_array().unwrap() {
        assert_eq!(core["error"], Value::Null);
        for destination in core["destinations"].as_array().unwrap() {
            add(&mut sum, destination);
            busy.insert((core["core"].as_u64(), destination["key"].to_string()));
        }
    }
    assert_eq!(busy.len(), 2 * cores, "{stats}");
    assert_eq!(stats["total"], sum);
    let acquires = &sum["acquires"];
    let served = acquires["fresh"].as_u64().unwrap() + acquires["reused"].as_u64().unwrap();
    assert_eq!(served, 300);
    let totals = gateway.finish();
    assert_eq!((totals.requests, totals.responses), (300, [300, 0, 0, 0]));
    servers.into_iter().for_each(Server::finish);
}
