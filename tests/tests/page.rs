//! Pages: what a diagram holds, that names do no harm in a file, how large it gets, and what a folder of pages is.
//!
//! Not here: what a browser makes of a page (`ci/pages`).

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use rankcheck::dumps::judge_dumps;
use rankcheck::logs::judge_logs;
use rankcheck::page::diagram::{Diagram, LineSign, Mark, PathSign, Stated};
use rankcheck::page::html::{Among, page};
use rankcheck::page::{explained, launched, recorded, sources};
use rankcheck::runs::judge::{judge, read};
use rankcheck::search::{Detail, Explained, KeptOfRun, Options, search};
use rankcheck::spec::load;
use rankcheck_tests::repository::{differs_from_golden, enter};
use serde_json::Value;

use crate::built::folder;
use crate::recordings::folders;
use crate::specs::verified;

fn watched(detail: Detail) -> Options {
    Options { kept: KeptOfRun::Memory, ..Options::telling(detail) }
}

/// The checks of a spec, with what memory held.
fn searched(path: &Path, detail: Detail) -> Vec<Explained> {
    let spec = load(path).unwrap_or_else(|error| panic!("{error}"));
    let each = spec.checks.iter().map(|check| search(&spec, check, &watched(detail)));
    each.collect::<Result<_, _>>().unwrap_or_else(|error| panic!("{error}"))
}

/// The only check of a spec that is written down here.
fn of_text(name: &str, text: &str, detail: Detail) -> Explained {
    let path = folder(name).join("a.star");
    fs::write(&path, text).expect("a spec can be written");
    searched(&path, detail).remove(0)
}

/// What is wrong with the positions that a diagram is made of.
fn loose_ends(diagram: &Diagram) -> Vec<String> {
    let mut wrong = Vec::new();
    let mut all = |of: &str, right: bool| {
        if !right {
            wrong.push(format!("{}: {of}", diagram.about.title));
        }
    };
    let Diagram {
        texts, places, lanes, folds, steps, meetings, order, blocked, cycle, memory, lines, ..
    } = diagram;
    all("a marked line", lines.iter().all(|line| line.place < places.len() && !line.words.is_empty()));
    let known = |at: &Option<usize>, table: usize| at.is_none_or(|at| at < table);
    all(
        "a step",
        steps.iter().all(|step| {
            step.lane < lanes.len()
                && step.text < texts.len()
                && known(&step.place, places.len())
                && known(&step.note, texts.len())
        }),
    );
    all("a meeting", meetings.iter().all(|met| met.len() > 1 && met.iter().all(|step| *step < steps.len())));
    all("an order", order.iter().all(|(a, b)| a != b && *a < steps.len() && *b < steps.len()));
    all(
        "a wait",
        blocked.iter().all(|of| {
            of.lane < lanes.len()
                && of.text < texts.len()
                && known(&of.step, steps.len())
                && of.waits_for.iter().all(|other| *other < blocked.len())
        }),
    );
    let next = |nth: usize| cycle[(nth + 1) % cycle.len()];
    all("a circle", (0..cycle.len()).all(|nth| blocked[cycle[nth]].waits_for.contains(&next(nth))));
    all(
        "memory",
        memory.changes.iter().all(|(after, _, view)| *after <= steps.len() && *view < memory.views.len())
            && memory.views.iter().flat_map(|view| &view.pieces).all(|piece| *piece < memory.pieces.len())
            && memory
                .pieces
                .iter()
                .flat_map(|piece| &piece.contents)
                .all(|(_, _, at)| *at < memory.contents.len())
            && memory.pieces.iter().all(|piece| {
                let known = |(nth, meant): &(usize, usize)| {
                    *nth < piece.contents.len() && *meant < memory.contents.len()
                };
                piece.wrong.iter().all(known)
            }),
    );
    let folded: Vec<u32> = folds.iter().flat_map(|fold| fold.ranks.clone()).collect();
    let ranks: BTreeSet<u32> = lanes.iter().map(|lane| lane.rank).collect();
    all("who is shown", folds.iter().all(|fold| fold.ranks.contains(&fold.shown)));
    all("a fold", folded.len() == ranks.len() && folded.into_iter().collect::<BTreeSet<_>>() == ranks);
    wrong
}

/// The steps of a lane stand below one another, and so does what is ordered.
fn upside_down(diagram: &Diagram) -> Vec<String> {
    let mut last = vec![None; diagram.lanes.len()];
    let mut wrong = Vec::new();
    for step in &diagram.steps {
        if last[step.lane].is_some_and(|row| row >= step.row) {
            wrong.push(format!("{}: lane {} in row {}", diagram.about.title, step.lane, step.row));
        }
        last[step.lane] = Some(step.row);
    }
    wrong
}

fn shows_the_fault(diagram: &Diagram) -> bool {
    diagram.steps.iter().any(|step| step.mark == Some(Mark::Finding))
        || diagram.blocked.iter().any(|blocked| blocked.finding)
}

/// The data in a page.
fn data(page: &str) -> Value {
    let (_, data) = page.split_once("id=\"data\">").expect("a page has data");
    let (data, _) = data.split_once("</script>").expect("data end");
    serde_json::from_str(data).expect("data are JSON")
}

#[test]
fn the_diagram_of_a_small_spec_is_its_golden() {
    enter();
    let found = searched(Path::new("tests/pages/grows.star"), Detail::Reason);
    let mut diagram = explained::diagram(&found[0]);
    // What devices did is counted in it.
    diagram.about.rule.as_mut().expect("it fails").text.clear();
    let text = serde_json::to_string_pretty(&diagram).expect("a diagram is strings and numbers") + "\n";
    let wrong = differs_from_golden(Path::new("tests/pages/grows.json"), &text);
    assert_eq!(wrong, None);
}

#[test]
fn every_failing_check_has_a_page() {
    let (mut wrong, mut pages) = (Vec::new(), 0);
    for of in verified().iter().flat_map(|file| &file.explained).filter(|of| of.counterexample.is_some()) {
        let diagram = explained::diagram(of);
        wrong.extend(loose_ends(&diagram));
        wrong.extend(upside_down(&diagram));
        if !shows_the_fault(&diagram) {
            wrong.push(format!("{}: nothing is marked as the fault", of.name));
        }
        let headline = &diagram.about.headline;
        let named = diagram.about.rule.as_ref().is_some_and(|rule| headline.contains(rule.id));
        if named || !headline.ends_with('.') || !headline.starts_with(char::is_uppercase) {
            wrong.push(format!("{}: {headline:?} is no headline", of.name));
        }
        if !page(&diagram, Among::Several)
            .contains(&format!("FAILS {}", diagram.about.rule.expect("it fails").id))
        {
            wrong.push(format!("{}: no verdict", of.name));
        }
        pages += 1;
    }
    println!("{pages} pages");
    assert!(pages > 200, "only {pages} checks fail");
    assert_eq!(wrong, [""; 0]);
}

#[test]
fn memory_is_told_step_by_step() {
    enter();
    let mut known = 0;
    for of in searched(Path::new("specs/systems/sglang-20153-shared-pool/option_a.star"), Detail::Reason) {
        let diagram = explained::diagram(&of);
        assert_eq!(loose_ends(&diagram), [""; 0]);
        if of.counterexample.is_none() {
            continue;
        }
        assert!(diagram.memory.changes.is_sorted_by_key(|(after, ..)| *after), "{}", of.name);
        let contents = &diagram.memory.contents;
        // Stripes that ranks reduced with different memory differ.
        known += usize::from(contents.iter().any(|stripes| stripes.len() == 2 && stripes[0] != stripes[1]));
        let sources: Vec<&str> = diagram.sources.iter().map(|source| source.file.as_str()).collect();
        assert!(sources.iter().any(|file| file.ends_with("option_a.star")), "{sources:?}");
    }
    assert!(known > 0, "no buffer holds stripes that differ");
}

/// Where nobody specifies what memory holds, the page does not say either.
#[test]
fn after_what_is_undefined_no_contents_are_told() {
    let spec = r#"
def program(r):
    x, y = r.malloc("x", MiB), r.malloc("y", MiB)
    r.kernel("first", writes = [x])
    r.synchronize()
    y.free()
    r.kernel("late", writes = [y])
    r.kernel("last", writes = [x])

check("c", program)
"#;
    let diagram = explained::diagram(&of_text("undefined", spec, Detail::Reason));
    let told: BTreeSet<&str> = diagram.memory.contents.iter().flatten().map(String::as_str).collect();
    let initial = ["r0.x", "r0.y", "r1.x", "r1.y"];
    assert_eq!(
        told,
        BTreeSet::from_iter(["first@r0()", "first@r1()", "undefined"].into_iter().chain(initial))
    );
}

/// What only other runs end in is not said of the one that is shown.
#[test]
fn the_worst_of_other_runs_is_told_as_such() {
    let spec = r#"
def program(r):
    c = r.comm("c", r.world)
    x, y = r.malloc("x", 4 * KiB), r.malloc("y", 4 * KiB)
    r.group(lambda: (c.send(x, 1 - r.rank), c.recv(y, 1 - r.rank)))
    if r.truth(r.all_agree(r.choose("lost", [False, True]))):
        if r.rank == 0:
            c.recv(x, 1)
    else:
        c.send(x, 1 - r.rank)
        c.recv(y, 1 - r.rank)

check("c", program)
"#;
    let about = explained::about(&of_text("worst", spec, Detail::Reason));
    assert_eq!(about.outcome, "at worst gpu hang");
    assert!(about.headline.ends_with(": at worst the GPUs never finish."), "{}", about.headline);
}

#[test]
fn wrong_contents_are_told_with_what_was_meant() {
    enter();
    let mut wrong = 0;
    for of in searched(Path::new("specs/systems/sglang-20153-shared-pool/option_a.star"), Detail::Reason) {
        let diagram = explained::diagram(&of);
        let memory = &diagram.memory;
        let of_this = memory.pieces.iter().flat_map(|piece| piece.wrong.iter().map(move |of| (piece, of)));
        for (piece, (nth, meant)) in of_this {
            let (_, _, held) = piece.contents[*nth];
            assert_ne!(memory.contents[held], memory.contents[*meant], "{} of {}", piece.name, of.name);
            wrong += 1;
        }
        let corrupt = of.counterexample.as_ref().is_some_and(|shown| shown.run.outcome.corrupt);
        assert_eq!(memory.pieces.iter().any(|piece| !piece.wrong.is_empty()), corrupt, "{}", of.name);
        if of.name == "b: hash order, equal sizes" {
            let meant = memory.pieces.iter().flat_map(|piece| &piece.wrong).map(|(_, meant)| *meant);
            let meant: BTreeSet<&str> =
                meant.flat_map(|at| &memory.contents[at]).map(String::as_str).collect();
            assert_eq!(meant, BTreeSet::from(["r0.x+r1.x"]));
        }
    }
    assert!(wrong > 0, "no check leaves wrong data");
}

/// The lines of a diagram that have this mark, with what is said of each.
fn lines(diagram: &Diagram, sign: LineSign) -> Vec<(u32, &str)> {
    let of = diagram.lines.iter().filter(|line| line.sign == sign);
    of.map(|line| (diagram.places[line.place].line, line.words.as_str())).collect()
}

/// The texts of the steps and waits that stand there on the way of their rank, by rank.
fn on_path(diagram: &Diagram, sign: PathSign) -> Vec<(u32, &str)> {
    let steps =
        diagram.steps.iter().filter(|step| step.path == Some(sign)).map(|step| (step.lane, step.text));
    let waits =
        diagram.blocked.iter().filter(|wait| wait.path == Some(sign)).map(|wait| (wait.lane, wait.text));
    let mut all: Vec<(u32, &str)> = steps
        .chain(waits)
        .map(|(lane, text)| (diagram.lanes[lane].rank, diagram.texts[text].as_str()))
        .collect();
    all.sort_unstable();
    all
}

/// What stands under a label of a page.
fn fact<'a>(diagram: &'a Diagram, label: &str) -> &'a str {
    let fact = diagram.about.facts.iter().find(|fact| fact.label == label);
    fact.unwrap_or_else(|| panic!("nothing is said under {label}")).lines[0].as_str()
}

#[test]
fn the_line_at_which_one_rank_does_more_is_marked() {
    let diagram = explained::diagram(&of_text("page-diverges", ONE_OF_MANY, Detail::Run));
    assert_eq!(lines(&diagram, LineSign::Common), [(7, "last line in common, for the 3rd time")]);
    let others = "ranks 0 to 36 and 38 to 63 go here";
    assert_eq!(lines(&diagram, LineSign::Diverges), [(10, others), (9, "rank 37 goes here")]);
    assert_eq!(on_path(&diagram, PathSign::Common).len(), 64);
    assert!(on_path(&diagram, PathSign::Diverges).contains(&(37, "y = mem_alloc(4 MiB)")));
    let said = fact(&diagram, "diverge");
    assert!(said.contains("a.star:7") && said.contains("rank 37 does y = mem_alloc"), "{said}");
    // No repair was looked for, and none is named.
    let look_at = fact(&diagram, "look at");
    assert!(look_at.starts_with("a.star, lines 8 to 9: "), "{look_at}");
}

#[test]
fn what_decided_a_finding_and_what_repairs_it_are_marked() {
    enter();
    let spec = Path::new("specs/systems/sglang-20153-shared-pool/option_a.star");
    let found = searched(spec, Detail::Repair);
    let of = found.iter().find(|of| of.name == "b: hash order, equal sizes").expect("it is among them");
    let diagram = explained::diagram(of);
    let walk = (19, "this decided it");
    assert_eq!(lines(&diagram, LineSign::Cause), [walk]);
    assert_eq!(lines(&diagram, LineSign::Repair), [(19, "repair 1")]);
    let sides = lines(&diagram, LineSign::Diverges);
    assert!(sides.iter().all(|(line, _)| *line == 19) && sides.len() == 2, "{sides:?}");
    assert!(fact(&diagram, "repairs").starts_with("1. the same decision on all ranks"));
    assert!(diagram.about.facts.iter().all(|fact| fact.label != "look at"));
}

#[test]
fn the_lines_at_which_recorded_ranks_diverge_are_marked() {
    let path = folders().into_iter().find(|path| path.ends_with("hang-4/divergent")).expect("it is there");
    let judged = judge(read(&path).expect("a recording"), None).expect("a run of one program");
    let diagram = recorded::diagram(&judged).expect("its files are there");
    assert_eq!(lines(&diagram, LineSign::Common), [(13, "last line in common")]);
    assert_eq!(lines(&diagram, LineSign::Diverges), [(16, "ranks 0 to 2 go here"), (17, "rank 3 goes here")]);
    assert_eq!(on_path(&diagram, PathSign::Diverges).len(), 4);
    let look_at = fact(&diagram, "look at");
    assert!(
        look_at.starts_with("hang.py, lines 14 to 16: ") && look_at.contains("no repair was tried"),
        "{look_at}"
    );
    assert_eq!(
        diagram.about.headline,
        "Ranks call different collectives where all have to call the same: the run hung."
    );
}

#[test]
fn what_one_rank_gives_its_own_device_is_shown_on_demand() {
    for path in folders() {
        let judged = judge(read(&path).expect("a recording"), None).expect("a run of one program");
        let diagram = recorded::diagram(&judged).expect("its files are there");
        let shown = diagram.steps.iter().filter(|step| !step.quiet && step.mark.is_none());
        let of_events = shown.filter(|step| diagram.texts[step.text].contains(".record("));
        assert_eq!(of_events.count(), 0, "{}", path.display());
    }
}

#[test]
fn what_never_returns_has_one_sign() {
    let diagram = explained::diagram(&of_text("page-never", ONE_OF_MANY, Detail::Run));
    let lanes: BTreeSet<_> = diagram.blocked.iter().map(|wait| diagram.lanes[wait.lane].kind).collect();
    assert_eq!(lanes.len(), 2, "hosts and streams wait");
    let html = page(&diagram, Among::Alone);
    let (_, table) = html.split_once("What never returns").expect("there is a table of it");
    let (table, _) = table.split_once("</table>").expect("the table ends");
    assert_eq!(table.matches("<i class=\"never\"").count(), table.matches("<code>").count());
    assert!(html.contains("class=\"step done never blocked\""), "the legend has the sign");
}

#[test]
fn what_is_watched_ends_as_what_is_not() {
    enter();
    let spec = load(Path::new("specs/systems/sglang-20153-shared-pool/option_a.star")).expect("it is good");
    for check in &spec.checks {
        let plain = search(&spec, check, &Options::telling(Detail::Reason)).expect("it is good");
        let watched = search(&spec, check, &watched(Detail::Reason)).expect("it is good");
        assert_eq!(rankcheck::report::text(&plain), rankcheck::report::text(&watched));
    }
}

#[test]
fn names_do_no_harm() {
    let name = "</script><img src=x onerror=alert(1)> \\\"quoted\\\" 'é' ☃ <!-- & {{data}}";
    let told = name.replace("\\\"", "\"");
    let text = format!(
        "def program(r):\n    if r.rank == 0:\n        r.barrier()\n\ncheck(\"{name}\", program, ranks = 2)\n"
    );
    let of = of_text("page-names", &text, Detail::Reason);
    assert_eq!(of.name, told);
    let diagram = explained::diagram(&of);
    let html = page(&diagram, Among::Alone);
    assert!(!html.contains("<img") && !html.contains("<!-- &"), "a name is markup");
    assert_eq!(html.matches("</script>").count(), 2, "a name ends a script");
    assert!(
        html.contains("&lt;/script&gt;&lt;img src=x onerror=alert(1)&gt; &quot;quoted&quot; &#39;é&#39; ☃")
    );
    let held = data(&html)["sources"][0]["parts"][0][1].to_string();
    assert!(held.contains("</script><img"), "{held}");
}

/// One of 64 ranks registers more than the others.
const ONE_OF_MANY: &str = "
def program(r):
    tp = r.comm(\"tp\", r.world)
    x = r.mem_alloc(\"x\", 4 * MiB)
    tp.register(x)
    for _ in range(3):
        tp.all_reduce(x)
    if r.rank == 37:
        tp.register(r.mem_alloc(\"y\", 4 * MiB))
    tp.all_reduce(x)

check(\"one of many\", program, ranks = 64)
";

/// One rank makes a collective more, after thousands.
const AFTER_THOUSANDS: &str = "
def program(r):
    tp = r.comm(\"tp\", r.world)
    x = r.malloc(\"x\", MiB)
    for _ in range(3000):
        tp.all_reduce(x)
    if r.rank == 0:
        tp.all_reduce(x)

check(\"after thousands\", program, ranks = 2)
";

#[test]
fn sixty_four_ranks_are_two_columns() {
    let diagram = explained::diagram(&of_text("page-many", ONE_OF_MANY, Detail::Run));
    let folds: Vec<usize> = diagram.folds.iter().map(|fold| fold.ranks.len()).collect();
    assert_eq!(folds, [63, 1]);
    assert_eq!(loose_ends(&diagram), [""; 0]);
    let bytes = page(&diagram, Among::Several).len();
    println!("{bytes} bytes, {} steps", diagram.steps.len());
    assert!(bytes < 1_000_000, "{bytes} bytes");
}

#[test]
fn a_long_run_is_cut_and_says_so() {
    let diagram = explained::diagram(&of_text("page-long", AFTER_THOUSANDS, Detail::Run));
    assert_eq!(diagram.steps.len(), 6_000);
    let [why] = &diagram.left_out[..] else { panic!("{:?}", diagram.left_out) };
    assert!(why.contains("steps are not shown"), "{why}");
    assert_eq!(loose_ends(&diagram), [""; 0]);
    assert!(shows_the_fault(&diagram) && page(&diagram, Among::Alone).contains(why.as_str()));
}

#[test]
fn recorded_runs_have_pages_with_times() {
    let mut largest = 0;
    for path in folders() {
        let judged = judge(read(&path).expect("a recording"), None).expect("a run of one program");
        let mut diagram = recorded::diagram(&judged).expect("its files are there");
        sources::add(&mut diagram, enter());
        assert_eq!(loose_ends(&diagram), [""; 0], "{}", path.display());
        let timed = diagram.steps.iter().filter(|step| step.time.is_some()).count();
        assert!(
            timed * 3 > diagram.steps.len(),
            "{timed} of {} steps of {}",
            diagram.steps.len(),
            path.display()
        );
        let clean = path.ends_with("clean");
        assert_eq!(diagram.about.stated, if clean { Stated::Holds } else { Stated::No });
        assert!(clean || shows_the_fault(&diagram), "{}: nothing is marked", path.display());
        assert!(!diagram.sources.is_empty(), "{}: its program lies here", path.display());
        largest = largest.max(page(&diagram, Among::Several).len());
    }
    println!("the largest has {largest} bytes");
    assert!(largest < 1_000_000, "{largest} bytes");
}

#[test]
fn sources_are_read_in_their_folder_alone() {
    let path = &folders()[0];
    let judged = judge(read(path).expect("a recording"), None).expect("a run of one program");
    let mut diagram = recorded::diagram(&judged).expect("its files are there");
    let inside = folder("page-sources").join("inside");
    fs::create_dir(&inside).expect("a folder can be made");
    fs::write(inside.join("../outside.py"), "secret\n").expect("a file can be written");
    for place in &mut diagram.places {
        place.file = "../outside.py".to_owned();
        place.line = 1;
    }
    sources::add(&mut diagram, &inside);
    assert!(diagram.sources.is_empty(), "{:?}", diagram.sources);
}

#[test]
fn dumps_have_pages() {
    enter();
    let jobs = judge_dumps(&[PathBuf::from("tests/dumps/runs")]).expect("dumps lie there");
    assert!(jobs.len() > 10);
    for job in &jobs {
        let diagram = launched::diagram(job);
        assert_eq!(loose_ends(&diagram), [""; 0]);
        assert_eq!(upside_down(&diagram), [""; 0]);
        assert_eq!(diagram.about.origin, "dumps");
        if diagram.about.verdict == "HANGS" {
            assert!(!diagram.blocked.is_empty(), "{}", diagram.about.title);
        }
    }
    let named = |name: &str| {
        let job = jobs.iter().find(|job| job.job.source.to_string_lossy().contains(name));
        launched::diagram(job.unwrap_or_else(|| panic!("{name} is among them")))
    };
    let early = named("/stops_early/");
    assert_eq!(early.about.title, "dumps runs/stops_early");
    assert_eq!(lines(&early, LineSign::Common), [(137, "last line in common")]);
    assert_eq!(lines(&early, LineSign::Diverges), [(137, "rank 0 goes here")]);
    let said = fact(&early, "diverge");
    assert!(said.ends_with("rank 1 makes no further call that others see"), "{said}");
    assert!(early.about.headline.starts_with("Rank 0 waits for rank 1, which did not make the call."));
    let circle = jobs.iter().find(|job| job.job.source.to_string_lossy().contains("groups_in_another_order"));
    assert_eq!(launched::diagram(circle.expect("it is among them")).cycle.len(), 2);
}

#[test]
fn logs_have_pages_that_name_them() {
    enter();
    let jobs = judge_logs(&[PathBuf::from("tests/logs/runs")]).expect("logs lie there");
    let titles: BTreeSet<String> = jobs.iter().map(|job| launched::diagram(job).about.title).collect();
    assert_eq!(titles.len(), jobs.len(), "{titles:?}");
    assert!(titles.contains("NCCL log another_root/vm.1216"), "{titles:?}");
}

#[test]
fn a_page_tells_what_the_memory_of_devices_held() {
    let out = folder("page-devices");
    let to = out.display().to_string();
    let spec = "specs/systems/sglang-20153-shared-pool/option_a.star";
    let (code, text) = report(enter(), &[spec, "--out", &to]);
    assert_eq!(code, 0, "{text}");
    let name =
        names(&out).into_iter().find(|name| name.starts_with("b-hash-order-equal")).expect("it has a page");
    let html = fs::read_to_string(out.join(name)).expect("the page is there");
    let (_, table) = html.split_once("On devices").expect("devices ran it");
    let (table, _) = table.split_once("</table>").expect("the table ends");
    assert!(table.contains("its memory held") && table.contains("<div>x: "), "{table}");
}

fn report(at: &Path, arguments: &[&str]) -> (i32, String) {
    let (code, text) = crate::built::ran(at, &[&["report"], arguments].concat());
    (code.expect("it is not killed"), text)
}

/// Names of the files of a folder.
fn names(at: &Path) -> Vec<String> {
    let entries = fs::read_dir(at).expect("it can be listed");
    let name =
        |entry: std::io::Result<fs::DirEntry>| entry.expect("it can be read").file_name().into_string();
    let mut names: Vec<String> = entries.map(|entry| name(entry).expect("names are UTF-8")).collect();
    names.sort();
    names
}

#[test]
fn an_index_lists_every_input() {
    let out = folder("page-index");
    let to = out.display().to_string();
    let inputs = ["tests/pages", "tests/recordings/runs/hang-2", "tests/dumps/runs/stops_early"];
    let arguments: Vec<&str> = inputs.into_iter().chain(["--out", &to]).collect();
    let (code, text) = report(enter(), &arguments);
    assert_eq!(code, 1, "{text}");
    assert!(text.contains("2 passed, 3 failed (1 of the passes is an expected failure); 4 pages"), "{text}");
    let index = fs::read_to_string(out.join("index.html")).expect("the index is there");
    for word in ["the pool of one rank grows", "hang-2/clean", "hang-2/divergent", "stops_early", "expected"]
    {
        assert!(index.contains(word), "{word}");
    }
    // What is not as expected comes first.
    let at = |word: &str| index.find(word).expect("it is there");
    assert!(at("hang-2/divergent") < at("the pool of one rank grows"));
    assert!(at("the pool of one rank grows") < at("hang-2/clean"));
    let pages = names(&out);
    assert_eq!(pages.len(), 5, "{pages:?}");
    for page in pages.iter().filter(|page| *page != "index.html") {
        assert!(index.contains(&format!("href=\"{page}\"")), "{page}");
    }
    // The names stay, and what nothing links to any more goes.
    let (code, _) = report(enter(), &["tests/pages", "--out", &to]);
    assert_eq!((code, names(&out).len()), (0, 2));
    assert!(names(&out).iter().all(|name| pages.contains(name)));
}

#[test]
fn files_of_others_are_left_alone() {
    let out = folder("page-others");
    let to = out.display().to_string();
    fs::write(out.join("notes.html"), "mine").expect("a file can be written");
    fs::write(out.join("data.bin"), "mine").expect("a file can be written");
    assert_eq!(report(enter(), &["tests/pages", "--out", &to]).0, 0);
    assert_eq!(fs::read_to_string(out.join("notes.html")).expect("it is there"), "mine");
    assert!(out.join("data.bin").exists());

    fs::write(out.join("index.html"), "mine").expect("a file can be written");
    let (code, text) = report(enter(), &["tests/pages", "--out", &to]);
    assert_eq!(code, 2, "{text}");
    // Where the path is long, the message is wrapped.
    let words = text.replace('│', " ").split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(words.contains("rankcheck did not write it") && words.contains("--out"), "{text}");
    assert_eq!(fs::read_to_string(out.join("index.html")).expect("it is there"), "mine");
}

#[test]
fn a_folder_that_cannot_be_written_is_named() {
    let out = folder("page-unwritable");
    fs::write(out.join("file"), "").expect("a file can be written");
    let to = out.join("file/pages").display().to_string();
    let (code, text) = report(enter(), &["tests/pages", "--out", &to]);
    assert_eq!(code, 2, "{text}");
    assert!(text.contains("cannot write") && text.contains("file/pages"), "{text}");
    let (code, text) = report(enter(), &["tests/nothing-there", "--out", &out.display().to_string()]);
    assert_eq!(code, 2, "{text}");
    assert!(text.contains("no file or folder tests/nothing-there"), "{text}");
}
