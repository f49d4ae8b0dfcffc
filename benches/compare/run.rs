//! The comparison from beginning to end.

use std::path::{Path, PathBuf};

use clap::ValueEnum;

use crate::cases::Case;
use crate::check::check;
use crate::children::{Scratch, pin};
use crate::failure::{Failure, Result, Stop, While};
use crate::html;
use crate::machine::Machine;
use crate::origin::Origin;
use crate::places::find_program;
use crate::processes::CpuTime;
use crate::proxies::{Kind, Proxy};
use crate::report::{CaseReport, Figures, Named, Report};
use crate::settings::Settings;
use crate::strace::calls_per_request;
use crate::table;
use crate::wrk::Wrk;

/// Whether all went well; what did not is in the report and on the standard error.
pub(crate) fn run(settings: &Settings) -> Result<bool> {
    let stop = Stop::on_signals().during("watching for signals")?;
    let missing = || Failure::new("there is no wrk: apt-get install wrk");
    let wrk = find_program("wrk").ok_or_else(missing)?;
    let cpus = pool_core::allowed_cpus().during("asking for the CPUs")?;
    let (Some(&proxy_cpu), Some(&load_cpu)) = (cpus.first(), cpus.last()) else {
        return Err(Failure::new("there is no CPU to run on"));
    };
    let (found, skipped) = find(settings)?;
    stop.check()?;
    // Before this thread is pinned, and counts one CPU only.
    let machine = Machine::here();
    let _ = pinpool_benches::raise_descriptor_limit();
    // This program looks after children meanwhile: not on the CPU that is measured.
    pin(load_cpu)?;
    // From here on everything that is started or written has a guard, and is dropped in the reverse
    // order: the directory last.
    let scratch = Scratch::new()?;
    let cases = Case::chosen(&settings.cases);
    let nginx = find_program("nginx");
    let origin = Origin::start(nginx.as_deref(), scratch.path(), load_cpu, &cases, &stop)?;
    let mut proxies = Vec::new();
    for (kind, program) in found {
        let upstream = origin.address;
        let proxy = Proxy::start(kind, program, scratch.path(), upstream, proxy_cpu, &stop)?;
        proxies.push(proxy);
    }
    let named = |proxy: &Proxy| Named {
        name: proxy.kind.name().to_owned(),
        about: proxy.version.clone(),
    };
    let report = Report {
        machine,
        rounds: settings.rounds,
        seconds: settings.seconds,
        proxy_cpu,
        load_cpu,
        origin: origin.name.clone(),
        proxies: proxies.iter().map(named).collect(),
        skipped,
        cases: Vec::new(),
        errors: Vec::new(),
    };
    print!("{}", table::head(&report));
    let mut comparison = Comparison {
        settings,
        wrk: Wrk {
            program: &wrk,
            directory: scratch.path(),
            cpu: load_cpu,
            stop: &stop,
        },
        strace: find_program("strace").filter(|_| !settings.no_strace),
        origin,
        proxies,
        report,
    };
    for case in &cases {
        comparison.measure(case)?;
    }
    comparison.finish()
}

type Found = Vec<(Kind, (PathBuf, String))>;

/// The proxies that are there, and those that are not.
fn find(settings: &Settings) -> Result<(Found, Vec<Named>)> {
    let (mut found, mut skipped) = (Vec::new(), Vec::new());
    for kind in Kind::value_variants() {
        if !settings.proxies.is_empty() && !settings.proxies.contains(kind) {
            continue;
        }
        match kind.find(settings) {
            Ok(program) => found.push((*kind, program)),
            Err(failure) => skipped.push(Named {
                name: kind.name().to_owned(),
                about: failure.to_string(),
            }),
        }
    }
    if found.is_empty() {
        return Err(Failure::new("none of the proxies is there"));
    }
    Ok((found, skipped))
}

struct Comparison<'a> {
    settings: &'a Settings,
    wrk: Wrk<'a>,
    strace: Option<PathBuf>,
    origin: Origin,
    proxies: Vec<Proxy>,
    report: Report,
}

impl Comparison<'_> {
    fn measure(&mut self, case: &Case) -> Result<()> {
        let names = self
            .proxies
            .iter()
            .map(|proxy| proxy.kind.name().to_owned());
        let mut measured = CaseReport::new(case, names);
        let mut answers = Vec::new();
        for index in 0..self.proxies.len() {
            let checked = check(self.proxies[index].address, case);
            answers.push(checked.is_ok());
            if let Err(failure) = checked {
                self.error(index, case, &failure.to_string());
            }
        }
        let right = |index: &usize| answers[*index];
        for round in 0..self.settings.rounds as usize {
            for place in 0..self.proxies.len() {
                // Each is the first in some round: whoever follows an idle CPU is not always the same.
                let index = (place + round) % self.proxies.len();
                if right(&index) {
                    let figures = self.measure_once(index, case)?;
                    measured.rows[index].rounds.push(figures);
                }
            }
        }
        if let Some(strace) = self.strace.clone() {
            for index in (0..self.proxies.len()).filter(right) {
                let calls = self.count_calls(&strace, index, case)?;
                measured.rows[index].syscalls_per_request = calls;
            }
        }
        measured.conclude();
        print!("{}", table::case(&measured));
        self.report.cases.push(measured);
        Ok(())
    }

    fn measure_once(&mut self, index: usize, case: &Case) -> Result<Figures> {
        let before = CpuTime::of(&self.proxies[index].pids)?;
        let address = self.proxies[index].address;
        let load = self.wrk.run(address, case, self.settings.seconds)?;
        self.origin.check_alive()?;
        self.proxies[index].check_alive()?;
        let used = CpuTime::of(&self.proxies[index].pids)?.since(before);
        for error in &load.errors {
            self.error(index, case, error);
        }
        Ok(Figures::of(&load, used))
    }

    /// Without a count where strace may not look: that is no error of a proxy.
    fn count_calls(&mut self, strace: &Path, index: usize, case: &Case) -> Result<Option<f64>> {
        let proxy = &mut self.proxies[index];
        let calls = calls_per_request(strace, &self.wrk, proxy.address, &proxy.pids, case);
        proxy.check_alive()?;
        match calls {
            Ok(calls) => Ok(Some(calls)),
            Err(Failure::Interrupted) => Err(Failure::Interrupted),
            Err(failure) => {
                eprintln!("system calls are not counted: {failure}");
                self.strace = None;
                Ok(None)
            }
        }
    }

    fn error(&mut self, index: usize, case: &Case, what: &str) {
        let proxy = self.proxies[index].kind.name();
        let error = format!("{proxy}, {}: {what}", case.title);
        eprintln!("error: {error}");
        self.report.errors.push(error);
    }

    fn finish(self) -> Result<bool> {
        if let Some(path) = &self.settings.json {
            let text = serde_json::to_string_pretty(&self.report).during("writing JSON")?;
            std::fs::write(path, text + "\n").during(path.display())?;
        }
        if let Some(path) = &self.settings.html {
            std::fs::write(path, html::page(&self.report)).during(path.display())?;
        }
        if !self.report.errors.is_empty() {
            eprintln!(
                "\n{} errors; the figures beside them do not count:",
                self.report.errors.len()
            );
            for error in &self.report.errors {
                eprintln!("  {error}");
            }
        }
        Ok(self.report.errors.is_empty())
    }
}
