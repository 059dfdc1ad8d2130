//! What a driver needs to carry out effects: which call waits, what is tried again.
//!
//! Owns the rules between an effect and its answer, shared by the live writer
//! and the simulator's, so that what is simulated is what runs. Must never do
//! I/O, read a clock or decide what to write.

mod dispatch;
mod eviction;
mod verdict;

pub use dispatch::{
    Added, Bind, Dispatch, MAX_EVENTS, MAX_EVICTIONS, MAX_FLYING_EVICTIONS, MAX_PATCHES, PodCall,
};
pub use eviction::{EVICTION_ATTEMPTS, EVICTION_DEADLINE, Evict, eviction_error, judge_eviction};
pub use verdict::{
    BIND_ATTEMPTS, BIND_PAUSE, CALL_DEADLINE, Details, Failure, MAX_PAUSE, NOT_LEADING,
    PATCH_ATTEMPTS, REST_PAUSE, Verdict, judge, write_error,
};
