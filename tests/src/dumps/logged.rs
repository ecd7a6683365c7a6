//! The logs that NCCL would have written of the same jobs, in the form of several versions.
//!
//! Not here: what is found in them.

use std::fmt::Write as _;

use super::{DumpedCall, DumpedRun, RunGroup, RunGroupAt};
use crate::damage::Random;

/// A version of the library, by the lines that it writes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LogForm {
    /// A communicator has no name that its members share.
    Nccl2_4,
    /// It has one, where it is made.
    Nccl2_16,
    /// And where it begins to be.
    Nccl2_18,
    /// Splits say what they are of, and have a name too.
    Nccl2_21,
    /// Splits say what they are of, and have no name.
    Nccl2_23,
    /// Splits say how many there were before.
    Nccl2_28,
    /// The line begins with the rank.
    Nccl2_29,
    /// AMD's.
    Rccl,
}

/// All of them.
pub const LOG_FORMS: [LogForm; 8] = [
    LogForm::Nccl2_4,
    LogForm::Nccl2_16,
    LogForm::Nccl2_18,
    LogForm::Nccl2_21,
    LogForm::Nccl2_23,
    LogForm::Nccl2_28,
    LogForm::Nccl2_29,
    LogForm::Rccl,
];

impl LogForm {
    /// Whether communicators that were split from the first are found in the logs of others.
    #[must_use]
    pub const fn names_splits(self) -> bool {
        !matches!(self, Self::Nccl2_4)
    }

    const fn version(self) -> &'static str {
        match self {
            Self::Nccl2_4 => "NCCL version 2.4.8+cuda10.1",
            Self::Nccl2_16 => "NCCL version 2.16.5+cuda11.8",
            Self::Nccl2_18 => "NCCL version 2.18.6+cuda12.1",
            Self::Nccl2_21 => "NCCL version 2.21.5+cuda12.4",
            Self::Nccl2_23 => "NCCL version 2.23.4+cuda12.6",
            Self::Nccl2_28 => "NCCL version 2.28.9+cuda13.0",
            Self::Nccl2_29 => "NCCL version 2.29.7+cuda13.0",
            Self::Rccl => "RCCL version 2.22.3+hip6.4 HEAD:1234567",
        }
    }

    /// The lines of a process that makes a communicator.
    fn init(self, comm: &str, group: usize, of: (usize, usize), device: usize) -> Vec<String> {
        let (rank, nranks) = of;
        let id = format!("0x{:x}", 0xf67d_716f_4a56_0000_u64 + group as u64);
        let base = format!("comm {comm} rank {rank} nranks {nranks} cudaDev {device}");
        let more = format!("{base} nvmlDev {device} busId {}", 60 + device);
        let parent = comm.replace(&format!("{group:03x}0"), "0000");
        let (color, key) = (group + 5, rank);
        let made = match (self, group) {
            (Self::Nccl2_4, _) => return vec![format!("{base} nvmlDev {device} - Init COMPLETE")],
            (Self::Nccl2_16, _) => return vec![format!("{base} busId 60 commId {id} - Init COMPLETE")],
            (Self::Nccl2_18, _) => format!("{more} commId {id}"),
            (Self::Nccl2_21 | Self::Rccl, 1..) => {
                format!("ncclCommSplit {more} parent {parent} color {color} key {key} commId {id}")
            }
            (Self::Nccl2_23, 1..) => {
                format!("ncclCommSplit {more} parent {parent} color {color} key {key}")
            }
            (Self::Nccl2_28, 1..) => {
                format!("ncclCommSplit {more} parent {parent} splitCount {group} color {color} key {key}")
            }
            (Self::Nccl2_29, 1..) => {
                format!("ncclCommSplit {more} parent {parent} childCount {group} color {color} key {key}")
            }
            (_, _) => format!("ncclCommInitRankConfig {more} commId {id}"),
        };
        let glued = if made.contains("commId") { " " } else { "" };
        let begins = if self == Self::Nccl2_29 { format!("[Rank {rank}] ") } else { String::new() };
        vec![format!("{begins}{made}{glued}- Init START"), format!("{made} - Init COMPLETE")]
    }
}

impl DumpedRun {
    /// What one rank printed: all that it called, and that it is done with its communicators if it is.
    ///
    /// # Panics
    ///
    /// If a call is of a kind that NCCL has no function for.
    #[must_use]
    pub fn log(&self, rank: u32, form: LogForm, done: bool) -> String {
        let device = rank as usize % 4;
        let begins = format!("node{}:{}:{} [{device}] NCCL INFO", rank / 4, 1000 + rank, 2000 + rank);
        let comm = |group: usize| format!("0x56{rank:02x}ab{group:03x}0");
        let place = |group: RunGroupAt, rank: u32| self.rank_in(group, rank);
        let mut log = format!("{begins} cudaDriverVersion 13000\n{begins} {}\n", form.version());
        let of_rank = |(_, group): &(usize, &RunGroup)| group.ranks.contains(&rank);
        let groups: Vec<(usize, &RunGroup)> = self.groups.iter().enumerate().filter(of_rank).collect();
        for (at, group) in &groups {
            let place = (place(RunGroupAt(*at), rank), group.ranks.len());
            for line in form.init(&comm(*at), *at, place, device) {
                let _ = writeln!(log, "{begins} {line}");
                let _ = writeln!(log, "{begins} Channel 00/24 : 0 1");
            }
        }
        for call in &self.ranks[rank as usize].calls {
            for (function, count, root) in self.functions(rank, call) {
                let (comm, nranks) = (comm(call.group.0), self.groups[call.group.0].ranks.len());
                let send = if function == "Send" { "(nil)" } else { "0x7f81c2c00200" };
                let dtype = if call.call.dtype == "Float" { 7 } else { 9 };
                let acc = if form == LogForm::Rccl { " acc (nil)" } else { "" };
                let task =
                    if form == LogForm::Rccl { format!(" task 0 globalrank {rank}") } else { String::new() };
                let _ = writeln!(
                    log,
                    "{begins} {function}: opCount 1f sendbuff {send} recvbuff 0x7f81c2c00200{acc} count {count} \
                     datatype {dtype} op 0 root {root} comm {comm} [nranks={nranks}] stream 0x70{:02x}{task}",
                    call.group.0
                );
            }
        }
        if done {
            for (at, group) in &groups {
                let (place, nranks) = (place(RunGroupAt(*at), rank), group.ranks.len());
                let of = format!("rank {place} nranks {nranks} cudaDev {device} busId {}", 60 + device);
                let _ = writeln!(log, "{begins} comm {} {of} - Destroy COMPLETE", comm(*at));
            }
        }
        log
    }

    /// What torch calls of NCCL: function, count, and root or other rank.
    fn functions(&self, rank: u32, call: &DumpedCall) -> Vec<(&'static str, i64, usize)> {
        let elements = |tensors: &[Vec<i64>]| tensors.iter().flatten().product::<i64>();
        let (input, output) = (elements(&call.call.inputs), elements(&call.call.outputs));
        let members = self.groups[call.group.0].ranks.len();
        match call.call.word.as_str() {
            "coalesced" => Vec::new(),
            "all_reduce" => vec![("AllReduce", input, 0)],
            "barrier" => vec![("AllReduce", 1, 0)],
            "broadcast" => vec![("Broadcast", input, 0)],
            "_all_gather_base" => vec![("AllGather", input, 0)],
            "_reduce_scatter_base" => vec![("ReduceScatter", output, 0)],
            "all_to_all" => (0..members).flat_map(|peer| [("Send", 8, peer), ("Recv", 8, peer)]).collect(),
            "" => {
                let (_, peers) = call.name.split_once(' ').expect("a transfer names its ends");
                let (here, there) = peers.split_once(['-', '<']).expect("there is an arrow");
                let peer = there.trim_start_matches(['-', '>']).parse().expect("a rank of the group");
                debug_assert_eq!(here.parse(), Ok(self.rank_in(call.group, rank)));
                let function = if call.name.contains("send") { "Send" } else { "Recv" };
                vec![(function, input.max(output), peer)]
            }
            word => panic!("NCCL has no {word}"),
        }
    }

    /// What all ranks printed into one file, with what launchers and programs put between.
    ///
    /// # Panics
    ///
    /// As [`DumpedRun::log`] does.
    #[must_use]
    pub fn mixed_log(&self, form: LogForm, done: bool, random: &mut Random) -> String {
        let logs: Vec<String> = (0..).zip(&self.ranks).map(|(rank, _)| self.log(rank, form, done)).collect();
        let mut lines: Vec<_> = logs.iter().map(|log| log.lines().peekable()).collect();
        let style = random.below(5);
        let mut mixed = String::from("W1123 run.py:792] Setting OMP_NUM_THREADS\n\n");
        while lines.iter_mut().any(|lines| lines.peek().is_some()) {
            let rank = random.below(lines.len());
            let Some(line) = lines[rank].next() else { continue };
            if random.below(8) == 0 {
                let _ = writeln!(mixed, "step {} loss 0.{} it/s", random.below(100), random.below(1000));
            }
            let _ = match style {
                0 => writeln!(mixed, "{line}"),
                1 => writeln!(mixed, "[rank{rank}]: {line}"),
                2 => writeln!(mixed, "{rank:>3}: {line}\r"),
                3 => writeln!(mixed, "[1,{rank}]<stdout>:{line}"),
                _ => writeln!(mixed, "\u{1b}[36m[2026-11-23 01:28:{:02}] \u{1b}[0m{line}", random.below(60)),
            };
        }
        mixed
    }
}
