//! The write path: batches, the commit queue with its one leader, and back-pressure.
//!
//! A writer encodes its own batch before it joins the queue. The first writer in an idle queue
//! leads: it takes the batches of waiting writers, up to 1 MiB, writes one log group, inserts all
//! entries into the memtables, publishes their sequence numbers, and hands the lead over. Syncs run
//! outside the lead, one for all waiting writers (ARCHITECTURE §9).
//!
//! Not here: files (log segments are prepared off this path), flushes, compactions (`db`).

pub(crate) mod batch;
mod limit;
mod pending;
pub(crate) mod queue;
mod ticket;
mod wait_list;
