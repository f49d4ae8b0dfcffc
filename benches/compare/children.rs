//! Child processes that do not outlive the comparison.

use std::fs::{self, File};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{self, Command, ExitStatus, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process_group};
use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};

use crate::failure::{Failure, Result, Stop, While};

/// How often a condition is looked at.
pub(crate) const LOOK: Duration = Duration::from_millis(20);

/// How long a child that was told to end may take before it is killed.
const GRACE: Duration = Duration::from_secs(3);

/// A child in a process group of its own; dropped, it ends, with all its descendants.
#[derive(Debug)]
pub(crate) struct Child {
    name: String,
    child: process::Child,
    output: PathBuf,
    ended: Option<ExitStatus>,
}

impl Child {
    /// Starts a program pinned to a CPU. What it prints goes to a file.
    pub(crate) fn start(
        name: &str,
        command: &mut Command,
        cpu: usize,
        output: PathBuf,
    ) -> Result<Self> {
        let what = format!("{name}: starting {}", command.get_program().display());
        let file = File::create(&output).during(&what)?;
        command
            .stdin(Stdio::null())
            .stderr(file.try_clone().during(&what)?)
            .stdout(file)
            // Ctrl-C is for this process alone, which ends the others in order.
            .process_group(0);
        let child = pinned(cpu, || command.spawn()).during(&what)?;
        Ok(Self {
            name: name.to_owned(),
            child: child.during(&what)?,
            output,
            ended: None,
        })
    }

    pub(crate) fn id(&self) -> u32 {
        self.child.id()
    }

    /// What it has printed so far.
    pub(crate) fn output(&self) -> String {
        let bytes = fs::read(&self.output).unwrap_or_default();
        String::from_utf8_lossy(&bytes).into_owned()
    }

    /// How it ended, if it has.
    pub(crate) fn ended(&mut self) -> Result<Option<ExitStatus>> {
        if self.ended.is_none() {
            self.ended = self.child.try_wait().during(&self.name)?;
        }
        Ok(self.ended)
    }

    /// Fails if it has ended, with what it said last.
    pub(crate) fn check_alive(&mut self) -> Result<()> {
        let Some(status) = self.ended()? else {
            return Ok(());
        };
        let output = self.output();
        let last: Vec<&str> = output.lines().rev().take(5).collect();
        let last: String = last
            .iter()
            .rev()
            .map(|line| format!("\n  {line}"))
            .collect();
        Err(Failure::new(format!("{} ended: {status}{last}", self.name)))
    }

    /// Waits for its end.
    pub(crate) fn wait(&mut self, longest: Duration, stop: &Stop) -> Result<ExitStatus> {
        let what = format!("{} to end", self.name);
        wait_for(&what, longest, stop, || self.ended())
    }

    /// Tells the group to end, and kills what does not.
    pub(crate) fn end(&mut self) {
        if self.ended().ok().flatten().is_none() {
            self.signal(Signal::TERM);
            let since = Instant::now();
            while self.ended().ok().flatten().is_none() && since.elapsed() < GRACE {
                thread::sleep(LOOK);
            }
        }
        // Also after its own end: descendants may be left in the group.
        self.signal(Signal::KILL);
        let _ = self.child.wait();
    }

    fn signal(&self, signal: Signal) {
        // It fails only if there is none left to be told.
        let group = i32::try_from(self.child.id()).ok().and_then(Pid::from_raw);
        let _ = group.map(|group| kill_process_group(group, signal));
    }
}

impl Drop for Child {
    fn drop(&mut self) {
        self.end();
    }
}

/// Waits until `look` has something, with a deadline.
pub(crate) fn wait_for<T>(
    what: &str,
    longest: Duration,
    stop: &Stop,
    mut look: impl FnMut() -> Result<Option<T>>,
) -> Result<T> {
    let since = Instant::now();
    loop {
        if let Some(found) = look()? {
            return Ok(found);
        }
        stop.check()?;
        if since.elapsed() > longest {
            return Err(Failure::new(format!("waited {longest:?} for {what}")));
        }
        thread::sleep(LOOK);
    }
}

/// Pins this thread to a CPU, and with it what it starts from now on.
pub(crate) fn pin(cpu: usize) -> Result<()> {
    let mut cpus = CpuSet::new();
    cpus.set(cpu);
    sched_setaffinity(None, &cpus).during(format!("pinning to CPU {cpu}"))
}

/// Does something on a CPU: a child inherits it, which needs no code between fork and exec.
fn pinned<T>(cpu: usize, action: impl FnOnce() -> T) -> Result<T> {
    let before = sched_getaffinity(None).during("asking for the CPUs")?;
    pin(cpu)?;
    let done = action();
    sched_setaffinity(None, &before).during("going back to the CPUs of before")?;
    Ok(done)
}

/// A directory that is removed with all that is in it.
#[derive(Debug)]
pub(crate) struct Scratch(PathBuf);

impl Scratch {
    pub(crate) fn new() -> Result<Self> {
        let path = std::env::temp_dir().join(format!("pinpool-compare-{}", process::id()));
        let scratch = fs::create_dir(&path).map(|()| Self(path.clone()));
        scratch.during(format!("creating {}", path.display()))
    }

    pub(crate) fn path(&self) -> &Path {
        &self.0
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        if let Err(error) = fs::remove_dir_all(&self.0) {
            eprintln!("compare: {} is left: {error}", self.0.display());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shell(scratch: &Scratch, name: &str, script: &str) -> Child {
        let cpu = pool_core::allowed_cpus().unwrap()[0];
        let mut command = Command::new("sh");
        command.args(["-c", script]);
        Child::start(name, &mut command, cpu, scratch.path().join(name)).unwrap()
    }

    // One test, as the directory is this process's.
    #[test]
    fn children_and_directory_are_gone_after_their_guards() {
        let scratch = Scratch::new().unwrap();
        let stop = Stop::default();
        let long = Duration::from_secs(60);

        let mut quick = shell(&scratch, "quick", "echo said; exit 3");
        assert_eq!(quick.wait(long, &stop).unwrap().code(), Some(3));
        let error = quick.check_alive().unwrap_err().to_string();
        assert!(
            error.contains("exit status: 3") && error.ends_with("\n  said"),
            "{error}"
        );

        let mut parent = shell(&scratch, "parent", "sleep 1000 & echo $!; wait");
        let grandchild = wait_for("its child", long, &stop, || {
            Ok(parent.output().trim().parse::<u32>().ok())
        });
        let grandchild = PathBuf::from(format!("/proc/{}", grandchild.unwrap()));
        assert!(grandchild.exists());
        parent.check_alive().unwrap();
        let late = parent.wait(Duration::ZERO, &stop).unwrap_err();
        assert!(late.to_string().contains("for parent to end"), "{late}");
        stop.request();
        let interrupted = parent.wait(long, &stop).unwrap_err();
        assert!(matches!(interrupted, Failure::Interrupted));
        drop(parent);
        let gone = wait_for("its end", long, &Stop::default(), || {
            let state = fs::read_to_string(grandchild.join("stat")).unwrap_or_default();
            Ok((state.is_empty() || state.contains(") Z ")).then_some(()))
        });
        gone.unwrap();

        let path = scratch.path().to_owned();
        drop(quick);
        drop(scratch);
        assert!(!path.exists());
    }
}
