//! What is asked of each proxy, and what is aimed at.

use clap::ValueEnum;
use serde::Serialize;

const KIB: usize = 1 << 10;

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum CaseName {
    #[value(name = "1k-1")]
    Small1,
    #[value(name = "1k-64")]
    Small64,
    #[value(name = "1k-512")]
    Small512,
    #[value(name = "64k-64")]
    Large,
    Post,
    Chunked,
}

/// How the response says where it ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Framing {
    Length,
    Chunked,
}

/// What the gateway's CPU time per request is to stay below, as ratios.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub(crate) struct Aims {
    pub to_nginx: f64,
    pub to_best_peer: f64,
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Case {
    pub id: CaseName,
    pub title: &'static str,
    pub path: &'static str,
    pub connections: u32,
    /// The bytes of the request's body; 0 is a GET.
    pub posted: usize,
    pub framing: Framing,
    pub aims: Aims,
}

impl Case {
    /// Every case that was asked for; all of them if none was.
    pub(crate) fn chosen(names: &[CaseName]) -> Vec<Self> {
        let all = CaseName::value_variants().iter().map(|name| name.case());
        all.filter(|case| names.is_empty() || names.contains(&case.id))
            .collect()
    }

    /// The name as on the command line.
    pub(crate) fn name(&self) -> String {
        let value = self.id.to_possible_value();
        value.map_or_else(String::new, |value| value.get_name().to_owned())
    }

    pub(crate) fn request_body(&self) -> Vec<u8> {
        vec![b'x'; self.posted]
    }

    pub(crate) fn response_body(&self) -> Vec<u8> {
        match self.id {
            CaseName::Small1 | CaseName::Small64 | CaseName::Small512 => vec![b'x'; KIB],
            CaseName::Large | CaseName::Chunked => vec![b'x'; 64 * KIB],
            CaseName::Post => format!("{}\n", self.posted).into_bytes(),
        }
    }
}

impl CaseName {
    fn case(self) -> Case {
        let (title, path, connections, to_nginx, to_best_peer) = match self {
            Self::Small1 => ("1 KiB, 1 connection", "/bytes/1024", 1, 1.0, 1.05),
            Self::Small64 => ("1 KiB, 64 connections", "/bytes/1024", 64, 0.75, 0.9),
            Self::Small512 => ("1 KiB, 512 connections", "/bytes/1024", 512, 0.75, 0.9),
            Self::Large => ("64 KiB, 64 connections", "/bytes/65536", 64, 0.8, 0.9),
            Self::Post => ("POST 16 KiB, 64 connections", "/count", 64, 0.9, 1.0),
            Self::Chunked => (
                "chunked 64 KiB, 64 connections",
                "/chunked/65536",
                64,
                0.9,
                1.0,
            ),
        };
        Case {
            id: self,
            title,
            path,
            connections,
            posted: if self == Self::Post { 16 * KIB } else { 0 },
            framing: if self == Self::Chunked {
                Framing::Chunked
            } else {
                Framing::Length
            },
            aims: Aims {
                to_nginx,
                to_best_peer,
            },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_cases_are_chosen_unless_some_are_named() {
        let names = |cases: Vec<Case>| cases.iter().map(Case::name).collect::<Vec<_>>();
        assert_eq!(
            names(Case::chosen(&[])),
            ["1k-1", "1k-64", "1k-512", "64k-64", "post", "chunked"]
        );
        let chosen = Case::chosen(&[CaseName::Chunked, CaseName::Small64]);
        assert_eq!(names(chosen), ["1k-64", "chunked"]);
    }

    #[test]
    fn bodies_have_the_length_that_the_path_asks_for() {
        for case in Case::chosen(&[]).iter().filter(|case| case.posted == 0) {
            let (_, length) = case.path.rsplit_once('/').unwrap();
            assert_eq!(
                case.response_body().len().to_string(),
                length,
                "{}",
                case.title
            );
        }
    }
}
