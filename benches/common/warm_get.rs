//! A warm GET over a real connection, both of whose ends are served on the same core: by the client,
//! and by no more than the reads and writes that carry the same bytes.

use std::cell::Cell;
use std::future::{Future, poll_fn};
use std::hint::black_box;
use std::io;
use std::net::SocketAddr;
use std::pin::pin;
use std::rc::Rc;
use std::task::Poll;

use bytes::{Bytes, BytesMut};
use futures_lite::{AsyncReadExt, AsyncWriteExt};
use http::header::{ACCEPT, ACCEPT_ENCODING, HeaderMap, HeaderValue, USER_AGENT};
use http::{Request, Uri};
use http_client::{Body, Client, ClientConfig, Destination, Outgoing, TcpConnector};
use http_codec::{BodyLength, RequestWriter, SentRequest};
use pool_core::{ConnectOptions, Core, ListenOptions, Pool, PoolConfig, TcpListener, TcpStream};

use crate::exchanges;

const WHOLE: &str = "a whole exchange";
const TARGET: &str = "/catalogue/item/4711?colour=blue";

/// Bytes of the response's body.
const BODY: usize = 1024;

/// What a client of an API says of itself, beside the host.
const FIELDS: [(http::HeaderName, &str); 3] = [
    (USER_AGENT, "pinpool-benches/0.1"),
    (ACCEPT, "application/json"),
    (ACCEPT_ENCODING, "gzip, br"),
];

/// Bytes of a read over the bare connection; the whole response fits.
const READ: usize = 4 << 10;

/// What carries the bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Way {
    /// A connected socket, written to and read from until as many bytes have come.
    Bare,
    /// `Client::exchange`, of a request that is encoded already.
    Exchange,
    /// `Client::send`.
    Send,
}

/// A request that is about to be sent.
#[derive(Debug)]
pub struct Prepared(Get);

#[derive(Debug)]
enum Get {
    Bare,
    Exchange(Outgoing),
    Send(Request<Body>),
}

/// A peer, a client with an idle connection to it, and a bare connection beside that. Requests have
/// 4 fields, responses 8 and 1 KiB.
pub struct WarmGet {
    client: Client<TcpConnector>,
    destination: Destination,
    uri: Uri,
    fields: HeaderMap,
    /// The request as the client encodes it.
    head: Bytes,
    sent: SentRequest,
    bare: TcpStream,
    /// What comes over it.
    inbox: Cell<BytesMut>,
    /// Bytes of the response, with its body.
    response: usize,
}

impl WarmGet {
    /// Starts the peer on this core and connects to it.
    ///
    /// # Panics
    ///
    /// If the kernel refuses a socket.
    pub async fn open(core: &Core) -> Self {
        let response: Rc<[u8]> = exchanges::response().into();
        let any = SocketAddr::from(([127, 0, 0, 1], 0));
        let listener = TcpListener::bind(core, any, &ListenOptions::default());
        let listener = listener.expect("a listener");
        let address = listener.local_addr();
        core.spawn(accept(core.clone(), listener, Rc::clone(&response)));

        let options = ConnectOptions::default();
        let bare = TcpStream::connect(core, address, &options).await;
        let connector = TcpConnector::new(core, options);
        let pool = Pool::new(core, PoolConfig::default(), connector);
        let uri: Uri = format!("http://{address}{TARGET}").parse().expect("a URI");
        let fields = FIELDS.map(|(name, value)| (name, HeaderValue::from_static(value)));
        let (head, sent) = encode(&address.to_string());
        let warm = Self {
            client: Client::new(pool, ClientConfig::default()),
            destination: Destination::from_uri(&uri).expect("a destination"),
            uri,
            fields: fields.into_iter().collect(),
            head,
            sent,
            bare: bare.expect("the peer accepts"),
            inbox: Cell::new(BytesMut::with_capacity(READ)),
            response: response.len(),
        };
        warm.run(warm.prepare(Way::Send)).await;
        warm
    }

    /// What a caller brings: for [`Way::Send`], a request that shares what it can with those before.
    #[must_use]
    pub fn prepare(&self, way: Way) -> Prepared {
        Prepared(match way {
            Way::Bare => Get::Bare,
            Way::Exchange => {
                let outgoing = Outgoing::new(self.head.clone(), self.sent, Body::empty());
                Get::Exchange(outgoing)
            }
            Way::Send => {
                let mut request = Request::new(Body::empty());
                *request.uri_mut() = self.uri.clone();
                *request.headers_mut() = self.fields.clone();
                Get::Send(request)
            }
        })
    }

    /// Sends the request and takes the response to its end.
    ///
    /// # Panics
    ///
    /// If that fails.
    pub async fn run(&self, prepared: Prepared) {
        let body = match prepared.0 {
            Get::Bare => return self.pass_bytes().await,
            Get::Exchange(outgoing) => {
                let exchanged = self.client.exchange(&self.destination, outgoing, |_| {});
                let (head, body) = exchanged.await.expect(WHOLE);
                black_box(head);
                body
            }
            Get::Send(request) => {
                let response = self.client.send(request).await.expect(WHOLE);
                black_box(response).into_body()
            }
        };
        assert_eq!(body.bytes(BODY).await.expect(WHOLE).len(), BODY);
    }

    async fn pass_bytes(&self) {
        (&self.bare).write_all(&self.head).await.expect(WHOLE);
        let mut inbox = self.inbox.take();
        while inbox.len() < self.response {
            let read = poll_fn(|cx| self.bare.poll_read_buf(cx, &mut inbox, READ));
            assert_ne!(read.await.expect(WHOLE), 0, "{WHOLE}");
        }
        assert_eq!(black_box(&inbox).len(), self.response);
        inbox.clear();
        self.inbox.set(inbox);
    }
}

/// The request as `Client::send` puts it on the wire; the peer takes no other.
fn encode(host: &str) -> (Bytes, SentRequest) {
    let mut head = BytesMut::new();
    let mut writer = RequestWriter::new(&mut head, "GET", TARGET).expect(WHOLE);
    writer.field("Host", host).expect(WHOLE);
    for (name, value) in FIELDS {
        writer.field(name.as_str(), value).expect(WHOLE);
    }
    let sent = writer.finish(BodyLength::None).expect(WHOLE);
    (head.freeze(), sent)
}

async fn accept(core: Core, mut listener: TcpListener, response: Rc<[u8]>) {
    let address = listener.local_addr().to_string();
    let (request, _) = encode(&address);
    while let Ok(stream) = listener.accept().await {
        let (request, response) = (request.clone(), Rc::clone(&response));
        core.spawn(async move {
            let served = serve(&stream, &request, &response).await;
            // The client closes its connections when it has done.
            served.expect("the peer is asked for what it knows");
        });
    }
}

/// Answers each request that is `request`, until the end of file.
async fn serve(mut stream: &TcpStream, request: &[u8], response: &[u8]) -> io::Result<()> {
    let mut buf = [0; 1024];
    loop {
        let mut came = 0;
        while came < request.len() {
            match stream.read(&mut buf[came..]).await? {
                0 => return Ok(()),
                read => came += read,
            }
        }
        if buf[..came] != *request {
            return Err(io::ErrorKind::InvalidData.into());
        }
        stream.write_all(response).await?;
    }
}

/// Polls `future` to its end, each time within `around`, which may count what only the future does:
/// not the peer, and not the core that carries the bytes between them.
pub async fn within<F: Future>(future: F, mut around: impl FnMut(&mut dyn FnMut())) -> F::Output {
    let mut future = pin!(future);
    poll_fn(|cx| {
        let mut polled = Poll::Pending;
        around(&mut || polled = future.as_mut().poll(cx));
        polled
    })
    .await
}
