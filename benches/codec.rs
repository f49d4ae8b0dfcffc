//! What does the codec cost on top of the parser under it, and beside a copy of the same bytes?
//!
//! - Heads: httparse alone is the limit. The view is what a gateway looks at; the exchange shares the
//!   bytes so that they can be kept; a map of the `http` crate is what most clients build.
//! - A chunked body: each chunk is a slice of the input, so the cost is that of its frame. Beside it
//!   the copy that a codec makes which hands the body out in one piece.
//! - Encoding: one pass into the caller's buffer, beside a copy of the same bytes.
//! - Whole exchanges over memory, beside hyper's: its public face has nothing smaller.

use std::hint::black_box;

use bytes::{Bytes, BytesMut};
use criterion::measurement::WallTime;
use criterion::{BatchSize, BenchmarkGroup, Criterion, Throughput};
use http_codec::{Limits, ServerExchange};
use pinpool_benches::Counting;
use pinpool_benches::codec::{
    BODY, CHUNK, REQUEST, RESPONSE, chunked, encode, exchange_request, exchange_response,
    httparse_request, httparse_response, read_body, sent, view_request, view_response,
};
use pinpool_benches::exchanges::{
    HyperClient, HyperServer, codec_client, codec_client_http, codec_server, header_map, response,
};

#[global_allocator]
static ALLOCATOR: Counting = Counting;

fn main() {
    let mut criterion = Criterion::default().configure_from_args();
    let sent = sent();
    let mut group = criterion.benchmark_group("response head, 8 fields");
    heads(
        &mut group,
        RESPONSE,
        || httparse_response(black_box(RESPONSE)),
        || view_response(black_box(RESPONSE), sent),
        |src| drop(black_box(exchange_response(src, sent))),
        |src| drop(black_box(exchange_response(src, sent).to_http())),
    );
    group.finish();
    let mut group = criterion.benchmark_group("request head, 12 fields");
    heads(
        &mut group,
        REQUEST,
        || httparse_request(black_box(REQUEST)),
        || view_request(black_box(REQUEST)),
        |src| drop(black_box(exchange_request(src))),
        |src| drop(black_box(exchange_request(src).to_http())),
    );
    group.finish();
    bodies(&mut criterion);
    encoding(&mut criterion);
    exchanges(&mut criterion);
    criterion.final_summary();
}

fn heads(
    group: &mut BenchmarkGroup<'_, WallTime>,
    bytes: &'static [u8],
    httparse: impl Fn() -> usize,
    view: impl Fn() -> usize,
    exchange: impl Fn(&mut BytesMut),
    http: impl Fn(&mut BytesMut),
) {
    group.bench_function("httparse", |b| b.iter(&httparse));
    group.bench_function("view", |b| b.iter(&view));
    let fresh = || BytesMut::from(bytes);
    group.bench_function("exchange", |b| {
        b.iter_batched_ref(fresh, &exchange, BatchSize::SmallInput);
    });
    group.bench_function("into the http crate's types", |b| {
        b.iter_batched_ref(fresh, &http, BatchSize::SmallInput);
    });
}

fn bodies(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group(format!("body of {} KiB", BODY >> 10));
    group.throughput(Throughput::Bytes(BODY as u64));
    let name = format!("chunked, {} KiB a chunk", CHUNK >> 10);
    group.bench_function(name, |b| {
        b.iter_batched_ref(chunked, read_body, BatchSize::LargeInput);
    });
    let from = vec![7u8; BODY];
    let mut to = vec![0u8; BODY];
    group.bench_function("memcpy", |b| {
        b.iter(|| black_box(&mut to).copy_from_slice(black_box(&from)));
    });
    group.finish();
}

fn encoding(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("encode a request head, 12 fields");
    let mut dst = BytesMut::with_capacity(4096);
    group.bench_function("writer", |b| {
        b.iter(|| {
            dst.clear();
            encode(black_box(&mut dst));
        });
    });
    encode(&mut dst);
    let written: Bytes = dst.clone().freeze();
    group.bench_function("memcpy", |b| {
        b.iter(|| {
            dst.clear();
            black_box(&mut dst).extend_from_slice(black_box(&written));
        });
    });
    group.finish();
}

fn exchanges(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("a client's exchange, 1 KiB");
    let (mut dst, mut src) = (BytesMut::new(), BytesMut::new());
    let (response, fields) = (response(), header_map());
    group.bench_function("codec", |b| {
        b.iter(|| codec_client(&mut dst, &mut src, black_box(&response)));
    });
    group.bench_function("codec, with the http crate's types", |b| {
        b.iter(|| codec_client_http(&mut dst, &mut src, black_box(&response), &fields));
    });
    let mut hyper = HyperClient::new(response.clone());
    group.bench_function("hyper", |b| b.iter(|| hyper.exchange()));
    group.finish();

    let mut group = criterion.benchmark_group("a server's exchange, 2 bytes");
    let mut exchange = ServerExchange::new(&Limits::default());
    group.bench_function("codec", |b| {
        b.iter(|| codec_server(&mut exchange, &mut dst, &mut src));
    });
    let mut hyper = HyperServer::new();
    group.bench_function("hyper", |b| b.iter(|| hyper.exchange()));
    group.finish();
}
