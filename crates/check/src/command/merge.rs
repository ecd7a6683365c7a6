//! `rankcheck merge`: prints what the shards of a check found, as one machine would have printed it.
//!
//! A shard that is missing or cut off is told, and its cases count as unknown: the merged report is never a pass then. Files of
//! which two are the same shard, or that are not of one list of cases, are not merged at all, because nobody could say which
//! of them counts.
//! Not here: what is printed (`results`), and the files (`shard_file`).

use std::collections::BTreeMap;
use std::path::PathBuf;

use super::output;
use super::results::{CaseResults, Format, Printing, ReportExtent};
use super::shard_file::ReadShard;
use crate::report::MissingShard;
use crate::shard::Shard;

#[derive(Debug, clap::Args)]
#[command(
    after_help = "Exit codes: those of check on one machine · 2 also if files are of different checks, revisions or \
                         options, or two are of the same shard · 3 also if a shard is missing or its file is truncated"
)]
pub(super) struct MergeArguments {
    /// The files that `rankcheck check --shard K/N --shard-out FILE` wrote, in any order.
    #[arg(required = true)]
    files: Vec<PathBuf>,
    /// The format of the report.
    #[arg(long, value_enum, default_value = "text")]
    format: Format,
}

impl MergeArguments {
    pub(super) fn run(&self) -> u8 {
        let mut shards = Vec::new();
        for path in &self.files {
            match ReadShard::read(path) {
                Ok(shard) => shards.push(shard),
                Err(error) => return output::usage(error),
            }
        }
        let by_number = match of_one_whole(shards) {
            Ok(by_number) => by_number,
            Err(error) => return output::usage(error),
        };
        let Some(first) = by_number.values().next() else { return output::BAD };
        let header = first.header.clone();
        let Some(selection) = header.options.selection() else {
            return output::usage(format_args!("{} names a rule that there is not", first.path.display()));
        };
        let missing = missing(&by_number, first.shard.of(), header.cases);
        let mut results: BTreeMap<usize, CaseResults<'static>> = BTreeMap::new();
        for shard in by_number.into_values() {
            results.extend(shard.results.into_iter().flatten());
        }
        let results: Vec<CaseResults<'_>> = results.into_values().collect();
        Printing {
            format: self.format,
            quiet: header.options.quiet,
            verbose: header.options.verbose,
            selection: &selection,
            by_folder: false,
            // Lines were looked for where the shards were checked.
            repo: ".".as_ref(),
            extent: if missing.is_empty() { ReportExtent::Whole } else { ReportExtent::Missing(missing) },
            interrupted: None,
            lost: 0,
        }
        .print(&results)
    }
}

/// Returns the shards by their numbers.
///
/// # Errors
/// If two are the same one, or not of one whole, in words.
fn of_one_whole(shards: Vec<ReadShard>) -> Result<BTreeMap<u32, ReadShard>, String> {
    let mut by_number: BTreeMap<u32, ReadShard> = BTreeMap::new();
    for shard in shards {
        if let Some((_, first)) = by_number.first_key_value()
            && let Some(difference) = shard.differs(first)
        {
            let (path, other) = (shard.path.display(), first.path.display());
            return Err(format!(
                "{path} and {other} are not of one whole: the first is {difference}; check all shards with the same arguments, on \
                 the same revision, and give the files of those alone"
            ));
        }
        if let Some(twin) = by_number.get(&shard.shard.number()) {
            let (path, other, shard) = (shard.path.display(), twin.path.display(), shard.shard);
            return Err(format!("shard {shard} is given twice, as {other} and {path}; give one of them"));
        }
        by_number.insert(shard.shard.number(), shard);
    }
    Ok(by_number)
}

/// Returns the shards of which there are cases and no file, or one that is cut off, and says so of each.
fn missing(by_number: &BTreeMap<u32, ReadShard>, of: u32, cases: usize) -> Vec<MissingShard> {
    let mut missing = Vec::new();
    let all = (1..=of).filter_map(|number| Shard::new(number, of));
    // A shard without cases has nothing to say.
    for shard in all.take(cases) {
        let why = match by_number.get(&shard.number()) {
            Some(ReadShard { results: Some(_), .. }) => continue,
            Some(cut) => format!("{} is not complete: its end is missing", cut.path.display()),
            None => format!("no file of shard {shard} is given"),
        };
        output::advice(format_args!(
            "error: {why}, so nothing is known of its cases; check them again with --shard {shard}, and merge all files"
        ));
        missing.push(MissingShard { number: shard.number(), of, cases: shard.len_of(cases) });
    }
    missing
}
