//! What the proxies stand in front of: nginx, or this workspace's origin where there is none.

use std::fs;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};
use std::thread;

use crate::cases::Case;
use crate::check::check;
use crate::children::{Child, wait_for};
use crate::failure::{Result, Stop, While};
use crate::places::{free_address, nginx_user, version_of, write_template};
use crate::proxies::READY;

#[derive(Debug)]
pub(crate) struct Origin {
    pub address: SocketAddr,
    /// What it is, for the report.
    pub name: String,
    child: Child,
}

impl Origin {
    /// Starts it on a CPU, and checks its answer to each case.
    pub(crate) fn start(
        nginx: Option<&Path>,
        directory: &Path,
        cpu: usize,
        cases: &[Case],
        stop: &Stop,
    ) -> Result<Self> {
        let address = free_address()?;
        let directory = directory.join("origin");
        fs::create_dir(&directory).during(directory.display())?;
        let (name, mut command) = match nginx {
            Some(nginx) => (
                version_of(nginx, "-v"),
                nginx_command(nginx, &directory, address)?,
            ),
            None => {
                let own = std::env::current_exe().during("looking for this program")?;
                let mut command = Command::new(own);
                command.args(["--serve-origin", &address.to_string()]);
                ("pinpool's origin".to_owned(), command)
            }
        };
        let child = Child::start("origin", &mut command, cpu, directory.join("output"))?;
        let mut origin = Self {
            address,
            name,
            child,
        };
        for case in cases {
            wait_for("the origin to answer as it should", READY, stop, || {
                origin.child.check_alive()?;
                Ok(check(address, case).ok())
            })?;
        }
        Ok(origin)
    }

    pub(crate) fn check_alive(&mut self) -> Result<()> {
        self.child.check_alive()
    }
}

fn nginx_command(nginx: &Path, directory: &Path, address: SocketAddr) -> Result<Command> {
    let files = directory.join("files");
    let write = |name: &str, bytes: Vec<u8>| {
        let path: PathBuf = files.join(name);
        fs::write(&path, bytes).during(path.display())
    };
    fs::create_dir_all(files.join("bytes")).during(files.display())?;
    for case in Case::chosen(&[]) {
        if let Some(length) = case.path.strip_prefix("/bytes/") {
            write(&format!("bytes/{length}"), case.response_body())?;
        }
    }
    write("count", Vec::new())?;
    let config = directory.join("nginx.conf");
    let values = [
        ("user", nginx_user()),
        ("dir", &directory.display().to_string()),
        ("listen", &address.to_string()),
    ];
    write_template(&config, include_str!("templates/origin.conf"), &values)?;
    let mut command = Command::new(nginx);
    command.arg("-p").arg(directory).arg("-c").arg(config);
    command.arg("-e").arg(directory.join("error.log"));
    Ok(command)
}

/// Serves this workspace's origin until the process is ended.
pub(crate) fn serve_own(address: SocketAddr) -> ExitCode {
    match pinpool_examples::origin::start(address) {
        Ok(_service) => loop {
            thread::park();
        },
        Err(error) => {
            eprintln!("compare: {error}");
            ExitCode::FAILURE
        }
    }
}
