//! A gRPC call with one message each way, over a unix socket.
//!
//! Owns framing, size and time limits, and the reading of a status. Must never wait without a
//! deadline, hold more than [`MAX_MESSAGE`] of an answer, or panic over what the other side sends.
//!
//! Two calls without streams, names or balancing are a screenful over `h2`; tonic would bring a router,
//! a web framework and a second stack of services into a program that has 32 MiB.

use std::path::{Path, PathBuf};
use std::time::Duration;

use bytes::{Buf, BufMut, Bytes, BytesMut};
use h2::client::SendRequest;
use http::{HeaderMap, HeaderValue, Method, Request, Version, header};
use prost::Message;
use tokio::net::UnixStream;
use tokio::task::JoinHandle;
use tokio::time::timeout;

/// Longest answer that is read, as the kubelet's own clients have it.
pub const MAX_MESSAGE: usize = 16 << 20;
/// Time for a connection, and for each call.
pub const CALL: Duration = Duration::from_secs(5);
/// How much the other side may send ahead.
const WINDOW: u32 = 1 << 20;
/// Longest list of headers that is read.
const MAX_HEADERS: u32 = 16 << 10;
/// Longest status message that is kept: it is for people.
const MAX_WORDS: usize = 512;
/// A frame's prefix: one byte of flags, four of length.
const PREFIX: usize = 5;

/// Why there is no answer.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error(
        "{path}: {reason}; is the kubelet running, and is its pod-resources directory mounted here?"
    )]
    Connect { path: PathBuf, reason: std::io::Error },
    #[error("{path}: no answer within {CALL:?}")]
    Silent { path: PathBuf },
    #[error("{path}: {reason}")]
    Http2 { path: PathBuf, reason: h2::Error },
    #[error("{path}: HTTP status {status} instead of an answer")]
    Http { path: PathBuf, status: u16 },
    /// The server's own refusal. Code 8 is its rate limit, 12 a method it does not have.
    #[error("{path}: {method} refused with gRPC code {code}: {message}")]
    Status { path: PathBuf, method: &'static str, code: u32, message: String },
    #[error("{path}: {method}: {reason}")]
    Malformed { path: PathBuf, method: &'static str, reason: String },
}

/// A connection to a server; it ends with this value.
pub struct Connection {
    path: PathBuf,
    requests: SendRequest<Bytes>,
    driver: JoinHandle<()>,
}

impl Drop for Connection {
    fn drop(&mut self) {
        self.driver.abort();
    }
}

impl Connection {
    /// Connects to the socket at `path`.
    pub async fn open(path: &Path) -> Result<Self, Error> {
        let silent = || Error::Silent { path: path.to_owned() };
        let stream = timeout(CALL, UnixStream::connect(path)).await.map_err(|_| silent())?;
        let stream = stream.map_err(|reason| Error::Connect { path: path.to_owned(), reason })?;
        let handshake = h2::client::Builder::new()
            .initial_window_size(WINDOW)
            .initial_connection_window_size(WINDOW)
            .max_header_list_size(MAX_HEADERS)
            .enable_push(false)
            .handshake(stream);
        let (requests, connection) = timeout(CALL, handshake)
            .await
            .map_err(|_| silent())?
            .map_err(|reason| Error::Http2 { path: path.to_owned(), reason })?;
        // Its end, good or bad, is what the call under way is told.
        let driver = tokio::spawn(async move { drop(connection.await) });
        Ok(Self { path: path.to_owned(), requests, driver })
    }

    /// Sends `request` to `method` (`/package.Service/Method`) and reads the answer.
    pub async fn call<Q: Message, A: Message + Default>(
        &mut self,
        method: &'static str,
        request: &Q,
    ) -> Result<A, Error> {
        match timeout(CALL, self.exchange(method, request)).await {
            Ok(answer) => answer,
            Err(_) => Err(Error::Silent { path: self.path.clone() }),
        }
    }

    async fn exchange<Q: Message, A: Message + Default>(
        &mut self,
        method: &'static str,
        request: &Q,
    ) -> Result<A, Error> {
        let path = self.path.clone();
        let http2 = |reason| Error::Http2 { path: path.clone(), reason };
        let mut requests = self.requests.clone().ready().await.map_err(http2)?;
        let (answer, mut body) = requests.send_request(head(method), false).map_err(http2)?;
        body.send_data(frame(request), true).map_err(http2)?;
        let (head, mut body) = answer.await.map_err(http2)?.into_parts();
        if head.status != http::StatusCode::OK {
            return Err(Error::Http { path, status: head.status.as_u16() });
        }
        // An answer without a body has its status in the head.
        self.judge(method, &head.headers)?;
        let mut bytes = BytesMut::new();
        while let Some(chunk) = body.data().await {
            let chunk = chunk.map_err(http2)?;
            if bytes.len() + chunk.len() > MAX_MESSAGE + PREFIX {
                return Err(self.malformed(method, format!("longer than {MAX_MESSAGE} bytes")));
            }
            body.flow_control().release_capacity(chunk.len()).map_err(http2)?;
            bytes.extend_from_slice(&chunk);
        }
        match body.trailers().await.map_err(http2)? {
            Some(trailers) => self.judge(method, &trailers)?,
            None if !head.headers.contains_key("grpc-status") => {
                return Err(self.malformed(method, "the answer ends without a status".to_owned()));
            }
            None => {}
        }
        unframe(bytes.freeze()).map_err(|reason| self.malformed(method, reason))
    }

    /// Takes a status in `headers` for what it says; none is no refusal.
    fn judge(&self, method: &'static str, headers: &HeaderMap) -> Result<(), Error> {
        let Some(code) = headers.get("grpc-status") else { return Ok(()) };
        let Some(code) = code.to_str().ok().and_then(|text| text.parse().ok()) else {
            return Err(self.malformed(method, format!("the status {code:?} is no number")));
        };
        if code == 0 {
            return Ok(());
        }
        let message = headers.get("grpc-message").map(HeaderValue::as_bytes).unwrap_or_default();
        Err(Error::Status { path: self.path.clone(), method, code, message: words(message) })
    }

    fn malformed(&self, method: &'static str, reason: String) -> Error {
        Error::Malformed { path: self.path.clone(), method, reason }
    }
}

fn head(method: &'static str) -> Request<()> {
    let mut head = Request::new(());
    *head.method_mut() = Method::POST;
    *head.version_mut() = Version::HTTP_2;
    let mut uri = http::uri::Parts::default();
    uri.scheme = Some(http::uri::Scheme::HTTP);
    uri.authority = Some(http::uri::Authority::from_static("localhost"));
    uri.path_and_query = Some(http::uri::PathAndQuery::from_static(method));
    *head.uri_mut() = http::Uri::from_parts(uri).unwrap_or_default();
    let headers = head.headers_mut();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/grpc"));
    headers.insert(header::TE, HeaderValue::from_static("trailers"));
    let agent = concat!("muster-node-agent/", env!("CARGO_PKG_VERSION"));
    headers.insert(header::USER_AGENT, HeaderValue::from_static(agent));
    head
}

/// A message with its prefix.
pub fn frame(message: &impl Message) -> Bytes {
    let length = message.encoded_len();
    let mut bytes = BytesMut::with_capacity(PREFIX + length);
    bytes.put_u8(0);
    bytes.put_u32(u32::try_from(length).unwrap_or(u32::MAX));
    // Fails only without room, and this buffer grows.
    let _ = message.encode(&mut bytes);
    bytes.freeze()
}

/// The one message of an answer.
fn unframe<A: Message + Default>(mut bytes: Bytes) -> Result<A, String> {
    if bytes.len() < PREFIX {
        return Err(format!("an answer of {} bytes has no message", bytes.len()));
    }
    if bytes.get_u8() != 0 {
        return Err("the answer is compressed, which was not asked for".to_owned());
    }
    let length = bytes.get_u32() as usize;
    if length != bytes.len() {
        return Err(format!("a message of {length} bytes was announced, {} came", bytes.len()));
    }
    A::decode(bytes).map_err(|error| format!("not the expected message: {error}"))
}

/// A status message: percent-encoded, and cut if it is long.
fn words(text: &[u8]) -> String {
    let mut bytes = Vec::with_capacity(text.len().min(MAX_WORDS));
    let mut rest = text;
    while let [first, tail @ ..] = rest {
        let escaped = match (first, tail) {
            (b'%', [a, b, after @ ..]) => hex(*a).zip(hex(*b)).map(|(a, b)| (a << 4 | b, after)),
            _ => None,
        };
        let (byte, after) = escaped.unwrap_or((*first, tail));
        bytes.push(byte);
        rest = after;
        if bytes.len() == MAX_WORDS {
            break;
        }
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

fn hex(digit: u8) -> Option<u8> {
    char::from(digit).to_digit(16).and_then(|value| u8::try_from(value).ok())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::super::proto::{AllocatableResponse, ListResponse};
    use super::*;

    #[test]
    fn a_status_message_is_decoded_and_cut() {
        let cases = [
            ("plain", "plain"),
            ("rate%20limit: 100%25", "rate limit: 100%"),
            ("half %2", "half %2"),
            ("%zz", "%zz"),
            ("%c3%a9", "é"),
            ("%ff", "\u{fffd}"),
        ];
        for (text, expected) in cases {
            assert_eq!(words(text.as_bytes()), expected, "{text}");
        }
        assert_eq!(words(&[b'a'; 4 * MAX_WORDS]).len(), MAX_WORDS);
    }

    #[test]
    fn an_answer_is_exactly_one_message() {
        let check = |bytes: &[u8], expected: &str| {
            let error = unframe::<ListResponse>(Bytes::copy_from_slice(bytes)).unwrap_err();
            assert!(error.contains(expected), "{bytes:?}: {error}");
        };
        check(&[], "an answer of 0 bytes");
        check(&[0, 0, 0, 0], "an answer of 4 bytes");
        check(&[1, 0, 0, 0, 0], "compressed");
        check(&[0, 0, 0, 0, 9, 1], "9 bytes was announced, 1 came");
        check(&[0, 0xff, 0xff, 0xff, 0xff], "was announced");
        check(&[0, 0, 0, 0, 1, 0xff], "not the expected message");
        assert_eq!(unframe(Bytes::from_static(&[0; 5])), Ok(ListResponse::default()));
    }

    proptest! {
        #[test]
        fn any_bytes_are_an_answer_or_refused(bytes in prop::collection::vec(any::<u8>(), 0..300)) {
            let _ = unframe::<ListResponse>(Bytes::from(bytes.clone()));
            let _ = ListResponse::decode(&*bytes);
            let _ = AllocatableResponse::decode(&*bytes);
            let _ = words(&bytes);
        }

        /// Random bytes seldom get past the first tag; a message with a few bytes changed does.
        #[test]
        fn a_damaged_message_is_an_answer_or_refused(
            message in crate::podresources::tests::list(),
            damage in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..6),
        ) {
            let mut bytes = frame(&message).to_vec();
            for (at, byte) in damage {
                let at = at.index(bytes.len());
                bytes[at] = byte;
            }
            if let Ok(list) = unframe::<ListResponse>(Bytes::from(bytes)) {
                let _ = crate::podresources::Holdings::read(&list);
            }
        }

        #[test]
        fn what_is_framed_is_read_back(message in crate::podresources::tests::list()) {
            prop_assert_eq!(unframe::<ListResponse>(frame(&message)), Ok(message));
        }
    }
}
