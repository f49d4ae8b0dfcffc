//! Where programs are, where servers listen, and the files they read.

use std::fs;
use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::failure::{Failure, Result, While};

/// Looks where a shell would, and where Debian puts servers.
pub(crate) fn find_program(name: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let folders = std::env::split_paths(&path);
    let folders = folders.chain(["/usr/sbin", "/usr/local/sbin"].map(PathBuf::from));
    let mut files = folders.map(|folder| folder.join(name));
    files.find(|file| file.is_file())
}

/// An address that nobody listens at now.
pub(crate) fn free_address() -> Result<SocketAddr> {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).during("looking for a free port")?;
    listener.local_addr().during("looking for a free port")
}

/// Writes a file from a template, with a value for each `@name@` in it.
pub(crate) fn write_template(path: &Path, template: &str, values: &[(&str, &str)]) -> Result<()> {
    let text = values
        .iter()
        .fold(template.to_owned(), |text, (name, value)| {
            text.replace(&format!("@{name}@"), value)
        });
    fs::write(path, text).during(path.display())
}

/// nginx's workers run as the user that the directory belongs to.
pub(crate) fn nginx_user() -> &'static str {
    if rustix::process::geteuid().is_root() {
        "user root;"
    } else {
        ""
    }
}

/// What a program calls its version: the first line that it prints.
pub(crate) fn version_of(program: &Path, flag: &str) -> String {
    let output = Command::new(program).arg(flag).output();
    let text = output.map(|output| [output.stdout, output.stderr].concat());
    let text = text.unwrap_or_default();
    let text = String::from_utf8_lossy(&text);
    text.lines().next().unwrap_or_default().trim().to_owned()
}

/// The version of a crate in the workspace's lock file.
pub(crate) fn locked_version(name: &str) -> &'static str {
    let lock = include_str!("../../Cargo.lock");
    let (_, entry) = lock
        .split_once(&format!("name = \"{name}\"\nversion = \""))
        .unwrap_or_default();
    entry.split('"').next().unwrap_or_default()
}

/// How this program's own parts are built.
#[derive(Debug)]
pub(crate) enum Part {
    Gateway,
    Hyper,
}

impl Part {
    /// The program, built anew if this runs under cargo: what is measured is what the tree says.
    pub(crate) fn program(&self) -> Result<PathBuf> {
        let own = std::env::current_exe().during("looking for this program")?;
        let target = own.ancestors().nth(2).unwrap_or(Path::new("target"));
        let (kind, name, package, folder) = match self {
            Self::Gateway => (
                "--example",
                "gateway",
                "pinpool-examples",
                "release/examples",
            ),
            Self::Hyper => ("--bin", "compare_hyper", "pinpool-benches", "release"),
        };
        if let (Some(cargo), Some(manifest)) = (
            std::env::var_os("CARGO"),
            std::env::var_os("CARGO_MANIFEST_DIR"),
        ) {
            eprintln!("building {name}");
            let status = Command::new(cargo)
                .args([
                    "build",
                    "--quiet",
                    "--release",
                    "--package",
                    package,
                    kind,
                    name,
                ])
                .arg("--target-dir")
                .arg(target)
                .current_dir(manifest)
                .status();
            if !status.during("starting cargo")?.success() {
                return Err(Failure::new(format!("{name} does not build")));
            }
        }
        let program = target.join(folder).join(name);
        if !program.is_file() {
            return Err(Failure::new(format!("there is no {}", program.display())));
        }
        Ok(program)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn programs_are_found_by_name() {
        assert!(find_program("sh").is_some());
        assert_eq!(find_program("a-program-that-nobody-has"), None);
    }

    #[test]
    fn templates_have_no_other_names_than_those_given() {
        for (template, names) in [
            (
                include_str!("templates/nginx.conf"),
                &["user", "dir", "listen", "upstream"][..],
            ),
            (
                include_str!("templates/origin.conf"),
                &["user", "dir", "listen"],
            ),
            (
                include_str!("templates/haproxy.cfg"),
                &["listen", "upstream"],
            ),
        ] {
            let mut left = template.to_owned();
            for name in names {
                assert!(left.contains(&format!("@{name}@")), "{name}");
                left = left.replace(&format!("@{name}@"), "");
            }
            let left = left.replace("@count", "");
            assert!(!left.contains('@'), "{left}");
        }
    }

    #[test]
    fn locked_versions_are_those_of_the_lock_file() {
        assert!(locked_version("hyper").starts_with("1."));
        assert_eq!(locked_version("a-crate-that-nobody-uses"), "");
    }
}
