use super::*;

fn refusal(builder: BreakerConfigBuilder) -> String {
    builder.build().unwrap_err().to_string()
}

#[test]
fn bad_values_are_refused_by_name() {
    let build = BreakerConfig::builder;
    let second = Duration::from_secs(1);
    assert_eq!(
        refusal(build().consecutive_failures(0)),
        "consecutive_failures is 0, expected at least 1"
    );
    assert_eq!(
        refusal(build().min_requests(0)),
        "min_requests is 0, expected at least 1"
    );
    assert_eq!(
        refusal(build().probes_to_close(0)),
        "probes_to_close is 0, expected at least 1"
    );
    for (probes, given) in [(0, "0"), (1001, "1001")] {
        assert_eq!(
            refusal(build().probes(probes)),
            format!("probes is {given}, expected 1 to 1000")
        );
    }
    for rate in [0.0, -0.5, 1.000_001, 0.000_000_9, f64::NAN, f64::INFINITY] {
        assert_eq!(
            refusal(build().failure_rate(rate)),
            format!("failure_rate is {rate}, expected 0.000001 to 1, or none")
        );
    }
    for window in [Duration::ZERO, millis(999), second * 3601] {
        assert_eq!(
            refusal(build().window(window)),
            format!("window is {window:?}, expected 1 s to 1 h")
        );
    }
    for open_for in [Duration::ZERO, Duration::from_nanos(999_999), second * 31] {
        assert_eq!(
            refusal(build().open_for(open_for)),
            format!("open_for is {open_for:?}, expected 1 ms to max_open_for, 30s")
        );
    }
    for (field, time) in [
        ("max_open_for", Duration::ZERO),
        ("max_open_for", Duration::MAX),
        ("probe_timeout", Duration::ZERO),
        ("probe_timeout", second * 86_401),
    ] {
        let builder = match field {
            "max_open_for" => build().max_open_for(time),
            _ => build().probe_timeout(time),
        };
        assert_eq!(
            refusal(builder),
            format!("{field} is {time:?}, expected 1 ms to 24 h")
        );
    }
}

#[test]
fn the_ends_of_every_range_are_allowed() {
    let day = Duration::from_secs(86_400);
    let least = BreakerConfig::builder()
        .consecutive_failures(1)
        .failure_rate(0.000_001)
        .window(Duration::from_secs(1))
        .min_requests(1)
        .open_for(millis(1))
        .max_open_for(millis(1))
        .probes(1)
        .probes_to_close(1)
        .probe_timeout(millis(1));
    assert!(least.build().is_ok());
    let most = BreakerConfig::builder()
        .consecutive_failures(u32::MAX)
        .failure_rate(1.0)
        .window(Duration::from_secs(3600))
        .min_requests(u32::MAX)
        .open_for(day)
        .max_open_for(day)
        .probes(1000)
        .probes_to_close(u32::MAX)
        .probe_timeout(day);
    assert!(most.build().is_ok());
}

#[test]
fn values_are_held_as_given_and_the_defaults_are_those_of_the_table() {
    let config = BreakerConfig::builder()
        .consecutive_failures(None)
        .failure_rate(0.6)
        .build()
        .unwrap();
    assert_eq!(config.consecutive_failures(), None);
    assert_eq!(config.failure_rate(), Some(0.6));
    let config = BreakerConfig::builder().failure_rate(None).build().unwrap();
    assert_eq!(config.failure_rate(), None);

    let config = BreakerConfig::default();
    assert_eq!(config, BreakerConfig::builder().build().unwrap());
    assert_eq!(config.consecutive_failures(), Some(5));
    assert_eq!(config.failure_rate(), Some(0.5));
    assert_eq!(config.window(), Duration::from_secs(10));
    assert_eq!(config.min_requests(), 20);
    assert_eq!(config.open_for(), Duration::from_secs(1));
    assert_eq!(config.max_open_for(), Duration::from_secs(30));
    assert_eq!(config.probes(), 1);
    assert_eq!(config.probes_to_close(), 1);
    assert_eq!(config.probe_timeout(), Duration::from_secs(10));
}
