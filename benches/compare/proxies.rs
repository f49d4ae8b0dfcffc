//! The proxies: how each is found, told what to do, and started.

use std::fs;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use clap::ValueEnum;

use crate::cases::Case;
use crate::check::check;
use crate::children::{Child, wait_for};
use crate::failure::{Failure, Result, Stop, While};
use crate::places::{
    Part, find_program, free_address, locked_version, nginx_user, version_of, write_template,
};
use crate::processes::family;
use crate::settings::Settings;

/// How long a server may take until it serves.
pub(crate) const READY: Duration = Duration::from_secs(20);

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Kind {
    Gateway,
    Nginx,
    #[value(name = "haproxy")]
    HAProxy,
    Hyper,
}

impl Kind {
    /// The name as on the command line.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Gateway => "gateway",
            Self::Nginx => "nginx",
            Self::HAProxy => "haproxy",
            Self::Hyper => "hyper",
        }
    }

    /// Its program and version.
    pub(crate) fn find(self, settings: &Settings) -> Result<(PathBuf, String)> {
        let installed = |flag| {
            let missing = || Failure::new("not installed");
            let program = find_program(self.name()).ok_or_else(missing)?;
            let version = version_of(&program, flag);
            Ok((program, version))
        };
        match self {
            Self::Gateway => {
                let program = match &settings.gateway {
                    // Relative to where the user is, not to where it is started.
                    Some(path) => fs::canonicalize(path).during(path.display())?,
                    None => Part::Gateway.program()?,
                };
                Ok((program, format!("pinpool {}", env!("CARGO_PKG_VERSION"))))
            }
            Self::Nginx => installed("-v"),
            Self::HAProxy => installed("-v"),
            Self::Hyper => {
                let (hyper, util) = (locked_version("hyper"), locked_version("hyper-util"));
                let version = format!("hyper {hyper}, hyper-util {util}");
                Ok((Part::Hyper.program()?, version))
            }
        }
    }

    /// How it is started, with one worker; its files are in a directory of its own.
    fn command(
        self,
        program: &Path,
        directory: &Path,
        listen: SocketAddr,
        upstream: SocketAddr,
    ) -> Result<Command> {
        let (listen, upstream) = (listen.to_string(), upstream.to_string());
        let mut command = Command::new(program);
        match self {
            Self::Gateway => {
                command
                    .args(["--listen", &listen, "--cores", "1"])
                    .args(["--admin", &free_address()?.to_string()])
                    .args(["--upstream", &format!("http://{upstream}")]);
            }
            Self::Nginx => {
                let config = directory.join("nginx.conf");
                let values = [
                    ("user", nginx_user()),
                    ("dir", &directory.display().to_string()),
                    ("listen", &listen),
                    ("upstream", &upstream),
                ];
                write_template(&config, include_str!("templates/nginx.conf"), &values)?;
                command.arg("-p").arg(directory).arg("-c").arg(config);
                command.arg("-e").arg(directory.join("error.log"));
            }
            Self::HAProxy => {
                let config = directory.join("haproxy.cfg");
                let values = [("listen", listen.as_str()), ("upstream", &upstream)];
                write_template(&config, include_str!("templates/haproxy.cfg"), &values)?;
                command.arg("-db").arg("-f").arg(config);
            }
            Self::Hyper => {
                command.args([&listen, &upstream]);
            }
        }
        Ok(command)
    }
}

/// A proxy that serves.
#[derive(Debug)]
pub(crate) struct Proxy {
    pub kind: Kind,
    pub version: String,
    pub address: SocketAddr,
    /// Its processes.
    pub pids: Vec<u32>,
    child: Child,
}

impl Proxy {
    /// Starts it on a CPU, and waits until it answers.
    pub(crate) fn start(
        kind: Kind,
        (program, version): (PathBuf, String),
        directory: &Path,
        upstream: SocketAddr,
        cpu: usize,
        stop: &Stop,
    ) -> Result<Self> {
        let directory = directory.join(kind.name());
        fs::create_dir(&directory).during(directory.display())?;
        let address = free_address()?;
        let mut command = kind.command(&program, &directory, address, upstream)?;
        let output = directory.join("output");
        let mut child = Child::start(kind.name(), &mut command, cpu, output)?;
        let any = Case::chosen(&[])[0];
        let serves = format!("{} to serve", kind.name());
        wait_for(&serves, READY, stop, || {
            child.check_alive()?;
            Ok(check(address, &any).ok())
        })?;
        let pids = family(child.id())?;
        Ok(Self {
            kind,
            version,
            address,
            pids,
            child,
        })
    }

    pub(crate) fn check_alive(&mut self) -> Result<()> {
        self.child.check_alive()
    }
}
