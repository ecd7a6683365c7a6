//! The files of examples/cluster and the workflow of docs/cluster.md: their commands are run as the batch systems run them.
//!
//! Not here: what shards and merged reports say (`shards.rs`).

use std::fs;
use std::path::Path;
use std::process::Command;

use rankcheck_tests::repository::enter;
use serde_json::Value;

use crate::built::{command, folder};
use crate::shards::{Said, said};

/// What is checked: five cases, of which one fails and nobody said so.
fn specs(name: &str) -> std::path::PathBuf {
    let folder = folder(name);
    let text = "def meets(r, late = False):
    if late and r.rank > 0:
        return
    r.barrier()

check(\"late\", meets, late = True)
check(\"a\", meets, ranks = [2, 4], expect = holds())
check(\"b\", meets, ranks = 3, expect = holds())
check(\"c\", meets, late = True, expect = fails(\"HOST-1\"))
check(\"d\", meets, ranks = 5, expect = holds())
";
    fs::create_dir_all(folder.join("specs")).expect("a folder can be made");
    fs::write(folder.join("specs/meets.star"), text).expect("a file can be written");
    folder
}

/// Runs a script as a batch system does: with its own variables, and the command on the path.
fn ran(at: &Path, arguments: &[&str], variables: &[(&str, String)]) -> Said {
    let folder_of_command = command().parent().expect("it lies in a folder");
    let path = std::env::var("PATH").unwrap_or_default();
    let mut bash = Command::new("bash");
    bash.args(arguments).current_dir(at).env("NO_COLOR", "1");
    bash.env("PATH", format!("{}:{path}", folder_of_command.display()));
    bash.envs(variables.iter().map(|(name, value)| (name, value)));
    let output = bash.output().expect("bash starts");
    let text = |bytes| String::from_utf8(bytes).expect("UTF-8");
    let code = output.status.code().expect("it is not killed");
    Said { out: text(output.stdout), err: text(output.stderr), code }
}

fn files_in(folder: &Path) -> Vec<String> {
    let entries = fs::read_dir(folder).expect("the folder is there").flatten();
    let mut names: Vec<String> =
        entries.map(|entry| entry.file_name().to_string_lossy().into_owned()).collect();
    names.sort();
    names
}

/// A task of an array of Slurm, which counts from `first` on.
fn task(at: &Path, id: u32, first: u32, count: u32, more: &[(&str, &str)]) -> Said {
    let script = enter().join("examples/cluster/check.sbatch");
    let own = [
        ("SLURM_ARRAY_JOB_ID", 77),
        ("SLURM_ARRAY_TASK_ID", id),
        ("SLURM_ARRAY_TASK_MIN", first),
        ("SLURM_ARRAY_TASK_COUNT", count),
        ("SLURM_CPUS_PER_TASK", 2),
        ("SLURM_MEM_PER_NODE", 4096),
    ];
    let mut variables: Vec<(&str, String)> =
        own.iter().map(|(name, value)| (*name, value.to_string())).collect();
    variables.extend(more.iter().map(|(name, value)| (*name, (*value).to_owned())));
    ran(at, &[script.to_str().expect("UTF-8")], &variables)
}

#[test]
fn an_array_of_slurm_checks_everything_once() {
    let merge = enter().join("examples/cluster/merge.sbatch");
    let merge = merge.to_str().expect("UTF-8");
    for first in [0, 1] {
        let folder = specs(&format!("cluster_slurm_{first}"));
        for id in first..first + 3 {
            let ran = task(&folder, id, first, 3, &[]);
            assert_eq!(ran.code, 0, "a finding is no failure of the task: {ran:?}");
        }
        let out = folder.join("rankcheck-77");
        assert_eq!(files_in(&out), ["shard-1.jsonl", "shard-2.jsonl", "shard-3.jsonl"]);
        let whole = said(&folder, &["check", "specs"]);
        assert_eq!(whole.code, 1, "{whole:?}");
        assert_eq!(ran(&folder, &[merge, "rankcheck-77"], &[]), whole);
        let junit = fs::read_to_string(out.join("report.xml")).expect("it was written");
        assert!(junit.contains("tests=\"5\" failures=\"1\" errors=\"0\""), "{junit}");
    }
    // The second task was lost, and the merged report says so; repeated alone, it completes the whole.
    let folder = folder("cluster_slurm_1_again");
    fs::rename(folder.with_file_name("cluster_slurm_1").join("specs"), folder.join("specs"))
        .expect("it can be moved");
    let out = [("OUT", "out")];
    for id in [1, 3] {
        assert_eq!(task(&folder, id, 1, 3, &out).code, 0);
    }
    let lost = ran(&folder, &[merge, "out"], &[]);
    assert!(lost.code == 1 && lost.out.contains("shard 2 of 3 is missing"), "{lost:?}");
    assert_eq!(task(&folder, 2, 2, 1, &[("OUT", "out"), ("SHARDS", "3")]).code, 0);
    assert_eq!(ran(&folder, &[merge, "out"], &[]), said(&folder, &["check", "specs"]));
    // A task that can write no file has failed.
    assert_ne!(task(&folder, 2, 1, 3, &[("OUT", "specs/meets.star")]).code, 0);
    assert_eq!(ran(&folder, &[merge, "nowhere"], &[]).code, 2);
}

/// Reads a document of YAML.
fn yaml(text: &str) -> Value {
    serde_saphyr::from_str(text).unwrap_or_else(|error| panic!("{error}\n{text}"))
}

fn manifest(name: &str) -> Value {
    let text = fs::read_to_string(enter().join("examples/cluster").join(name)).expect("it is there");
    let job = yaml(&text);
    assert_eq!((job["apiVersion"].as_str(), job["kind"].as_str()), (Some("batch/v1"), Some("Job")));
    assert_eq!(job["spec"]["template"]["spec"]["restartPolicy"], "Never");
    job
}

/// Runs the command of a job as a pod does, with reports in another folder.
fn pod(job: &Value, at: &Path, out: &str, index: Option<u64>) -> Said {
    let pod = &job["spec"]["template"]["spec"];
    let container = &pod["containers"][0];
    let words = container["command"].as_array().expect("a command is a list");
    let words: Vec<&str> = words.iter().map(|word| word.as_str().expect("of strings")).collect();
    assert_eq!(words[0], "bash");
    let mut variables = Vec::new();
    for variable in container["env"].as_array().expect("there are variables") {
        let text = |key: &str| variable[key].as_str().expect("names and values are strings");
        let value = match text("name") {
            "OUT" => {
                let mounted =
                    container["volumeMounts"][0]["mountPath"].as_str().expect("something is mounted");
                assert!(text("value").starts_with(&format!("{mounted}/")), "reports are kept in the volume");
                out
            }
            "SPECS" => "specs",
            _ => text("value"),
        };
        variables.push((text("name"), value.to_owned()));
    }
    assert_eq!(container["volumeMounts"][0]["name"], pod["volumes"][0]["name"]);
    variables.extend(index.map(|index| ("JOB_COMPLETION_INDEX", index.to_string())));
    ran(at, &words[1..], &variables)
}

#[test]
fn an_indexed_job_of_kubernetes_checks_everything_once() {
    let folder = specs("cluster_kubernetes");
    let check = manifest("check.yaml");
    assert_eq!(check["spec"]["completionMode"], "Indexed");
    let completions = check["spec"]["completions"].as_u64().expect("it is a number");
    for index in 0..completions {
        let ran = pod(&check, &folder, "reports", Some(index));
        assert_eq!(ran.code, 0, "{ran:?}");
    }
    assert_eq!(files_in(&folder.join("reports")).len() as u64, completions);
    let merge = manifest("merge.yaml");
    let out = |job: &Value| job["spec"]["template"]["spec"]["containers"][0]["env"].to_string();
    let kept = "{\"name\":\"OUT\",\"value\":\"/reports/tonight\"}";
    assert!(out(&check).contains(kept) && out(&merge).contains(kept), "both have the same folder");
    assert_eq!(pod(&merge, &folder, "reports", None), said(&folder, &["check", "specs"]));
    fs::remove_file(folder.join("reports/shard-2.jsonl")).expect("it is there");
    let lost = pod(&merge, &folder, "reports", None);
    assert!(lost.code != 0 && lost.out.contains("shard 2 of 16 is missing"), "{lost:?}");
}

#[test]
fn the_matrix_of_a_workflow_checks_everything_once() {
    let folder = specs("cluster_workflow");
    let document = fs::read_to_string(enter().join("docs/cluster.md")).expect("it is there");
    let block = document.split("```yaml\n").nth(1).expect("it has a workflow");
    let workflow = yaml(block.split("```").next().expect("a block ends"));
    let command_of = |job: &str, name: &str| {
        let steps = workflow["jobs"][job]["steps"].as_array().expect("a job has steps");
        let step = steps.iter().find(|step| step["name"] == name).unwrap_or_else(|| panic!("no step {name}"));
        step["run"].as_str().expect("it runs something").to_owned()
    };
    let shards = workflow["jobs"]["check"]["strategy"]["matrix"]["shard"].as_array().expect("it is a list");
    assert_eq!(workflow["jobs"]["check"]["strategy"]["fail-fast"], false);
    let script = command_of("check", "Check a shard");
    fs::create_dir_all(folder.join("shards")).expect("a folder can be made");
    for shard in shards {
        let script = script.replace("${{ matrix.shard }}", &shard.to_string());
        let script = script.replace("${{ strategy.job-total }}", &shards.len().to_string());
        assert!(!script.contains("${{"), "{script}");
        let ran = ran(&folder, &["-e", "-o", "pipefail", "-c", &script], &[]);
        assert_eq!(ran.code, 0, "{ran:?}");
        // What is uploaded by one job is downloaded by the other.
        let file = format!("shard-{shard}.jsonl");
        fs::rename(folder.join(&file), folder.join("shards").join(&file)).expect("it was written");
    }
    let merged = ran(&folder, &["-e", "-o", "pipefail", "-c", &command_of("merge", "Merge the shards")], &[]);
    assert_eq!(merged, said(&folder, &["check", "specs", "--format", "github"]));
    assert_eq!(workflow["jobs"]["merge"]["if"], "always()");
}
