//! How this process was started: alone, or as one of many by torchrun or srun.
//!
//! A launcher that starts one process a rank says so in the environment. Rank 0 then coordinates, and every
//! process, rank 0 as well, starts the workers of its own rank.
//! Not here: connecting ([`crate::job`], [`crate::job::agent`]).

use crate::Error;

/// What the environment says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ProcessRole {
    /// Nothing: one process starts all workers, on this machine.
    Local,
    /// This is rank 0 of several processes.
    Coordinator(Cluster),
    /// This is another rank.
    Agent(Cluster),
}

/// One process among those that a launcher started.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Cluster {
    /// Rank of this process.
    pub rank: u32,
    /// How many there are.
    pub ranks: u32,
    /// Its number on its host, which is its device.
    pub local_rank: u32,
    /// The host of rank 0.
    pub host: String,
    /// The port on which rank 0 listens.
    pub port: u16,
    /// What all processes of the job know and others do not, as far as the launcher has such a thing.
    pub secret: String,
}

/// Overrides the host of rank 0.
const HOST: &str = "RANKCHECK_HOST";
/// Overrides the port on which rank 0 listens.
const PORT: &str = "RANKCHECK_PORT";
/// A secret of the user's own, for networks with strangers.
const SECRET: &str = "RANKCHECK_SECRET";

impl ProcessRole {
    /// Reads the environment of this process.
    ///
    /// # Errors
    /// [`Error::Environment`] if a launcher was there but left something that cannot be used.
    pub fn from_environment() -> Result<Self, Error> {
        Self::from_variables(|name| std::env::var(name).ok())
    }

    /// Reads variables.
    ///
    /// # Errors
    /// As [`Self::from_environment`].
    pub fn from_variables(variable: impl Fn(&str) -> Option<String>) -> Result<Self, Error> {
        let cluster = if variable("RANK").is_some() && variable("MASTER_ADDR").is_some() {
            torchrun(&variable)?
        } else if variable("SLURM_PROCID").is_some() && variable("SLURM_STEP_ID").is_some() {
            // A batch script without srun has a process id as well, but is alone.
            srun(&variable)?
        } else {
            return Ok(Self::Local);
        };
        if cluster.rank >= cluster.ranks {
            return Err(unusable("RANK or SLURM_PROCID", "is not below the number of processes"));
        }
        Ok(match (cluster.ranks, cluster.rank) {
            (1, _) => Self::Local,
            (_, 0) => Self::Coordinator(cluster),
            (_, _) => Self::Agent(cluster),
        })
    }
}

fn unusable(variable: &str, why: &str) -> Error {
    Error::Environment { variable: variable.to_owned(), why: why.to_owned() }
}

fn text(variable: &impl Fn(&str) -> Option<String>, name: &str) -> Result<String, Error> {
    variable(name).ok_or_else(|| unusable(name, "is not set, although others of its launcher are"))
}

fn number(variable: &impl Fn(&str) -> Option<String>, name: &str) -> Result<u32, Error> {
    let text = text(variable, name)?;
    text.trim().parse().map_err(|_| unusable(name, &format!("is {text:?}, which is no number")))
}

/// The port that the user wants, if any.
fn wanted_port(variable: &impl Fn(&str) -> Option<String>) -> Result<Option<u16>, Error> {
    if variable(PORT).is_none() {
        return Ok(None);
    }
    let port = u16::try_from(number(variable, PORT)?).map_err(|_| unusable(PORT, "is no port"))?;
    Ok(Some(port))
}

fn torchrun(variable: &impl Fn(&str) -> Option<String>) -> Result<Cluster, Error> {
    // torchrun's own store may listen on MASTER_PORT itself.
    let next = || {
        let port = u16::try_from(number(variable, "MASTER_PORT")?).ok().and_then(|port| port.checked_add(1));
        port.ok_or_else(|| unusable("MASTER_PORT", "leaves no port after it"))
    };
    let port = match wanted_port(variable)? {
        Some(port) => port,
        None => next()?,
    };
    let run = variable("TORCHELASTIC_RUN_ID").unwrap_or_default();
    Ok(Cluster {
        rank: number(variable, "RANK")?,
        ranks: number(variable, "WORLD_SIZE")?,
        local_rank: number(variable, "LOCAL_RANK")?,
        host: variable(HOST).map_or_else(|| text(variable, "MASTER_ADDR"), Ok)?,
        port,
        secret: variable(SECRET).unwrap_or_else(|| format!("torchrun {run}")),
    })
}

fn srun(variable: &impl Fn(&str) -> Option<String>) -> Result<Cluster, Error> {
    let (job, step) = (number(variable, "SLURM_JOB_ID")?, text(variable, "SLURM_STEP_ID")?);
    // The step may have fewer processes than the job was given.
    let tasks = ["SLURM_STEP_NUM_TASKS", "SLURM_NTASKS"].into_iter().find(|name| variable(name).is_some());
    // Rank 0 runs on the first node. srun itself may have been started elsewhere.
    let nodes = variable("SLURM_STEP_NODELIST").or_else(|| variable("SLURM_JOB_NODELIST"));
    let first = nodes.as_deref().and_then(first_host);
    let host = variable(HOST).or(first).or_else(|| variable("SLURM_LAUNCH_NODE_IPADDR"));
    let derived = 20_000 + u16::try_from(job % 20_000).expect("less than 20,000");
    Ok(Cluster {
        rank: number(variable, "SLURM_PROCID")?,
        ranks: number(variable, tasks.unwrap_or("SLURM_NTASKS"))?,
        local_rank: number(variable, "SLURM_LOCALID")?,
        host: host.ok_or_else(|| unusable("SLURM_JOB_NODELIST", "names no host"))?,
        port: wanted_port(variable)?.unwrap_or(derived),
        secret: variable(SECRET).unwrap_or_else(|| format!("slurm {job}.{step}")),
    })
}

/// The first host of a list such as `gpu[08-11,14],login1`.
fn first_host(list: &str) -> Option<String> {
    let (prefix, rest) = match list.find(['[', ',']) {
        Some(end) if list[end..].starts_with('[') => (&list[..end], &list[end + 1..]),
        Some(end) => return Some(list[..end].to_owned()),
        None => return (!list.is_empty()).then(|| list.to_owned()),
    };
    let (ranges, after) = rest.split_once(']')?;
    let first = ranges.split([',', '-']).next()?;
    let suffix = after.split(',').next()?;
    Some(format!("{prefix}{first}{suffix}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn launch(variables: &[(&str, &str)]) -> Result<ProcessRole, Error> {
        let find = |name: &str| variables.iter().find(|(n, _)| *n == name).map(|(_, v)| (*v).to_owned());
        ProcessRole::from_variables(find)
    }

    #[test]
    fn torchrun_is_recognised() {
        let mut variables = vec![
            ("RANK", "3"),
            ("WORLD_SIZE", "4"),
            ("LOCAL_RANK", "1"),
            ("MASTER_ADDR", "gpu7"),
            ("MASTER_PORT", "29500"),
            ("TORCHELASTIC_RUN_ID", "x"),
        ];
        let cluster = Cluster {
            rank: 3,
            ranks: 4,
            local_rank: 1,
            host: "gpu7".to_owned(),
            port: 29501,
            secret: "torchrun x".to_owned(),
        };
        assert_eq!(launch(&variables), Ok(ProcessRole::Agent(cluster)));
        variables.extend([("RANKCHECK_PORT", "7"), ("RANKCHECK_SECRET", "s")]);
        variables[0].1 = "0";
        let Ok(ProcessRole::Coordinator(cluster)) = launch(&variables) else { panic!("rank 0 coordinates") };
        assert_eq!((cluster.port, cluster.secret.as_str()), (7, "s"));
        variables[1].1 = "four";
        let wrong = launch(&variables).expect_err("no number");
        assert_eq!(wrong.to_string(), "the environment variable WORLD_SIZE is \"four\", which is no number");
    }

    #[test]
    fn srun_is_recognised() {
        let variables = [
            ("SLURM_PROCID", "0"),
            ("SLURM_LOCALID", "0"),
            ("SLURM_NTASKS", "8"),
            ("SLURM_STEP_NUM_TASKS", "2"),
            ("SLURM_STEP_ID", "0"),
            ("SLURM_JOB_ID", "1234567"),
            ("SLURM_JOB_NODELIST", "gpu[08-11,14],login1"),
            ("SLURM_LAUNCH_NODE_IPADDR", "10.0.0.1"),
        ];
        let cluster = Cluster {
            rank: 0,
            ranks: 2,
            local_rank: 0,
            host: "gpu08".to_owned(),
            port: 34567,
            secret: "slurm 1234567.0".to_owned(),
        };
        assert_eq!(launch(&variables), Ok(ProcessRole::Coordinator(cluster)));
        let batch: Vec<_> = variables.into_iter().filter(|(name, _)| *name != "SLURM_STEP_ID").collect();
        assert_eq!(launch(&batch), Ok(ProcessRole::Local));
    }

    #[test]
    fn one_process_is_local() {
        assert_eq!(launch(&[]), Ok(ProcessRole::Local));
    }

    #[test]
    fn the_first_host_of_a_list() {
        for (list, host) in
            [("a1,b[2-3]", "a1"), ("n[3]", "n3"), ("n[003-9]-ib,x", "n003-ib"), ("alone", "alone")]
        {
            assert_eq!(first_host(list).as_deref(), Some(host));
        }
        assert_eq!(first_host(""), None);
    }
}
