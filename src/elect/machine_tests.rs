use super::machine::{Action, Machine, Record};
use jiff::{SignedDuration, Timestamp};
use std::time::Duration;
use tokio::time::Instant;

const LEASE: Duration = Duration::from_secs(15);

fn wall(seconds: i64) -> Timestamp {
    Timestamp::UNIX_EPOCH + SignedDuration::from_secs(1_800_000_000 + seconds)
}

fn held(holder: &str, renewed: i64) -> Record {
    Record {
        holder: holder.to_owned(),
        lease_seconds: 15,
        acquired: Some(wall(0)),
        renewed: Some(wall(renewed)),
        transitions: 4,
    }
}

fn after(start: Instant, seconds: f64) -> Instant {
    start + Duration::from_secs_f64(seconds)
}

/// What a candidate `me` does, seen at 0 s, asked at the given second.
#[test]
fn decisions() {
    let start = Instant::now();
    let mine = |acquired, renewed, transitions| Record {
        holder: "me".to_owned(),
        acquired: Some(acquired),
        renewed: Some(renewed),
        lease_seconds: 15,
        transitions,
    };
    let taken = |transitions| Action::Update(mine(wall(100), wall(100), transitions));
    let wait = |seconds| Action::Wait(after(start, seconds));
    let with = |change: fn(&mut Record)| {
        let mut record = held("other", 0);
        change(&mut record);
        Some(record)
    };
    let cases: Vec<(&str, Option<Record>, f64, Action)> = vec![
        ("nothing there: created", None, 0.0, Action::Create(mine(wall(100), wall(100), 0))),
        ("held: wait for its end", Some(held("other", 0)), 0.0, wait(15.0)),
        ("held, a moment before its end", Some(held("other", 0)), 14.999, wait(15.0)),
        ("expired", Some(held("other", 0)), 15.0, taken(5)),
        ("long expired", Some(held("other", 0)), 9_999.0, taken(5)),
        ("released", with(|r| r.holder.clear()), 0.0, taken(5)),
        (
            "ours: acquired and transitions stay",
            Some(held("me", 0)),
            3.0,
            Action::Update(mine(wall(0), wall(100), 4)),
        ),
        (
            "ours and expired, nobody took it",
            Some(held("me", 0)),
            60.0,
            Action::Update(mine(wall(0), wall(100), 4)),
        ),
        // Clocks: the holder's may be hours behind or ahead; ours says 100.
        ("renewed long ago by its clock", Some(held("other", -7_200)), 1.0, wait(15.0)),
        ("renewed in the future by its clock", Some(held("other", 7_200)), 15.0, taken(5)),
        (
            "no times at all",
            with(|r| {
                r.renewed = None;
                r.acquired = None;
            }),
            14.0,
            wait(15.0),
        ),
        // The holder's lease duration counts, not ours.
        ("a longer lease", with(|r| r.lease_seconds = 60), 59.0, wait(60.0)),
        ("a shorter lease", with(|r| r.lease_seconds = 1), 1.0, taken(5)),
        ("no lease duration", with(|r| r.lease_seconds = 0), 0.0, taken(5)),
        ("a negative lease duration", with(|r| r.lease_seconds = -9), 0.0, taken(5)),
        (
            "transitions at their end",
            with(|r| {
                r.transitions = i32::MAX;
                r.holder.clear();
            }),
            0.0,
            taken(i32::MAX),
        ),
    ];
    for (name, record, at, expected) in cases {
        let mut machine = Machine::new("me", LEASE);
        assert_eq!(machine.decide(start, wall(100)), Action::Fetch, "{name}: nothing seen yet");
        assert!(machine.observe(record, start), "{name}");
        assert_eq!(machine.decide(after(start, at), wall(100)), expected, "{name}");
    }
}

/// Expiry counts from the last change that was seen, whatever the times say.
#[test]
fn only_a_change_of_the_record_is_a_renewal() {
    let start = Instant::now();
    let mut machine = Machine::new("me", LEASE);
    machine.observe(Some(held("other", 0)), start);
    // Read again and again, unchanged: no renewal.
    for second in 1..15 {
        assert!(!machine.observe(Some(held("other", 0)), after(start, f64::from(second))));
    }
    let expired = machine.decide(after(start, 15.0), wall(0));
    assert!(matches!(expired, Action::Update(_)), "{expired:?}");
    // Its clock goes backwards, and still this is a renewal.
    assert!(machine.observe(Some(held("other", -100)), after(start, 15.0)));
    assert_eq!(machine.decide(after(start, 20.0), wall(0)), Action::Wait(after(start, 30.0)));
    // Another takes over.
    assert!(machine.observe(Some(held("third", -100)), after(start, 22.0)));
    assert_eq!(machine.decide(after(start, 22.0), wall(0)), Action::Wait(after(start, 37.0)));
    assert_eq!(machine.led_by_other(), Some("third"));
}

#[test]
fn absence_is_not_assumed_after_a_failed_creation() {
    let now = Instant::now();
    let mut machine = Machine::new("me", LEASE);
    machine.observe(None, now);
    machine.forget_absence();
    assert_eq!(machine.decide(now, wall(0)), Action::Fetch);
    // But a record stays the measure of time.
    machine.observe(Some(held("other", 0)), now);
    machine.forget_absence();
    assert!(matches!(machine.decide(now, wall(0)), Action::Wait(_)));
}

#[test]
fn release_gives_up_only_what_is_ours() {
    let now = Instant::now();
    let mut machine = Machine::new("me", LEASE);
    assert_eq!(machine.release(wall(9)), None);
    machine.observe(Some(held("other", 0)), now);
    assert_eq!(machine.release(wall(9)), None);
    machine.observe(Some(held("me", 0)), now);
    let released = Record {
        holder: String::new(),
        lease_seconds: 1,
        acquired: Some(wall(9)),
        renewed: Some(wall(9)),
        transitions: 4,
    };
    assert_eq!(machine.release(wall(9)), Some(released.clone()));
    machine.observe(Some(released), now);
    assert_eq!((machine.release(wall(9)), machine.holder()), (None, None));
}

/// Random candidates with clocks that are wrong and a server that accepts a
/// write only from who has seen the last record: never two within each other's
/// lease, and after the last one dies another leads in time.
#[test]
fn at_most_one_leads_under_skewed_clocks() {
    use proptest::prelude::*;
    use proptest::test_runner::TestRunner;
    let steps = prop::collection::vec((0_usize..3, any::<bool>(), 0_u64..4_000), 1..200);
    let skews = prop::array::uniform3(-100_000_i64..100_000);
    TestRunner::default()
        .run(&(steps, skews), |(steps, skews)| {
            let mut world = World::new(skews);
            for (candidate, sees, millis) in steps {
                world.step(candidate, sees, Duration::from_millis(millis))?;
            }
            Ok(())
        })
        .unwrap();
}

struct World {
    start: Instant,
    now: Instant,
    skews: [i64; 3],
    machines: [Machine; 3],
    /// Version of the record each has seen last.
    versions: [usize; 3],
    server: Option<Record>,
    version: usize,
    /// Who leads in its own eyes: until the renew deadline after its last renewal.
    leads_until: [Option<Instant>; 3],
}

impl World {
    fn new(skews: [i64; 3]) -> Self {
        let start = Instant::now();
        Self {
            start,
            now: start,
            skews,
            machines: ["a", "b", "c"].map(|name| Machine::new(name, LEASE)),
            versions: [0; 3],
            server: None,
            version: 0,
            leads_until: [None; 3],
        }
    }

    fn step(
        &mut self,
        who: usize,
        sees: bool,
        passed: Duration,
    ) -> Result<(), proptest::test_runner::TestCaseError> {
        self.now += passed;
        let machine = &mut self.machines[who];
        if sees {
            machine.observe(self.server.clone(), self.now);
            self.versions[who] = self.version;
        }
        let elapsed = SignedDuration::try_from(self.now - self.start).unwrap();
        match machine.decide(self.now, wall(self.skews[who]) + elapsed) {
            Action::Create(record) if self.server.is_none() => self.accept(who, record)?,
            Action::Update(record) if self.versions[who] == self.version => {
                self.accept(who, record)?;
            }
            _ => {}
        }
        Ok(())
    }

    fn accept(
        &mut self,
        who: usize,
        record: Record,
    ) -> Result<(), proptest::test_runner::TestCaseError> {
        let other = (0..3).find(|other| {
            *other != who && self.leads_until[*other].is_some_and(|until| self.now < until)
        });
        proptest::prop_assert_eq!(other, None, "{} takes over from a leader", who);
        self.leads_until[who] = Some(self.now + Duration::from_secs(10));
        self.version += 1;
        self.versions[who] = self.version;
        self.machines[who].observe(Some(record.clone()), self.now);
        self.server = Some(record);
        Ok(())
    }
}
