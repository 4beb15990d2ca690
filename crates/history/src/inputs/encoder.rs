//! Makes frames, in the order in which rows are written.

use super::{CHECK, Deflate, Frame, ID, Inputs, MAX_STATE, State, diff, id_bytes};
use crate::weeks::week;

/// Frames after which another whole one is due: so many rows are read to make one decision again.
const LEAST_FRAMES: usize = 256;
/// Frames after which it is made in any case. In between, it waits until the differences take as much room as it.
const MOST_FRAMES: usize = 2_048;

/// The inputs of the last decision, as frames hold them.
#[derive(Debug, Default)]
pub(crate) struct Encoder {
    last: Option<Last>,
    deflate: Deflate,
}

#[derive(Debug)]
struct Last {
    inputs: Box<dyn Inputs>,
    state: State,
    decision: [u8; ID],
    week: i64,
    frames: usize,
    /// Bytes of the whole frame, and of all frames since.
    whole: usize,
    since: usize,
}

impl Encoder {
    /// The frame of a decision, made at a time in seconds. `None` if its inputs are too large or it has no proper id.
    pub(crate) fn encode(
        &mut self,
        decision: &str,
        seconds: i64,
        inputs: Box<dyn Inputs>,
    ) -> Option<Frame> {
        let decision = id_bytes(decision)?;
        let week = week(seconds);
        let last = self.last.take().filter(|last| {
            let long = last.frames >= LEAST_FRAMES && last.since >= last.whole;
            last.week == week && !long && last.frames < MOST_FRAMES
        });
        let differences = inputs.differences(last.as_ref().map(|last| &*last.inputs));
        let base = last.as_ref().map(|last| (last.decision, last.state.check));
        let (mut state, frames, whole, since) = match last {
            Some(last) => (last.state, last.frames + 1, last.whole, last.since),
            None => (State::default(), 0, 0, 0),
        };
        let mut content = Vec::new();
        for (name, new) in differences {
            state.put(name, new, &mut content);
        }
        if state.bytes > MAX_STATE {
            return None;
        }
        let (frame, check): (Frame, [u8; CHECK]) = Frame::pack(base, &content, &mut self.deflate);
        state.check = check;
        let size = frame.as_bytes().len();
        let (whole, since) = if base.is_none() { (size, 0) } else { (whole, since + size) };
        self.last = Some(Last { inputs, state, decision, week, frames, whole, since });
        Some(frame)
    }

    /// The next frame is whole: the database may lack the last one.
    pub(crate) fn reset(&mut self) {
        self.last = None;
    }
}

impl State {
    /// Changes an object, and writes how.
    fn put(&mut self, name: String, new: Option<Vec<u8>>, to: &mut Vec<u8>) {
        let old = self.objects.get(&name);
        if old.map(|(_, old)| old) == new.as_ref() {
            return;
        }
        let number = old.map(|(number, _)| *number);
        // Names of objects that are gone are few, so they are found by reading.
        let number = number.or_else(|| self.names.iter().rposition(|known| *known == name));
        let tag = |number: usize| (number << 1 | usize::from(new.is_none())) as u64;
        let number = match number {
            Some(number) => {
                diff::write_number(to, tag(number));
                number
            }
            None => {
                let number = self.names.len();
                diff::write_number(to, tag(number));
                diff::write_number(to, name.len() as u64);
                to.extend(name.as_bytes());
                self.names.push(name.clone());
                number
            }
        };
        let old = self.objects.remove(&name).map(|(_, old)| old).unwrap_or_default();
        self.bytes -= old.len();
        if let Some(new) = new {
            diff::write(&old, &new, to);
            self.bytes += new.len();
            self.objects.insert(name, (number, new));
        }
    }
}
