//! What times that nobody waits for any more leave behind.

use std::pin::pin;
use std::time::Duration;

use futures_lite::future::{pending, poll_once};

use crate::Core;

/// Fault row G12: a future that is dropped after a poll leaves its timer.
#[test]
fn sleeps_and_time_limits_that_are_dropped_leave_no_timer() {
    let main = |core: Core| async move {
        for _ in 0..1000 {
            let mut sleep = pin!(core.sleep(Duration::from_secs(3600)));
            assert!(poll_once(&mut sleep).await.is_none());
            sleep.restart(Duration::from_secs(7200));
            let mut limited = pin!(core.timeout(Duration::from_secs(3600), pending::<()>()));
            assert!(poll_once(&mut limited).await.is_none());
            assert_eq!(core.sleeps().len(), 2);
        }
        assert_eq!(core.sleeps().len(), 0);
        assert_eq!(core.sleeps().next_deadline(), None);
        assert!(
            core.timeout(Duration::from_secs(3600), async {})
                .await
                .is_ok(),
            "it is done"
        );
        assert_eq!(core.sleeps().len(), 0);
    };
    Core::builder().run(main).unwrap();
}
