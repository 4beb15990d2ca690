//! EncodedRows in COPY's binary format, sent while they are generated: the server processes the first while the last are
//! written.

use serde::Serialize;
use sqlx::PgConnection;
use sqlx::postgres::PgCopyIn;

use crate::sql::ColumnWriter;

/// Header of a binary copy: the signature, no flags, no extension.
const HEADER: &[u8] = b"PGCOPY\n\xff\r\n\0\0\0\0\0\0\0\0\0";
/// Its end, in the place of a column count.
const TRAILER: [u8; 2] = (-1_i16).to_be_bytes();
/// Times count from the year 2000, in microseconds; this is the offset to 1970.
const EPOCH: i64 = 946_684_800_000_000;
/// Version of the binary form of jsonb.
const JSONB: u8 = 1;
/// Size of a sent chunk, in bytes: large enough to make calls rare, small enough to keep both sides busy.
const CHUNK: usize = 128 << 10;

/// Encoded rows of one table.
pub(super) struct EncodedRows {
    bytes: Vec<u8>,
    columns: i16,
}

impl EncodedRows {
    /// EncodedRows with this many columns.
    pub(super) fn of(columns: i16) -> Self {
        Self { bytes: HEADER.to_vec(), columns }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.bytes.len() == HEADER.len()
    }

    /// Begins a row; its columns follow in their order.
    pub(super) fn row(&mut self) -> &mut Self {
        self.bytes.extend(self.columns.to_be_bytes());
        self
    }

    /// A column: its length, then its bytes.
    fn column(&mut self, write: impl FnOnce(&mut Vec<u8>)) -> &mut Self {
        let at = self.bytes.len();
        self.bytes.extend([0; 4]);
        write(&mut self.bytes);
        let length = i32::try_from(self.bytes.len() - at - 4)
            .expect("a column holds part of an object of the hub: some MiB at most");
        self.bytes[at..at + 4].copy_from_slice(&length.to_be_bytes());
        self
    }
}

impl ColumnWriter for &mut EncodedRows {
    fn text(self, text: &str) -> Self {
        self.bytes(text.as_bytes())
    }

    fn number(self, number: i64) -> Self {
        self.bytes(&number.to_be_bytes())
    }

    fn time(self, microseconds: i64) -> Self {
        self.number(microseconds.saturating_sub(EPOCH))
    }

    fn json(self, value: &impl Serialize) -> Self {
        self.column(|to| {
            to.push(JSONB);
            serde_json::to_writer(to, value)
                .expect("records are plain JSON, and writes to memory succeed");
        })
    }

    fn bytes(self, bytes: &[u8]) -> Self {
        self.column(|to| to.extend(bytes))
    }

    fn null(self) -> Self {
        self.bytes.extend((-1_i32).to_be_bytes());
        self
    }
}

/// A copy in progress. Aborting it leaves the connection unusable: its owner then closes it.
pub(super) struct Copying<'a> {
    copy: PgCopyIn<&'a mut PgConnection>,
    pub(super) rows: EncodedRows,
}

impl<'a> Copying<'a> {
    pub(super) async fn begin(
        connection: &'a mut PgConnection,
        statement: &'static str,
        rows: EncodedRows,
    ) -> Result<Self, sqlx::Error> {
        Ok(Self { copy: connection.copy_in_raw(statement).await?, rows })
    }

    /// Sends the buffered rows, if they fill a chunk.
    pub(super) async fn send(&mut self) -> Result<(), sqlx::Error> {
        if self.rows.bytes.len() >= CHUNK {
            self.copy.send(self.rows.bytes.as_slice()).await?;
            self.rows.bytes.clear();
        }
        Ok(())
    }

    /// Sends the rest, and waits until the server has accepted it.
    pub(super) async fn end(mut self) -> Result<(), sqlx::Error> {
        self.rows.bytes.extend(TRAILER);
        self.copy.send(self.rows.bytes.as_slice()).await?;
        self.copy.finish().await?;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_have_their_length_before_them() {
        let mut rows = EncodedRows::of(4);
        assert!(rows.is_empty());
        rows.row().text("é").optional(None, ColumnWriter::number).time(EPOCH + 1).json(&["a"]);
        let expected = [
            &[0, 4][..],
            &[0, 0, 0, 2, 0xc3, 0xa9],
            &[255; 4],
            &[0, 0, 0, 8, 0, 0, 0, 0, 0, 0, 0, 1],
            &[0, 0, 0, 6, 1, b'[', b'"', b'a', b'"', b']'],
        ];
        assert_eq!(rows.bytes[HEADER.len()..], expected.concat());
        assert_eq!(HEADER.len(), 19);
        assert!(!rows.is_empty());
    }
}
