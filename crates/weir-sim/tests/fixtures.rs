//! Stores that earlier versions wrote open for ever: nothing in `fixtures` is changed or removed.

use weir_sim::fixtures::check;

/// The packed store and its listing.
macro_rules! fixture {
    ($name:literal) => {
        (
            include_bytes!(concat!("../fixtures/", $name, ".store")).as_slice(),
            include_str!(concat!("../fixtures/", $name, ".txt")),
        )
    };
}

fn opens(name: &str, (packed, listing): (&[u8], &str)) {
    check(packed, listing).unwrap_or_else(|why| panic!("{name}: {why}"));
}

/// Goal: a store that was created and closed.
#[test]
fn new_store() {
    opens("new", fixture!("0.1.0/new"));
}

/// Goal: a tree of every policy, with and without compression, closed in good order.
#[test]
fn policies() {
    opens("policies", fixture!("0.1.0/policies"));
}

/// Goal: a store whose process was killed; the log has fragments, extremes and a dropped keyspace.
#[test]
fn killed() {
    opens("killed", fixture!("0.1.0/killed"));
}

/// Goal: the same after a power loss.
#[test]
fn power_loss() {
    opens("power-loss", fixture!("0.1.0/power-loss"));
}

/// Goal: what Zstandard compressed is read by a build that has it, and refused by name by others.
#[test]
fn zstd() {
    let (packed, listing) = fixture!("0.1.0/zstd");
    let checked = check(packed, listing);
    if cfg!(feature = "zstd") {
        checked.unwrap_or_else(|why| panic!("{why}"));
    } else {
        let refusal = checked.expect_err("it cannot be read");
        assert!(refusal.contains("the cargo feature `zstd`"), "{refusal}");
    }
}
