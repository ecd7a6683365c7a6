//! What devices did, against the model as it is now. Needs no GPU.
//!
//! Not here: the comparison itself (`conform.rs`).

use std::collections::BTreeSet;
use std::path::Path;
use std::sync::OnceLock;

use rankcheck::device::observation::{self, KeptObservation, Validity};
use rankcheck_tests::repository::enter;

/// Every committed observation, compared once for all tests of this binary.
pub(crate) fn kept() -> &'static [KeptObservation] {
    static KEPT: OnceLock<Vec<KeptObservation>> = OnceLock::new();
    KEPT.get_or_init(|| {
        let root = enter().join(observation::FOLDER);
        observation::kept(&root).unwrap_or_else(|error| panic!("observations cannot be compared: {error}"))
    })
}

#[test]
fn devices_do_what_the_model_predicts() {
    let stale = kept().iter().filter(|kept| matches!(kept.validity, Validity::Stale)).count();
    let counted = kept().len() - stale;
    let single = kept().iter().filter(|kept| kept.validity.single()).count();
    let disagree = kept().iter().filter(|kept| kept.validity.difference().is_some()).count();
    println!(
        "{counted} observations, {} agree, {single} with a single predicted outcome, {stale} stale",
        counted - disagree
    );
    let document = std::fs::read_to_string(enter().join(observation::DISAGREEMENTS)).unwrap_or_default();
    let wrong = observation::unexplained(kept(), &document);
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn stale_observations_are_listed() {
    let path = Path::new(observation::FOLDER).join(observation::STALE);
    let listed = std::fs::read_to_string(enter().join(&path)).unwrap_or_default();
    assert_eq!(
        listed,
        observation::stale_list(kept()),
        "`rankcheck observe stale --write` writes {}",
        path.display()
    );
}

#[test]
fn each_observation_stands_in_its_file_and_once() {
    let mut titles = BTreeSet::new();
    for kept in kept() {
        let file = enter().join(observation::FOLDER).join(kept.observation.file());
        assert_eq!(kept.path, file, "{}", kept.title());
        assert!(titles.insert(kept.title()), "{} stands twice", kept.title());
        assert!(kept.observation.seen.iter().all(|seen| seen.count > 0), "{}", kept.title());
    }
}
