//! The checker finds what is wrong and nothing else.

mod driver;
mod extenders;
mod gangs;
mod histories;
mod mix;
mod policies;
mod preemptions;
mod reloads;
mod seeds;
