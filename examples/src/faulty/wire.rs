//! A client's connection: requests in, bytes out, as they are.

use std::future::poll_fn;
use std::net::Shutdown;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::BytesMut;
use futures_lite::{AsyncWriteExt, FutureExt};
use http_codec::{DecodeError, RequestEvent, RequestHead, ServerExchange};
use pool_core::{Core, TcpStream};

/// What a read asks for.
const PIECE: usize = 16 << 10;

/// Unasked bytes are read only below this: pipelined requests stay with the client's kernel.
const READ_AHEAD: usize = 8 << 10;

/// How long a client may leave us without room for what we send.
const WRITE_TIMEOUT: Duration = Duration::from_secs(60);

/// How long a client may take to close once it has its last answer.
const LINGER: Duration = Duration::from_secs(1);

/// The client has closed or reset the connection, or takes nothing.
#[derive(Debug)]
pub(super) struct Gone;

/// Why there is no request.
#[derive(Debug)]
pub(super) enum NoRequest {
    Gone,
    Malformed(DecodeError),
}

#[derive(Debug)]
pub(super) struct Wire {
    core: Core,
    stream: TcpStream,
    inbox: BytesMut,
    eof: bool,
}

impl Wire {
    pub(super) fn new(core: &Core, stream: TcpStream) -> Self {
        Self {
            core: core.clone(),
            stream,
            inbox: BytesMut::new(),
            eof: false,
        }
    }

    pub(super) fn core(&self) -> &Core {
        &self.core
    }

    pub(super) async fn head(
        &mut self,
        request: &mut ServerExchange,
    ) -> Result<RequestHead, NoRequest> {
        match self.event(request).await? {
            RequestEvent::Head(head) => Ok(head),
            // Nothing else comes first.
            _ => Err(NoRequest::Gone),
        }
    }

    /// Reads the body to its end and keeps up to `most` bytes of it. `None` where it has more.
    pub(super) async fn body(
        &mut self,
        request: &mut ServerExchange,
        most: usize,
    ) -> Result<Option<Vec<u8>>, NoRequest> {
        let (mut body, mut fits) = (Vec::new(), true);
        while let RequestEvent::Data(data) = self.event(request).await? {
            fits &= body.len() + data.len() <= most;
            if fits {
                body.extend_from_slice(&data);
            }
        }
        Ok(fits.then_some(body))
    }

    async fn event(&mut self, request: &mut ServerExchange) -> Result<RequestEvent, NoRequest> {
        loop {
            let event = match self.eof {
                false => request.decode(&mut self.inbox),
                true => request.decode_eof(&mut self.inbox),
            };
            match event.map_err(NoRequest::Malformed)? {
                RequestEvent::NeedData if !self.eof => {}
                RequestEvent::NeedData | RequestEvent::Closed => return Err(NoRequest::Gone),
                event => return Ok(event),
            }
            let read = poll_fn(|cx| self.poll_read(cx)).await;
            read.map_err(|Gone| NoRequest::Gone)?;
        }
    }

    fn poll_read(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Gone>> {
        let read = self.stream.poll_read_buf(cx, &mut self.inbox, PIECE);
        Poll::Ready(match ready!(read) {
            Ok(read) => {
                self.eof = read == 0;
                Ok(())
            }
            Err(_) => Err(Gone),
        })
    }

    pub(super) async fn write(&mut self, bytes: &[u8]) -> Result<(), Gone> {
        let written = self.stream.write_all(bytes);
        match self.core.timeout(WRITE_TIMEOUT, written).await {
            Ok(Ok(())) => Ok(()),
            _ => Err(Gone),
        }
    }

    /// Waits, unless the client closes meanwhile. One that has closed only its sending side looks
    /// the same, and is not waited for either.
    pub(super) async fn pause(&mut self, ms: u64) -> Result<(), Gone> {
        if ms == 0 {
            return Ok(());
        }
        let sleep = self.core.sleep(Duration::from_millis(ms));
        let slept = async {
            sleep.await;
            Ok(())
        };
        slept.or(poll_fn(|cx| self.poll_gone(cx).map(Err))).await
    }

    fn poll_gone(&mut self, cx: &mut Context<'_>) -> Poll<Gone> {
        while !self.eof && self.inbox.len() < READ_AHEAD {
            if ready!(self.poll_read(cx)).is_err() {
                return Poll::Ready(Gone);
            }
        }
        if self.eof {
            return Poll::Ready(Gone);
        }
        self.stream.poll_reset(cx).map(|()| Gone)
    }

    /// Closes behind a last answer so that the client gets it, even if it is still sending: what
    /// arrives at a closed socket is answered by RST, and that can overtake the answer.
    pub(super) async fn finish(mut self) {
        // One that is gone needs no FIN.
        let _ = self.stream.shutdown(Shutdown::Write);
        let core = self.core.clone();
        let closed = async {
            while !self.eof {
                self.inbox.clear();
                if poll_fn(|cx| self.poll_read(cx)).await.is_err() {
                    return;
                }
            }
        };
        // Whoever has not closed by then is reset.
        let _ = core.timeout(LINGER, closed).await;
    }

    pub(super) fn reset(self) {
        if let Err(error) = self.stream.reset_on_drop() {
            tracing::debug!(%error, "the connection is gone already, so FIN has to do for RST");
        }
    }
}
