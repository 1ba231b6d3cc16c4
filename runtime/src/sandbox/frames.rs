//! Frames on a stream: a length in four bytes, then the value in postcard's encoding.

use std::{
    io,
    sync::{Mutex, PoisonError},
};

use serde::{Serialize, de::DeserializeOwned};
use tokio::{
    io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _},
    sync::Notify,
};

/// The longest frame that is read: every value in one is bounded far below it.
const LONGEST: usize = 64 << 20;

/// Appends a frame.
pub(crate) fn encode(value: &impl Serialize, to: &mut Vec<u8>) -> io::Result<()> {
    let start = to.len();
    to.extend_from_slice(&[0; 4]);
    let mut taken = std::mem::take(to);
    taken = postcard::to_extend(value, taken).map_err(io::Error::other)?;
    let length = (taken.len() - start - 4) as u32;
    taken[start..start + 4].copy_from_slice(&length.to_le_bytes());
    *to = taken;
    Ok(())
}

/// Frames that wait to be written. Those that come while a write is under way go out together in the
/// next one, so that many small episodes cost few system calls.
#[derive(Debug, Default)]
pub(crate) struct Outbox {
    waiting: Mutex<Waiting>,
    changed: Notify,
}

#[derive(Debug, Default)]
struct Waiting {
    bytes: Vec<u8>,
    closed: bool,
}

impl Outbox {
    fn lock(&self) -> std::sync::MutexGuard<'_, Waiting> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds a frame.
    pub(crate) fn send(&self, value: &impl Serialize) -> io::Result<()> {
        encode(value, &mut self.lock().bytes)?;
        self.changed.notify_one();
        Ok(())
    }

    /// Lets [`Outbox::drain_to`] end.
    pub(crate) fn close(&self) {
        self.lock().closed = true;
        self.changed.notify_one();
    }

    /// Writes frames as they come, until the outbox is closed and empty.
    pub(crate) async fn drain_to(&self, mut stream: impl AsyncWrite + Unpin) -> io::Result<()> {
        let mut bytes = Vec::new();
        loop {
            let closed = {
                let mut waiting = self.lock();
                std::mem::swap(&mut waiting.bytes, &mut bytes);
                waiting.closed
            };
            if bytes.is_empty() {
                if closed {
                    return Ok(());
                }
                self.changed.notified().await;
                continue;
            }
            stream.write_all(&bytes).await?;
            bytes.clear();
            // One large frame does not keep its memory for good.
            bytes.shrink_to(1 << 20);
        }
    }
}

/// Reads frames.
#[derive(Debug)]
pub(crate) struct FrameReader<R> {
    stream: R,
    buffer: Vec<u8>,
    start: usize,
}

impl<R: AsyncRead + Unpin> FrameReader<R> {
    pub(crate) fn new(stream: R) -> Self {
        Self {
            stream,
            buffer: Vec::with_capacity(64 << 10),
            start: 0,
        }
    }

    /// The next frame, or nothing at the end of the stream.
    pub(crate) async fn next<T: DeserializeOwned>(&mut self) -> io::Result<Option<T>> {
        loop {
            if let Some(frame) = self.buffered()? {
                let value = postcard::from_bytes(&self.buffer[frame.clone()]);
                self.start = frame.end;
                return value.map(Some).map_err(io::Error::other);
            }
            self.buffer.drain(..self.start);
            self.start = 0;
            if self.buffer.is_empty() {
                self.buffer.shrink_to(1 << 20);
            }
            self.buffer.reserve(64 << 10);
            if self.stream.read_buf(&mut self.buffer).await? == 0 {
                return if self.buffer.is_empty() {
                    Ok(None)
                } else {
                    Err(io::ErrorKind::UnexpectedEof.into())
                };
            }
        }
    }

    /// Where a whole frame lies in the buffer, if one is there.
    fn buffered(&self) -> io::Result<Option<std::ops::Range<usize>>> {
        let Some((length, _)) = self.buffer[self.start..].split_first_chunk::<4>() else {
            return Ok(None);
        };
        let length = u32::from_le_bytes(*length) as usize;
        if length > LONGEST {
            return Err(io::Error::other(format!(
                "a frame of {length} bytes is too long"
            )));
        }
        let start = self.start + 4;
        Ok((self.buffer.len() - start >= length).then_some(start..start + length))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn frames_arrive_whole_and_in_order() {
        let (ours, theirs) = tokio::io::duplex(7);
        let outbox = Outbox::default();
        let texts: Vec<String> = (0..100).map(|n| "x".repeat(n)).collect();
        texts.iter().for_each(|text| outbox.send(text).unwrap());
        outbox.close();
        let read = async {
            let mut reader = FrameReader::new(theirs);
            let mut got = Vec::new();
            while let Some(text) = reader.next::<String>().await.unwrap() {
                got.push(text);
            }
            got
        };
        let (written, got) = tokio::join!(outbox.drain_to(ours), read);
        written.unwrap();
        assert_eq!(got, texts);
    }

    #[tokio::test]
    async fn a_length_that_lies_is_refused() {
        let mut reader = FrameReader::new(&[0xff, 0xff, 0xff, 0xff, 0][..]);
        assert!(reader.next::<String>().await.is_err());
        let mut reader = FrameReader::new(&[4, 0, 0, 0, 200][..]);
        assert!(reader.next::<String>().await.is_err());
    }
}
