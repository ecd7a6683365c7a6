//! What a pull request shows that changes lines which specs quote: `rankcheck drift --diff`, and the steps of
//! docs/workflow.yml and of what `rankcheck init` writes, in a small repository.
//!
//! Not here: formats (`formats.rs`) and comparisons (`compared.rs`) for themselves.

use std::fs;
use std::path::Path;
use std::process::Command;

use rankcheck_tests::repository::enter;

use crate::built::{command, folder};
use crate::formats::results_of;

/// Runs git in a repository, with no settings of whoever runs the test, and returns what it printed.
pub(crate) fn git(repo: &Path, arguments: &[&str]) -> String {
    let output = Command::new("git")
        .args(["-c", "user.name=Test", "-c", "user.email=test@example.org", "-c", "init.defaultBranch=main"])
        .args(arguments)
        .current_dir(repo)
        .env("GIT_CONFIG_GLOBAL", "/dev/null")
        .env("GIT_CONFIG_SYSTEM", "/dev/null")
        .env("GIT_CONFIG_NOSYSTEM", "1")
        .output()
        .expect("git is there");
    assert!(output.status.success(), "git {arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).expect("git writes UTF-8")
}

fn write(path: impl AsRef<Path>, text: &str) {
    let path = path.as_ref();
    fs::create_dir_all(path.parent().expect("it lies in a folder")).expect("a folder can be made");
    fs::write(path, text).expect("a file can be written");
}

const POOL: &str = "class Pool:
    def __init__(self, comm):
        self.comm = comm
        self.segments = []

    def grow(self, size):
        segment = nccl_mem_alloc(size)
        self.segments.append(segment)
        self.comm.register(segment)
        return segment

    def close(self):
        for segment in self.segments:
            self.comm.deregister(segment)
";

const SPEC: &str = r#"code("engine/pool.py", "self.segments.append(segment)\n        self.comm.register(segment)")
code("engine/pool.py", "for segment in self.segments:")

def program(r):
    r.barrier()

check("all ranks grow", program, ranks = [2, 4], expect = holds())
"#;

/// A repository with a product and specs of it, committed once.
fn repository(name: &str) -> std::path::PathBuf {
    let repo = folder(name);
    write(repo.join("engine/pool.py"), POOL);
    write(repo.join("specs/pool.star"), SPEC);
    write(repo.join("specs/other.star"), &SPEC.replace("all ranks grow", "all ranks close"));
    git(&repo, &["init", "-q"]);
    git(&repo, &["add", "-A"]);
    git(&repo, &["commit", "-qm", "base"]);
    repo
}

fn drift(repo: &Path, more: &[&str]) -> (i32, String) {
    let arguments = ["drift", "--repo", ".", "--diff", "main", "specs/pool.star"];
    let output = Command::new(command()).args(arguments).args(more).current_dir(repo).output();
    let output = output.expect("it starts");
    let text = String::from_utf8([output.stdout, output.stderr].concat()).expect("the command writes UTF-8");
    (output.status.code().expect("it is not killed"), text)
}

/// What a change of the product does to the quotes.
#[test]
fn a_quoted_line_that_changes_without_its_spec_is_told_at_the_line() {
    let repo = repository("drift_diff");
    git(&repo, &["checkout", "-qb", "change"]);
    let (code, text) = drift(&repo, &[]);
    assert_eq!((code, text.as_str()), (0, "2 quotes, 0 changed without their spec\n"));

    // Lines above and below quotes, and between two of them, change nothing about them.
    let around = POOL.replace("class Pool:\n", "import nccl\n\n\nclass Pool:\n");
    let around = around.replace("        return segment\n", "        return segment  # grown\n");
    write(repo.join("engine/pool.py"), &around);
    assert_eq!(drift(&repo, &[]), (0, "2 quotes, 0 changed without their spec\n".to_owned()));

    // The second line of a quote, below lines that are new.
    let changed =
        around.replace("self.comm.register(segment)", "self.comm.register(segment, symmetric=True)");
    let (changed, line) = (changed.replace("(segment, s", "(segment_of(size), s"), 12);
    write(repo.join("engine/pool.py"), &changed);
    let (code, text) = drift(&repo, &[]);
    assert_eq!(code, 1, "{text}");
    assert!(text.starts_with(&format!("engine/pool.py:{line}  specs/pool.star:1 quotes ")), "{text}");
    assert!(text.contains("2 quotes, 1 changed without their spec"), "{text}");
    let (code, text) = drift(&repo, &["--format", "github"]);
    assert!(
        code == 1 && text.starts_with(&format!("::error file=engine/pool.py,line={line},title=")),
        "{text}"
    );
    let (code, text) = drift(&repo, &["--format", "sarif"]);
    let results = results_of(&text);
    assert_eq!((code, results.len()), (1, 1));
    let place = |location: &serde_json::Value| {
        let at = &location["physicalLocation"];
        format!("{}:{}", at["artifactLocation"]["uri"].as_str().unwrap_or("?"), at["region"]["startLine"])
    };
    assert_eq!(place(&results[0]["locations"][0]), format!("engine/pool.py:{line}"));
    assert_eq!(place(&results[0]["relatedLocations"][0]), "specs/pool.star:1");

    // The same, committed, is the same; with its spec it is nobody's fault.
    git(&repo, &["commit", "-qam", "change"]);
    assert_eq!(drift(&repo, &[]).0, 1);
    write(
        repo.join("specs/pool.star"),
        &SPEC.replace("register(segment)", "register(segment_of(size), symmetric=True)"),
    );
    assert_eq!(drift(&repo, &[]), (0, "2 quotes, 0 changed without their spec\n".to_owned()));
}

#[test]
fn lines_that_come_between_move_go_or_keep_the_quote_and_files_that_move_or_go() {
    let repo = repository("drift_kinds");
    git(&repo, &["checkout", "-qb", "change"]);
    let told = |text: &str| {
        write(repo.join("engine/pool.py"), text);
        drift(&repo, &[])
    };
    // A line between the two that are quoted together.
    let (code, text) = told(&POOL.replace("append(segment)\n", "append(segment)\n        self.check()\n"));
    assert!(code == 1 && text.starts_with("engine/pool.py:9  specs/pool.star:1 quotes"), "{text}");
    // A quoted line of which the rest changed: somebody has to look, and can do nothing more.
    let (code, text) = told(&POOL.replace("in self.segments:", "in self.segments:  # oldest first"));
    assert!(
        code == 0 && text.starts_with("engine/pool.py:13  this line changed or moved, and specs/pool.star:2"),
        "{text}"
    );
    let (_, text) = drift(&repo, &["--format", "github"]);
    assert!(text.starts_with("::warning file=engine/pool.py,line=13,"), "{text}");
    // Both lines are gone.
    let (code, text) = told(
        &POOL.replace("        self.segments.append(segment)\n        self.comm.register(segment)\n", ""),
    );
    assert!(code == 1 && text.starts_with("engine/pool.py:7  specs/pool.star:1 quotes"), "{text}");
    // The file has another name, and nothing else changed.
    write(repo.join("engine/pool.py"), POOL);
    git(&repo, &["mv", "engine/pool.py", "engine/shared_pool.py"]);
    let (code, text) = drift(&repo, &[]);
    assert!(
        code == 1
            && text.contains("engine/shared_pool.py:8  engine/pool.py, of which specs/pool.star:1 quotes"),
        "{text}"
    );
    assert!(text.contains("engine/shared_pool.py:13  ") && text.contains("2 quotes, 2 changed"), "{text}");
    // It is gone: the spec is where that is shown.
    git(&repo, &["rm", "-qf", "engine/shared_pool.py"]);
    let (code, text) = drift(&repo, &[]);
    assert!(code == 1 && text.starts_with("specs/pool.star:1  engine/pool.py, of which"), "{text}");
}

#[test]
fn what_the_base_has_changed_since_is_not_this_change() {
    let repo = repository("drift_base");
    git(&repo, &["checkout", "-qb", "change"]);
    write(repo.join("notes.txt"), "unrelated\n");
    git(&repo, &["add", "-A"]);
    git(&repo, &["commit", "-qm", "unrelated"]);
    git(&repo, &["checkout", "-q", "main"]);
    write(
        repo.join("engine/pool.py"),
        &POOL.replace("for segment in self.segments:", "for segment in self:"),
    );
    git(&repo, &["commit", "-qam", "main goes on"]);
    git(&repo, &["checkout", "-q", "change"]);
    assert_eq!(drift(&repo, &[]), (0, "2 quotes, 0 changed without their spec\n".to_owned()));
    // Histories that share nothing have no difference to look at.
    git(&repo, &["checkout", "-q", "--orphan", "alone"]);
    git(&repo, &["commit", "-qm", "alone"]);
    let (code, text) = drift(&repo, &[]);
    assert!(
        code == 2 && text.contains("have no commit in common") && text.contains("fetch-depth: 0"),
        "{text}"
    );
}

/// The commands of a workflow, by the names of their steps.
fn steps(workflow: &Path) -> Vec<(String, String)> {
    let text = fs::read_to_string(workflow).expect("the workflow is there");
    let mut steps: Vec<(String, String)> = Vec::new();
    let mut in_block = false;
    for line in text.lines() {
        let indent = line.len() - line.trim_start().len();
        if let Some(name) = line.trim_start().strip_prefix("- name: ") {
            steps.push((name.to_owned(), String::new()));
        } else if let Some(run) = line.strip_prefix("        run: ") {
            in_block = run == "|";
            if !in_block {
                steps.last_mut().expect("a step has a name").1 = run.to_owned();
            }
        } else if in_block && indent >= 10 {
            let commands = &mut steps.last_mut().expect("a step has a name").1;
            commands.push_str(line.trim_start());
            commands.push('\n');
        } else {
            in_block = false;
        }
    }
    steps
}

/// Runs a step of a workflow as GitHub does, in a repository whose pull request begins at this commit.
fn step(workflow: &Path, name: &str, repo: &Path, base: &str) -> (i32, String) {
    let all = steps(workflow);
    let (_, script) = all.iter().find(|(step, _)| step == name).unwrap_or_else(|| panic!("no step {name}"));
    let tools = repo.with_extension("tools");
    // What it comments is kept.
    let gh = "#!/bin/bash\nset -e\n[ \"$1 $2 $3 $4\" = 'pr comment 7 --body-file' ]\ncp \"$5\" \"$KEPT\"\n";
    write(tools.join("gh"), gh);
    let executable = std::os::unix::fs::PermissionsExt::from_mode(0o755);
    fs::set_permissions(tools.join("gh"), executable).expect("it is there");
    let folder_of_command = command().parent().expect("it lies in a folder");
    let path = std::env::var("PATH").unwrap_or_default();
    let output = Command::new("bash")
        .args(["--noprofile", "--norc", "-e", "-o", "pipefail", "-c", script])
        .current_dir(repo)
        .env("PATH", format!("{}:{}:{path}", tools.display(), folder_of_command.display()))
        .env("SPECS", "specs")
        .env("BASE", base.trim())
        .env("NUMBER", "7")
        .env("KEPT", tools.join("comment.md"))
        .env("GITHUB_STEP_SUMMARY", repo.join("summary.md"))
        .output()
        .expect("bash starts");
    let code = output.status.code().expect("it is not killed");
    (code, String::from_utf8([output.stdout, output.stderr].concat()).expect("UTF-8"))
}

#[test]
fn what_init_writes_shows_a_broken_check_and_a_quoted_line_that_changed() {
    let repo = folder("workflow_of_init");
    write(repo.join("engine/pool.py"), POOL);
    git(&repo, &["init", "-q"]);
    let init = Command::new(command()).arg("init").current_dir(&repo).output().expect("it starts");
    assert!(init.status.success(), "{init:?}");
    write(repo.join("specs/pool.star"), SPEC);
    git(&repo, &["add", "-A"]);
    git(&repo, &["commit", "-qm", "base"]);
    let base = git(&repo, &["rev-parse", "HEAD"]);
    let workflow = repo.join(".github/workflows/rankcheck.yml");
    let names: Vec<String> = steps(&workflow).into_iter().map(|(name, _)| name).collect();
    assert_eq!(names, ["Install", "Check the specs", "Find changed lines that specs quote"]);
    let (code, text) = step(&workflow, "Check the specs", &repo, &base);
    assert_eq!((code, text.as_str()), (0, "2 passed, 0 failed\n"));
    let (code, text) = step(&workflow, "Find changed lines that specs quote", &repo, &base);
    assert_eq!((code, text.as_str()), (0, "2 quotes, 0 changed without their spec\n"));

    git(&repo, &["checkout", "-qb", "change"]);
    write(repo.join("engine/pool.py"), &POOL.replace("in self.segments:", "in reversed(self.segments):"));
    let first = fs::read_to_string(repo.join("specs/first.star")).expect("init wrote it");
    write(repo.join("specs/first.star"), &first.replace("if not all_have_room:", "if not has_room:"));
    git(&repo, &["commit", "-qam", "change"]);
    let (code, text) = step(&workflow, "Check the specs", &repo, &base);
    assert!(code == 1 && text.starts_with("::error file=specs/first.star,line="), "{text}");
    let (code, text) = step(&workflow, "Find changed lines that specs quote", &repo, &base);
    assert!(code == 1 && text.starts_with("::error file=engine/pool.py,line=13,title="), "{text}");

    // Below the root of a repository GitHub does not look for workflows.
    write(repo.join("sub/x.txt"), "");
    let init = Command::new(command()).args(["init", "sub"]).current_dir(&repo).output().expect("it starts");
    let said = String::from_utf8_lossy(&init.stderr);
    assert!(init.status.success() && said.contains("GitHub runs workflows only from the root"), "{said}");
}

#[test]
fn the_workflow_shows_a_broken_check_and_a_quoted_line_that_changed() {
    let repo = repository("workflow");
    let base = git(&repo, &["rev-parse", "HEAD"]);
    git(&repo, &["checkout", "-qb", "change"]);
    // The pull request changes a line that both specs quote and one of the specs, which it breaks.
    write(
        repo.join("engine/pool.py"),
        &POOL.replace("for segment in self.segments:", "for segment in reversed(self.segments):"),
    );
    let broken = SPEC
        .replace("all ranks grow", "all ranks close")
        .replace("    r.barrier()", "    if r.rank == 0:\n        r.barrier()");
    write(repo.join("specs/other.star"), &broken.replace("in self.segments:", "in reversed(self.segments):"));
    git(&repo, &["commit", "-qam", "change"]);

    let workflow = enter().join("docs/workflow.yml");
    let step = |name: &str| step(&workflow, name, &repo, &base);
    let (code, text) = step("Check the specs");
    assert_eq!(code, 1, "{text}");
    let annotations: Vec<&str> = text.lines().filter(|line| line.starts_with("::")).collect();
    assert_eq!(annotations.len(), 1, "{text}");
    assert!(
        annotations[0].starts_with("::error file=specs/other.star,line=6,title=all ranks close%3A "),
        "{text}"
    );
    assert!(annotations[0].contains("HOST-1"), "{text}");

    let (code, text) = step("Find changed lines that specs quote");
    assert_eq!(code, 1, "{text}");
    let annotations: Vec<&str> = text.lines().filter(|line| line.starts_with("::")).collect();
    assert_eq!(annotations.len(), 1, "{text}");
    assert!(annotations[0].starts_with("::error file=engine/pool.py,line=13,title="), "{text}");
    assert!(annotations[0].contains("specs/pool.star:2"), "{text}");

    let (code, text) = step("Compare with the base");
    assert_eq!(code, 0, "{text}");
    let comment = fs::read_to_string(repo.join("rankcheck.md")).expect("the step writes it");
    assert!(comment.starts_with("### rankcheck: **something is worse**"), "{comment}");
    assert!(comment.contains("<details><summary>specs/other.star, \"all ranks close\": HOST-1"), "{comment}");
    assert_eq!(fs::read_to_string(repo.join("summary.md")).expect("the step writes it"), comment);

    let (code, text) = step("Comment");
    assert_eq!(code, 0, "{text}");
    let kept = repo.with_extension("tools").join("comment.md");
    assert_eq!(fs::read_to_string(kept).expect("the step gives it to gh"), comment);

    let (code, text) = step("Write SARIF");
    assert_eq!(code, 0, "{text}");
    let results = results_of(&fs::read_to_string(repo.join("rankcheck.sarif")).expect("the step writes it"));
    assert_eq!(results.len(), 1);
    let related = results[0]["relatedLocations"].to_string();
    assert!(related.contains("engine/pool.py"), "{related}");
    // The rest needs GitHub or a package index.
    let names: Vec<String> = steps(&workflow).into_iter().map(|(name, _)| name).collect();
    assert_eq!(
        names,
        [
            "Install",
            "Check the specs",
            "Find changed lines that specs quote",
            "Compare with the base",
            "Comment",
            "Write SARIF",
        ]
    );
}
