//! Event files that TensorBoard opens.
//!
//! A file is a row of records: the length of an event (8 bytes, little-endian), a masked CRC-32C of
//! the length, the event, a masked CRC-32C of the event. An event is a protocol buffer with a time
//! (1), a step (2), and either the format's version (3) or a summary (5) of tags (1) and numbers (2).

use std::{
    fs::{File, OpenOptions},
    io::Write as _,
    path::{Path, PathBuf},
};

use crate::TrainError;

/// A file of events that is written.
#[derive(Debug)]
pub struct Events {
    file: File,
    path: PathBuf,
}

impl Events {
    /// Begins a file in a folder; `time` is in seconds since 1970. Started again, a run has several
    /// files, which TensorBoard reads as one.
    ///
    /// # Errors
    /// When it can't be written.
    pub fn begin(folder: &Path, time: f64) -> Result<Self, TrainError> {
        std::fs::create_dir_all(folder).map_err(TrainError::io(folder))?;
        let name = |number: u32| folder.join(format!("events.out.tfevents.{time:010.0}.{number}"));
        let begin = |path: &Path| OpenOptions::new().write(true).create_new(true).open(path);
        let mut number = 0;
        let (file, path) = loop {
            let path = name(number);
            match begin(&path) {
                Ok(file) => break (file, path),
                Err(error) if error.kind() == std::io::ErrorKind::AlreadyExists => number += 1,
                Err(error) => return Err(TrainError::io(&path)(error)),
            }
        };
        let mut events = Self { file, path };
        let mut event = Message::default();
        event.double(1, time);
        event.bytes(3, b"brain.Event:2");
        events.write(&event.0)?;
        Ok(events)
    }

    /// Writes numbers of a step.
    ///
    /// # Errors
    /// When it can't be written.
    pub fn push(
        &mut self,
        time: f64,
        step: u64,
        numbers: &[(&str, f64)],
    ) -> Result<(), TrainError> {
        let mut summary = Message::default();
        for (tag, number) in numbers {
            let mut value = Message::default();
            value.bytes(1, tag.as_bytes());
            value.float(2, *number as f32);
            summary.bytes(1, &value.0);
        }
        let mut event = Message::default();
        event.double(1, time);
        event.whole(2, step);
        event.bytes(5, &summary.0);
        self.write(&event.0)
    }

    fn write(&mut self, event: &[u8]) -> Result<(), TrainError> {
        let length = (event.len() as u64).to_le_bytes();
        let mut record = length.to_vec();
        record.extend(masked(&length).to_le_bytes());
        record.extend(event);
        record.extend(masked(event).to_le_bytes());
        self.file
            .write_all(&record)
            .map_err(TrainError::io(&self.path))
    }
}

/// As TensorFlow's records have it.
fn masked(bytes: &[u8]) -> u32 {
    crc32c::crc32c(bytes)
        .rotate_right(15)
        .wrapping_add(0xa282_ead8)
}

/// A protocol buffer.
#[derive(Default)]
struct Message(Vec<u8>);

impl Message {
    fn varint(&mut self, mut number: u64) {
        while number >= 0x80 {
            self.0.push(number as u8 | 0x80);
            number >>= 7;
        }
        self.0.push(number as u8);
    }

    fn whole(&mut self, field: u64, number: u64) {
        self.varint(field << 3);
        self.varint(number);
    }

    fn double(&mut self, field: u64, number: f64) {
        self.varint(field << 3 | 1);
        self.0.extend(number.to_le_bytes());
    }

    fn bytes(&mut self, field: u64, bytes: &[u8]) {
        self.varint(field << 3 | 2);
        self.varint(bytes.len() as u64);
        self.0.extend(bytes);
    }

    fn float(&mut self, field: u64, number: f32) {
        self.varint(field << 3 | 5);
        self.0.extend(number.to_le_bytes());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The first record is the one that every such file begins with, byte by byte.
    #[test]
    fn a_file_begins_as_tensorboard_expects() {
        let folder = tempfile::tempdir().unwrap();
        let mut events = Events::begin(folder.path(), 0.0).unwrap();
        events.push(0.0, 300, &[("reward", 0.5)]).unwrap();
        let bytes = std::fs::read(&events.path).unwrap();
        assert_eq!(bytes[..12], [24, 0, 0, 0, 0, 0, 0, 0, 163, 127, 75, 34]);
        assert_eq!(&bytes[12..36], b"\x09\0\0\0\0\0\0\0\0\x1a\x0dbrain.Event:2");
        let second = &bytes[40..];
        assert_eq!(second[0] as usize + 16, second.len());
        let value = b"\x0a\x06reward\x15\0\0\0\x3f";
        assert!(second.windows(value.len()).any(|window| window == value));
        // Another file of the same second has another name.
        Events::begin(folder.path(), 0.0).unwrap();
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 2);
    }
}
