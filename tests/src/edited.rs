//! A recording that is read, changed in one call, and written again.
//!
//! Not here: what a change is to show.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::path::Path;

use rankcheck_recording::layout::encode_header;
use rankcheck_recording::{
    Argument, CallEvent, EventWriter, ExtentStream, Field, Header, ProcessFile, ReadError, Shape, ShapeId,
    Signature,
};

/// What is done to a call.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Edit {
    /// It was not made.
    LeaveOut,
    /// It was made twice.
    Double,
    /// It and the next call of its thread that is not inside it were made in the other order.
    SwapWithNext,
    /// An argument was another one.
    Argument {
        /// The argument's name.
        key: &'static str,
        /// What it was instead.
        value: u64,
    },
}

/// One event, with its thread; a shape's number is that of [`EditableFile::shapes`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct ThreadEvent {
    time: u64,
    event: CallEvent,
}

/// The file of one process, in memory.
#[derive(Debug, Clone)]
pub struct EditableFile {
    header: Header,
    shapes: Vec<Shape>,
    events: Vec<ThreadEvent>,
    /// Where the calls are that returned before anything else of their thread: enter and return.
    calls: Vec<(usize, usize)>,
}

impl EditableFile {
    /// Reads the file at a path.
    ///
    /// # Errors
    /// If it is damaged.
    pub fn read(path: &Path) -> Result<Self, ReadError> {
        let mut process = ProcessFile::open(path)?;
        let mut events = Vec::new();
        let mut last = 0;
        while let Some(event) = process.next_event()? {
            let time = match event {
                CallEvent::Enter { time, .. } | CallEvent::Return { time, .. } => time,
                CallEvent::Lost { .. } => last,
            };
            last = time;
            events.push(ThreadEvent { time, event });
        }
        let (header, shapes) = process.into_parts();
        let mut file = Self { header, shapes, events, calls: Vec::new() };
        file.find_calls();
        Ok(file)
    }

    fn find_calls(&mut self) {
        let mut entered: BTreeMap<u32, usize> = BTreeMap::new();
        self.calls.clear();
        for (at, of) in self.events.iter().enumerate() {
            match of.event {
                CallEvent::Enter { thread, call, .. } if !self.shapes[call.0 as usize].instant => {
                    entered.insert(thread, at);
                }
                CallEvent::Return { thread, .. } => {
                    self.calls.extend(entered.remove(&thread).map(|enter| (enter, at)));
                }
                CallEvent::Enter { .. } | CallEvent::Lost { .. } => {}
            }
        }
        self.calls.sort_unstable();
    }

    fn shape_at(&self, enter: usize) -> ShapeId {
        match self.events[enter].event {
            CallEvent::Enter { call, .. } => call,
            CallEvent::Return { .. } | CallEvent::Lost { .. } => {
                unreachable!("it is where a call is entered")
            }
        }
    }

    /// The calls that can be changed: those without others inside.
    ///
    /// # Panics
    /// Never.
    pub fn calls(&self) -> impl Iterator<Item = &Shape> {
        self.calls.iter().map(|&(enter, _)| &self.shapes[self.shape_at(enter).0 as usize])
    }

    /// Changes the call of this index in [`EditableFile::calls`]. False if there is no such change.
    pub fn edit(&mut self, nth: usize, edit: &Edit) -> bool {
        let (enter, leave) = self.calls[nth];
        match *edit {
            Edit::LeaveOut => {
                self.events.remove(leave);
                self.events.remove(enter);
            }
            Edit::Double => {
                let (mut again, returns) = (self.events[enter], self.events[leave]);
                again.time = returns.time;
                self.events.insert(leave + 1, again);
                self.events.insert(leave + 2, returns);
            }
            Edit::SwapWithNext => {
                let thread = |at: usize| self.events[at].event.thread();
                let of = thread(enter);
                let next = self.calls[nth + 1..].iter().find(|(next, _)| thread(*next) == of);
                let Some(&(next_enter, next_leave)) = next.filter(|(next, _)| *next > leave) else {
                    return false;
                };
                if (leave + 1..next_enter).any(|between| {
                    thread(between) == of && !matches!(self.events[between].event, CallEvent::Lost { .. })
                }) {
                    return false;
                }
                for (one, other) in [(enter, next_enter), (leave, next_leave)] {
                    let (first, second) = (self.events[one].event, self.events[other].event);
                    self.events[one].event = second;
                    self.events[other].event = first;
                }
            }
            Edit::Argument { key, value } => {
                let mut shape = self.shapes[self.shape_at(enter).0 as usize].clone();
                let Some(at) = shape.keys.iter().position(|name| **name == *key) else { return false };
                if shape.values[at] == Argument::Address(value) {
                    return false;
                }
                shape.values[at] = Argument::Address(value);
                let known = self.shapes.iter().position(|other| *other == shape).unwrap_or(self.shapes.len());
                if known == self.shapes.len() {
                    self.shapes.push(shape);
                }
                let CallEvent::Enter { call, .. } = &mut self.events[enter].event else { return false };
                *call = ShapeId(u32::try_from(known).expect("few shapes"));
            }
        }
        self.find_calls();
        true
    }

    /// Rounds times down to multiples of `step` nanoseconds. Events of different threads stay in their order, for which one
    /// nanosecond passes. What was noted later than it happened is moved with what happened then.
    ///
    /// # Panics
    /// Never.
    pub fn round_times(&mut self, step: u64) {
        let mut before: Option<(u64, u32)> = None;
        let mut moved: Vec<(u64, u64)> = Vec::with_capacity(self.events.len());
        for ThreadEvent { time, event } in &mut self.events {
            let thread = event.thread();
            let rounded = *time / step * step;
            let now = match before {
                Some((before, of)) if rounded <= before => before + u64::from(of != thread),
                Some(_) | None => rounded,
            };
            before = Some((now, thread));
            moved.push((*time, now));
            *time = now;
        }
        for shape in &mut self.shapes {
            for (key, value) in shape.keys.iter().zip(&mut shape.values) {
                if &**key == "at"
                    && let Argument::Number(at) = value
                {
                    let after = moved.partition_point(|(time, _)| time <= at);
                    *at = after.checked_sub(1).map_or(0, |before| moved[before].1);
                }
            }
        }
    }

    /// Writes it to a path.
    ///
    /// # Panics
    /// If it cannot be written.
    pub fn write(&self, path: &Path) {
        let mut signatures: HashMap<(&str, &[Box<str>], bool), &'static Signature> = HashMap::new();
        let of_shape: Vec<(&'static Signature, Vec<Field<'_>>)> =
            self.shapes.iter().map(|shape| (signature(&mut signatures, shape), fields(shape))).collect();
        let returned = self.events.iter().filter_map(|event| match event.event {
            CallEvent::Return { values, .. } => values,
            CallEvent::Enter { .. } | CallEvent::Lost { .. } => None,
        });
        let returned = returned.map(|shape| std::ptr::from_ref(of_shape[shape.0 as usize].0)).collect();
        let of_shape = with_varying(of_shape, &returned);
        let mut threads: BTreeMap<u32, EventWriter<ExtentStream<Vec<u8>>>> = BTreeMap::new();
        for ThreadEvent { time, event } in &self.events {
            let thread = event.thread();
            let writer = threads
                .entry(thread)
                .or_insert_with(|| EventWriter::new(ExtentStream::new(Vec::new()), thread, 0));
            match *event {
                CallEvent::Enter { call, .. } => {
                    let (signature, fields) = &of_shape[call.0 as usize];
                    match signature.instant {
                        true => writer.enter(*time, signature, fields),
                        false => writer.call(*time, signature, fields),
                    }
                }
                CallEvent::Return { values: None, .. } => writer.leave(*time),
                CallEvent::Return { values: Some(values), .. } => {
                    let (signature, fields) = &of_shape[values.0 as usize];
                    writer.leave_with(*time, signature, fields);
                }
                CallEvent::Lost { events, .. } => writer.missed(*time, events),
            }
        }
        let header = Header { bytes: None, ..self.header.clone() };
        let mut bytes = encode_header(&header).expect("a short header");
        for mut thread in threads.into_values() {
            thread.finish();
            bytes.extend(thread.into_space().end().expect("memory takes everything"));
        }
        std::fs::write(path, bytes).expect("the directory was made");
    }
}

/// Signatures live as long as the program; a test makes few.
fn signature<'a>(
    known: &mut HashMap<(&'a str, &'a [Box<str>], bool), &'static Signature>,
    shape: &'a Shape,
) -> &'static Signature {
    known.entry((&shape.name, &shape.keys, shape.instant)).or_insert_with(|| {
        let text = |text: &str| -> &'static str { Box::leak(text.to_owned().into_boxed_str()) };
        let keys: Vec<&'static str> = shape.keys.iter().map(|key| text(key)).collect();
        Box::leak(Box::new(Signature { name: text(&shape.name), keys: keys.leak(), instant: shape.instant }))
    })
}

/// Calls of which one address is mostly another leave that open, as recorders do; what is returned does not.
fn with_varying<'a>(
    mut shapes: Vec<(&'static Signature, Vec<Field<'a>>)>,
    returned: &HashSet<*const Signature>,
) -> Vec<(&'static Signature, Vec<Field<'a>>)> {
    let mut addresses: HashMap<(*const Signature, usize), HashSet<u64>> = HashMap::new();
    for (signature, fields) in
        shapes.iter().filter(|(signature, _)| !returned.contains(&std::ptr::from_ref(*signature)))
    {
        for (at, field) in fields.iter().enumerate() {
            if let Field::Address(address) = field {
                addresses.entry((std::ptr::from_ref(*signature), at)).or_default().insert(*address);
            }
        }
    }
    let mut varying: HashMap<*const Signature, (usize, usize)> = HashMap::new();
    for ((signature, at), values) in addresses.iter().filter(|(_, values)| values.len() > 64) {
        let most = varying.entry(*signature).or_default();
        *most = (*most).max((values.len(), *at));
    }
    for (signature, fields) in &mut shapes {
        let Some((_, at)) = varying.get(&std::ptr::from_ref(*signature)) else { continue };
        if let Field::Address(address) = fields[*at] {
            fields[*at] = Field::Varying(address);
        }
    }
    shapes
}

fn fields(shape: &Shape) -> Vec<Field<'_>> {
    let field = |argument| match argument {
        &Argument::None => Field::None,
        &Argument::Number(number) => Field::Number(number),
        &Argument::Signed(number) => Field::Signed(number),
        &Argument::Address(address) => Field::Address(address),
        Argument::Text(text) => Field::Text(text),
        Argument::Bytes(bytes) => Field::Bytes(bytes),
    };
    shape.values.iter().map(field).collect()
}
