//! The presets, one after another, so that the difference is seen.

use std::time::Duration;

use super::Backoff;
use super::policy::{RetryTable, Rule, Rules, Statuses};

/// Nothing is retried, by this and by nothing.
const NONE: RetryTable = RetryTable {
    name: "none",
    max_attempts: 1,
    rules: Rules::NEVER,
    statuses: Statuses::NONE,
    backoff: Backoff::NONE,
    max_retry_after: Duration::ZERO,
};

const DEFAULT: RetryTable = RetryTable {
    name: "default",
    max_attempts: 3,
    rules: Rules {
        connect_refused: Rule::Idempotent,
        connect_failed: Rule::Idempotent,
        connect_timeout: Rule::Idempotent,
        write_failed: Rule::Stale,
        write_timeout: Rule::Idempotent,
        closed_before_response: Rule::Stale,
        reset: Rule::Stale,
        head_timeout: Rule::Idempotent,
        attempt_timeout: Rule::Idempotent,
        ..Rules::NEVER
    },
    statuses: Statuses::of(&[429, 500, 502, 503, 504]),
    backoff: Backoff::DEFAULT,
    max_retry_after: Duration::from_secs(30),
};

const APACHE_4_3: RetryTable = RetryTable {
    name: "apache_4_3",
    max_attempts: 4,
    rules: Rules {
        connect_failed: Rule::NoEntityOrNotWhollySent,
        write_failed: Rule::NoEntityOrNotWhollySent,
        closed_before_response: Rule::NoEntityOrNotWhollySent,
        reset: Rule::NoEntityOrNotWhollySent,
        malformed_response: Rule::NoEntityOrNotWhollySent,
        ..Rules::NEVER
    },
    ..NONE
};

const APACHE_4_3_WITH_TIMEOUTS: RetryTable = RetryTable {
    name: "apache_4_3_with_timeouts",
    max_attempts: 4,
    rules: Rules {
        connect_timeout: Rule::Always,
        write_timeout: Rule::Always,
        closed_before_response: Rule::Always,
        head_timeout: Rule::Always,
        attempt_timeout: Rule::Always,
        connect_refused: Rule::NoEntity,
        connect_failed: Rule::NoEntity,
        write_failed: Rule::NoEntity,
        reset: Rule::NoEntity,
        malformed_response: Rule::NoEntity,
        ..Rules::NEVER
    },
    ..NONE
};

const JDK: RetryTable = RetryTable {
    name: "jdk",
    max_attempts: 5,
    rules: Rules {
        // A close that a write meets before a read does is the same event.
        write_failed: Rule::ExpiredGetOrHead,
        closed_before_response: Rule::ExpiredGetOrHead,
        reset: Rule::ExpiredGetOrHead,
        ..Rules::NEVER
    },
    ..NONE
};

const APACHE_ASYNC_4_1: RetryTable = RetryTable {
    name: "apache_async_4_1",
    max_attempts: 4,
    rules: Rules {
        acquire_timeout: Rule::Always,
        connect_timeout: Rule::Always,
        write_timeout: Rule::Always,
        closed_before_response: Rule::Always,
        head_timeout: Rule::Always,
        attempt_timeout: Rule::Always,
        unknown_host: Rule::GetOrHead,
        connect_refused: Rule::GetOrHead,
        connect_failed: Rule::GetOrHead,
        tls_failed: Rule::GetOrHead,
        write_failed: Rule::GetOrHead,
        reset: Rule::GetOrHead,
        malformed_response: Rule::GetOrHead,
    },
    ..NONE
};

impl Default for RetryTable {
    /// Ours, and strict: 3 attempts; what was never sent, what may be repeated, and the stale
    /// connection, once. Statuses 429, 500, 502, 503 and 504 for what may be repeated.
    fn default() -> Self {
        DEFAULT
    }
}

impl RetryTable {
    /// No retry at all, not even after a stale connection.
    #[must_use]
    pub const fn none() -> Self {
        NONE
    }

    /// What the default handler of Apache HttpClient 4.3 decides: 3 retries without a pause, never
    /// after a timeout, an unknown host, a refused connection or a TLS failure; otherwise requests
    /// without an entity, and those that had not left as a whole.
    ///
    /// Any method but GET, HEAD, DELETE, OPTIONS and TRACE counts as carrying an entity there, even
    /// without a body.
    #[must_use]
    pub const fn apache_4_3() -> Self {
        APACHE_4_3
    }

    /// The same with timeouts retried: no response, a connect timeout or a read timeout whatever
    /// the request, **even one that must not be repeated**; otherwise requests without an entity.
    ///
    /// An acquire timeout is an interruption there, and never retried.
    #[must_use]
    pub const fn apache_4_3_with_timeouts() -> Self {
        APACHE_4_3_WITH_TIMEOUTS
    }

    /// What the HttpClient of the JDK decides: 5 attempts in all; GET and HEAD once where a reused
    /// connection had expired, nothing else.
    #[must_use]
    pub const fn jdk() -> Self {
        JDK
    }

    /// The same with its switches.
    #[must_use]
    pub const fn jdk_with(switches: JdkSwitches) -> Self {
        let mut table = JDK;
        if switches.all_methods {
            table.rules.write_failed = Rule::Expired;
            table.rules.closed_before_response = Rule::Expired;
            table.rules.reset = Rule::Expired;
        }
        if switches.retry_connect {
            table.rules.connect_refused = Rule::Once;
            table.rules.connect_failed = Rule::Once;
        }
        table
    }

    /// What Apache HttpAsyncClient 4.1 decides with a classifier of timeouts: 3 retries; always
    /// after a connect, acquire or read timeout and where the connection closed without a response;
    /// otherwise GET and HEAD.
    ///
    /// **A retried acquire timeout feeds the overload that it came from**: each request that found
    /// no connection asks for one again, behind all the others. Bound it by a budget.
    #[must_use]
    pub const fn apache_async_4_1() -> Self {
        APACHE_ASYNC_4_1
    }
}

/// What can be switched on in the HttpClient of the JDK, by system properties.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct JdkSwitches {
    /// Any method where GET and HEAD are retried. **A request that must not be repeated may be.**
    pub all_methods: bool,
    /// A connect that was refused or failed is retried, once.
    pub retry_connect: bool,
}
