//! Every failing check of the specs is explained by two operations that matter, in words that name them.
//!
//! Not here: the layout of reports, which the goldens pin (`specs.rs`).

use std::path::PathBuf;
use std::sync::Arc;

use rankcheck::report;
use rankcheck::search::explain::Baseline;
use rankcheck::search::verdict::{Explorer, config};
use rankcheck::search::{Counterexample, Explained, Options, Verdict};
use rankcheck::spec::Check;
use rankcheck_model::Source;
use rankcheck_tests::repository::{enter, files_under};

use crate::deadlocks::ranks_said;
use crate::specs::verified;

/// What the sentence of the report fails to say.
fn unsaid(explained: &Explained, shown: &Counterexample) -> Vec<String> {
    let text = report::text(explained);
    // The headline comes first, then the sentence.
    let sentence = text.lines().nth(1).unwrap_or_default();
    // `r0.symm.S1` is said as "rank 0" and "symm.S1", `tp #2` in two words, and the hosts are in a host barrier.
    let about = &shown.broken.about;
    let of_rank = |(rank, name): (&str, &str)| {
        let number = rank.strip_prefix('r')?.parse::<u32>().ok()?;
        Some(vec![format!("rank {number}"), name.to_owned()])
    };
    let mut wanted = about
        .split_once('.')
        .and_then(of_rank)
        .unwrap_or_else(|| about.trim_end_matches('s').split(' ').map(str::to_owned).collect());
    for essential in &shown.essential {
        let name = essential.loc.file.rsplit('/').next().unwrap_or_default();
        if !ranks_said(sentence).contains(&essential.op.rank.0) {
            wanted.push(format!("rank {}", essential.op.rank.0));
        }
        wanted.push(format!("{name}:{}", essential.loc.line));
    }
    let missing = wanted.into_iter().filter(|words| !sentence.contains(words.as_str()));
    missing.map(|words| format!("the sentence lacks {words:?}: {sentence}")).collect()
}

fn violations(check: &Check, explained: &Explained) -> Vec<String> {
    let run = explained.run();
    let Verdict::Fails { primary, .. } = run.verdict else { return Vec::new() };
    let Some(shown) = &explained.counterexample else {
        return vec![format!("the witness of {primary} does not break it again")];
    };
    let mut wrong = Vec::new();
    if shown.essential.len() != 2 {
        wrong.push(format!("{primary} names {} operations", shown.essential.len()));
    }
    let options = Options::default();
    let mut explorer = Explorer::new(&options);
    let source = check.source(run.ranks, &run.params, &check.assume).expect("the check was searched");
    let source: Arc<dyn Source> = Arc::new(source);
    let config = config(check, run.ranks, run.platform, &check.assume);
    let config = explorer.explore(&source, config).expect("it was explored before").config;
    let baseline = match Baseline::of(&source, &config, primary, &mut explorer) {
        Ok(baseline) => baseline,
        Err(error) => return vec![error.to_string()],
    };
    for essential in &shown.essential {
        let operation = shown.run.operation(essential).expect("it is one of the run");
        match baseline.needs(&essential.op, operation.kind, &mut explorer) {
            Ok(true) => {}
            Ok(false) => wrong.push(format!("leaving out {:?} changes nothing", essential.op)),
            Err(error) => wrong.push(error.to_string()),
        }
    }
    wrong.extend(unsaid(explained, shown));
    wrong
}

#[test]
fn every_failing_check_names_two_operations_that_matter() {
    let (mut wrong, mut failing) = (Vec::new(), 0);
    for file in verified() {
        for (check, explained) in file.spec.checks.iter().zip(&file.explained) {
            failing += usize::from(matches!(explained.run().verdict, Verdict::Fails { .. }));
            for violation in violations(check, explained) {
                wrong.push(format!("{} \"{}\": {violation}", file.path.display(), check.name));
            }
        }
    }
    println!("{failing} failing checks");
    assert!(failing > 0, "some check fails");
    assert!(wrong.is_empty(), "{} violations:\n{}", wrong.len(), wrong.join("\n"));
}

/// The second line of each failing report of the systems: who, and where the two operations are.
#[test]
fn every_failing_report_of_the_systems_says_who_and_where() {
    let is_report = |path: &PathBuf| path.extension().is_some_and(|extension| extension == "report");
    let (mut wrong, mut sentences) = (Vec::new(), 0);
    for path in files_under("specs/systems").into_iter().filter(is_report) {
        let report = std::fs::read_to_string(enter().join(&path)).expect("it was just listed");
        let lines: Vec<&str> = report.lines().collect();
        for pair in lines.windows(2).filter(|pair| pair[0].starts_with("FAILS")) {
            sentences += 1;
            let numbered = |(at, word): &(usize, &str)| {
                pair[1][at + word.len()..].starts_with(|c: char| c.is_ascii_digit())
            };
            let counted = |word: &str| pair[1].match_indices(word).filter(numbered).count();
            let (ranks, locs) = (ranks_said(pair[1]).len(), counted(".star:"));
            // What several ranks do alike is said once.
            if ranks == 0 || locs == 0 || ranks + locs < 3 || !pair[1].ends_with('.') {
                wrong.push(format!("{}: {ranks} ranks, {locs} places: {}", path.display(), pair[1]));
            }
        }
    }
    println!("{sentences} sentences");
    assert!(sentences >= 60, "{sentences} failing reports");
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}
