//! Reads the protobuf wire format.

/// The content of one field.
pub(super) enum Wire<'a> {
    Varint(u64),
    Fixed64(u64),
    Fixed32,
    Bytes(&'a [u8]),
}

impl<'a> Wire<'a> {
    pub(super) fn bytes(&self) -> Result<&'a [u8], String> {
        match self {
            Wire::Bytes(bytes) => Ok(bytes),
            _ => Err("a field has another wire type than its own".to_owned()),
        }
    }

    pub(super) fn varint(&self) -> Result<u64, String> {
        match self {
            Wire::Varint(value) => Ok(*value),
            _ => Err("a field has another wire type than its own".to_owned()),
        }
    }

    pub(super) fn double(&self) -> Result<f64, String> {
        match self {
            Wire::Fixed64(bits) => Ok(f64::from_bits(*bits)),
            _ => Err("a field has another wire type than its own".to_owned()),
        }
    }
}

/// Reads the fields of one message.
pub(super) struct Reader<'a> {
    rest: &'a [u8],
}

const TRUNCATED: &str = "the message ends in the middle of a field";

impl<'a> Reader<'a> {
    pub(super) fn new(bytes: &'a [u8]) -> Self {
        Reader { rest: bytes }
    }

    fn varint(&mut self) -> Result<u64, String> {
        let mut value = 0_u64;
        for shift in (0..64).step_by(7) {
            let (byte, rest) = self.rest.split_first().ok_or(TRUNCATED)?;
            self.rest = rest;
            value |= u64::from(byte & 0x7f) << shift;
            if byte & 0x80 == 0 {
                return Ok(value);
            }
        }
        Err("a number has more than 64 bits".to_owned())
    }

    fn take(&mut self, count: u64) -> Result<&'a [u8], String> {
        let count = usize::try_from(count).map_err(|_| TRUNCATED)?;
        let (taken, rest) = self.rest.split_at_checked(count).ok_or(TRUNCATED)?;
        self.rest = rest;
        Ok(taken)
    }

    /// The next field's number and content.
    pub(super) fn next(&mut self) -> Result<Option<(u32, Wire<'a>)>, String> {
        if self.rest.is_empty() {
            return Ok(None);
        }
        let tag = self.varint()?;
        let number = u32::try_from(tag >> 3).map_err(|_| "a field number is too large")?;
        let wire = match tag & 7 {
            0 => Wire::Varint(self.varint()?),
            1 => {
                let bytes = self.take(8)?;
                Wire::Fixed64(u64::from_le_bytes(bytes.try_into().map_err(|_| TRUNCATED)?))
            }
            2 => {
                let length = self.varint()?;
                Wire::Bytes(self.take(length)?)
            }
            5 => {
                self.take(4)?;
                Wire::Fixed32
            }
            other => return Err(format!("wire type {other} is not supported")),
        };
        Ok(Some((number, wire)))
    }
}
