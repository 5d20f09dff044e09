//! The write path: batches, the commit queue with its one leader, and back-pressure.
//!
//! A writer encodes its own batch before it joins the queue. The first writer in an idle queue
//! leads: it takes everybody who waits, writes one log group, inserts all entries into the
//! memtables, publishes their sequence numbers, and hands the lead on. Syncs happen outside the
//! lead, one for all who wait (ARCHITECTURE §9).
//!
//! Not here: files (the log prepares its segments off this path), flushes, compactions (`db`).

pub(crate) mod batch;
mod limit;
mod pending;
pub(crate) mod queue;
mod ticket;
mod wait_list;
