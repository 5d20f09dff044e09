//! The metrics of a store as Prometheus text.

use std::fmt::Write as _;

use crate::db::metrics::{KeyspaceMetrics, LevelMetrics, Metrics};
use crate::storage::io::IoMetrics;

/// Writes one metric in Prometheus text form.
struct Exposition(String);

impl Exposition {
    fn family(&mut self, name: &str, kind: &str, help: &str) {
        // Writing to a string cannot fail.
        let _ = writeln!(self.0, "# HELP {name} {help}\n# TYPE {name} {kind}");
    }

    fn sample(&mut self, name: &str, labels: &[(&str, &str)], value: f64) {
        self.0.push_str(name);
        for (i, (label, content)) in labels.iter().enumerate() {
            self.0.push(if i == 0 { '{' } else { ',' });
            let escaped = content.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n");
            let _ = write!(self.0, "{label}=\"{escaped}\"");
        }
        if !labels.is_empty() {
            self.0.push('}');
        }
        let _ = writeln!(self.0, " {value}");
    }

    fn counter(&mut self, name: &str, help: &str, value: f64) {
        self.family(name, "counter", help);
        self.sample(name, &[], value);
    }

    /// Counters with their names and what they are.
    fn counters(&mut self, counters: &[(&str, &str, f64)]) {
        counters.iter().for_each(|&(name, help, value)| self.counter(name, help, value));
    }

    fn gauge(&mut self, name: &str, help: &str, value: f64) {
        self.family(name, "gauge", help);
        self.sample(name, &[], value);
    }
}

impl Metrics {
    /// The metrics in the Prometheus text exposition format, version 0.0.4.
    #[must_use]
    pub fn prometheus(&self) -> String {
        let mut out = Exposition(String::new());
        self.expose_counters(&mut out);
        self.expose_cache(&mut out);
        self.expose_lists(&mut out);
        self.expose_labelled(&mut out);
        self.expose_keyspaces(&mut out);
        out.0
    }

    /// What buffer lists did.
    fn expose_lists(&self, out: &mut Exposition) {
        let counters = [
            (
                "weir_gets_of_lists_total",
                "Lookups in a run that its buffer list answered.",
                self.gets_of_lists as f64,
            ),
            (
                "weir_tables_trimmed_total",
                "Tables trimmed from buffer lists.",
                self.tables_trimmed as f64,
            ),
            (
                "weir_lists_dropped_total",
                "Keyspaces whose buffer lists were dropped for space.",
                self.lists_dropped as f64,
            ),
        ];
        out.counters(&counters);
    }

    fn expose_counters(&self, out: &mut Exposition) {
        let counters = [
            ("weir_puts_total", "Entries written.", self.puts as f64),
            ("weir_deletes_total", "Deletes written.", self.deletes as f64),
            (
                "weir_user_bytes_written_total",
                "Bytes of written batches.",
                self.user_bytes_written as f64,
            ),
            ("weir_batches_total", "Batches committed.", self.batches as f64),
            ("weir_commit_groups_total", "Commit groups.", self.commit_groups as f64),
            ("weir_gets_total", "Point lookups.", self.gets as f64),
            ("weir_gets_found_total", "Point lookups that found a value.", self.gets_found as f64),
            ("weir_bytes_found_total", "Bytes of values found.", self.bytes_found as f64),
            ("weir_seeks_total", "Cursor positionings.", self.seeks as f64),
            (
                "weir_compaction_bytes_read_total",
                "Bytes that compactions read.",
                self.compaction_bytes_read as f64,
            ),
            ("weir_log_syncs_total", "Syncs of the log.", self.log_syncs as f64),
            ("weir_flushes_total", "Flushes installed.", self.flushes as f64),
            ("weir_compactions_total", "Compactions installed.", self.compactions as f64),
            ("weir_trivial_moves_total", "Tables moved unchanged.", self.trivial_moves as f64),
            (
                "weir_compactions_in_stretches_total",
                "Compactions cut into stretches for want of space.",
                self.compactions_in_stretches as f64,
            ),
            ("weir_stretches_total", "Stretches installed.", self.stretches as f64),
            (
                "weir_jobs_failed_total",
                "Jobs that failed and are retried.",
                self.jobs_failed as f64,
            ),
            (
                "weir_compactions_refused_total",
                "Compactions refused by the tree's checks.",
                self.compactions_refused as f64,
            ),
            ("weir_entries_dropped_total", "Entries dropped.", self.entries_dropped as f64),
            ("weir_flush_seconds_total", "Time in flushes.", self.flush_seconds),
            ("weir_compaction_seconds_total", "Time in compactions.", self.compaction_seconds),
            ("weir_write_delays_total", "Smooth delays of writers.", self.write_delays as f64),
            ("weir_write_delay_seconds_total", "Time in smooth delays.", self.write_delay_seconds),
            ("weir_write_stalls_total", "Full stops of writers.", self.write_stalls as f64),
            ("weir_write_stall_seconds_total", "Time in full stops.", self.write_stall_seconds),
            ("weir_tables_freed_total", "Tables freed.", self.tables_freed as f64),
        ];
        out.counters(&counters);
        out.gauge("weir_uptime_seconds", "Time since the store was opened.", self.uptime_seconds);
        let rows = &self.row_cache;
        out.counter("weir_row_cache_refused_total", "Answers not kept.", rows.refused as f64);
        out.gauge("weir_row_cache_bytes", "Bytes in the row cache.", rows.bytes as f64);
        out.gauge("weir_row_cache_capacity_bytes", "Most of it.", rows.capacity as f64);
        out.gauge("weir_log_live_bytes", "Bytes of live log segments.", self.log_bytes_live as f64);
        out.gauge("weir_snapshots", "Live snapshots.", self.snapshots as f64);
        out.gauge("weir_tables_open", "Tables that are open.", self.tables_open as f64);
        out.gauge("weir_tables_waiting", "Tables still held.", self.tables_waiting as f64);
        out.gauge("weir_jobs_waiting", "Failed jobs to be retried.", self.jobs_waiting as f64);
        let quarantined = self.tables_quarantined as f64;
        out.gauge("weir_tables_quarantined", "Tables left alone as damaged.", quarantined);
        out.gauge("weir_memory_budget_bytes", "The memory budget.", self.memory.budget as f64);
    }

    fn expose_cache(&self, out: &mut Exposition) {
        let counters = [
            (
                "weir_block_reads_shared_total",
                "Misses of users that waited for another's read.",
                self.block_reads_shared as f64,
            ),
            (
                "weir_blocks_handed_over_total",
                "Blocks that compactions put into the cache.",
                self.blocks_handed_over as f64,
            ),
            (
                "weir_blocks_handed_over_unread_total",
                "Blocks handed over that left the cache unread.",
                self.blocks_handed_over_unread as f64,
            ),
            (
                "weir_blocks_unasked_total",
                "Blocks that compactions put into free room of the cache.",
                self.blocks_unasked as f64,
            ),
        ];
        out.counters(&counters);
        out.gauge("weir_cache_bytes", "Bytes in the block cache.", self.cache_bytes as f64);
        out.gauge("weir_cache_capacity_bytes", "Most of it.", self.cache_capacity as f64);
    }

    fn expose_hot_ranges(&self, out: &mut Exposition) {
        let counters = [
            (
                "weir_sentinels_built_total",
                "Hot ranges moved up into a sentinel.",
                self.sentinels_built as f64,
            ),
            (
                "weir_sentinel_written_bytes_total",
                "Bytes written for sentinels.",
                self.sentinel_bytes_written as f64,
            ),
            (
                "weir_hot_ranges_merged_down_total",
                "Hot ranges merged down by a level.",
                self.hot_ranges_merged_down as f64,
            ),
            (
                "weir_masked_dropped_bytes_total",
                "Bytes moved into sentinels that compactions freed in the tables below.",
                self.masked_bytes_dropped as f64,
            ),
        ];
        out.counters(&counters);
    }

    fn expose_io(&self, out: &mut Exposition) {
        type Figure = fn(&IoMetrics) -> u64;
        let families: [(&str, &str, Figure); 5] = [
            ("weir_io_reads_total", "Reads of files, by cause.", |io| io.reads),
            ("weir_io_read_bytes_total", "Bytes read from files, by cause.", |io| io.bytes_read),
            ("weir_io_writes_total", "Writes to files, by cause.", |io| io.writes),
            ("weir_io_written_bytes_total", "Bytes written to files, by cause.", |io| {
                io.bytes_written
            }),
            ("weir_io_syncs_total", "Syncs of files, by cause.", |io| io.syncs),
        ];
        for (name, help, figure) in families {
            out.family(name, "counter", help);
            for (cause, io) in self.io.named() {
                out.sample(name, &[("cause", cause)], figure(&io) as f64);
            }
        }
    }

    fn expose_labelled(&self, out: &mut Exposition) {
        let name = "weir_bytes_written_total";
        out.family(name, "counter", "Bytes written to the device, by cause.");
        let written = &self.bytes_written;
        for (cause, bytes) in [
            ("log", written.log),
            ("flush", written.flush),
            ("compaction", written.compaction),
            ("versions", written.versions),
        ] {
            out.sample(name, &[("cause", cause)], bytes as f64);
        }
        self.expose_hot_ranges(out);
        self.expose_io(out);
        let name = "weir_cache_lookups_total";
        out.family(name, "counter", "Block cache lookups, by who asked and what became of it.");
        for (who, cache) in
            [("foreground", &self.cache_foreground), ("background", &self.cache_background)]
        {
            out.sample(name, &[("purpose", who), ("result", "hit")], cache.hits as f64);
            out.sample(name, &[("purpose", who), ("result", "miss")], cache.misses as f64);
        }
        let name = "weir_row_cache_lookups_total";
        out.family(name, "counter", "Row cache lookups, by what became of them.");
        out.sample(name, &[("result", "hit")], self.row_cache.hits as f64);
        out.sample(name, &[("result", "miss")], self.row_cache.misses as f64);
        let name = "weir_memory_bytes";
        out.family(name, "gauge", "Memory held, by holder.");
        let memory = &self.memory;
        for (holder, bytes) in [
            ("memtables", memory.memtables),
            ("spare_memtables", memory.spare_memtables),
            ("block_cache", memory.block_cache),
            ("table_metadata", memory.table_metadata),
            ("jobs", memory.jobs),
            ("pinned", memory.pinned),
            ("row_cache", memory.row_cache),
            ("retained", memory.retained),
        ] {
            out.sample(name, &[("holder", holder)], bytes as f64);
        }
    }

    fn expose_keyspaces(&self, out: &mut Exposition) {
        type Figure = fn(&LevelMetrics) -> f64;
        let families: [(&str, &str, &str, Figure); 11] = [
            ("weir_level_runs", "gauge", "Runs, by keyspace and level.", |l| l.runs as f64),
            ("weir_level_tables", "gauge", "Tables, by keyspace and level.", |l| l.tables as f64),
            ("weir_level_bytes", "gauge", "Bytes, by keyspace and level.", |l| l.bytes as f64),
            ("weir_level_entries", "gauge", "Entries, by keyspace and level.", |l| {
                l.entries as f64
            }),
            (
                "weir_level_compacted_bytes_total",
                "counter",
                "Bytes that compactions wrote, by keyspace and level.",
                |l| l.compacted_bytes as f64,
            ),
            (
                "weir_level_entries_shadowed_total",
                "counter",
                "Entries that compactions dropped for newer ones, by keyspace and level.",
                |l| l.entries_shadowed as f64,
            ),
            (
                "weir_level_buffered_tables",
                "gauge",
                "Tables in buffer lists, by keyspace and level.",
                |l| l.buffered_tables as f64,
            ),
            (
                "weir_level_buffered_bytes",
                "gauge",
                "Bytes that buffer lists take beside the tree, by keyspace and level.",
                |l| l.buffered_bytes as f64,
            ),
            (
                "weir_level_buffered_residency_ratio",
                "gauge",
                "Part of the blocks of buffer lists that is cached, by keyspace and level.",
                |l| l.buffered_residency,
            ),
            (
                "weir_level_buffered_holes",
                "gauge",
                "Ranges for which buffer lists ask their runs, by keyspace and level.",
                |l| l.buffered_holes as f64,
            ),
            (
                "weir_level_frozen_lists",
                "gauge",
                "Buffer lists that keep nothing, because merges hide much of it.",
                |l| l.frozen_lists as f64,
            ),
        ];
        for (name, kind, help, figure) in families {
            out.family(name, kind, help);
            for keyspace in &self.keyspaces {
                for (level, metrics) in keyspace.levels.iter().enumerate() {
                    let level = level.to_string();
                    let labels = [("keyspace", keyspace.name.as_str()), ("level", &level)];
                    out.sample(name, &labels, figure(metrics));
                }
            }
        }
        let name = "weir_level_buffered_copies_ratio";
        let help = "Part of the keys that buffer lists answer for that is cached, by where.";
        out.family(name, "gauge", help);
        for keyspace in &self.keyspaces {
            for (level, metrics) in keyspace.levels.iter().enumerate() {
                for (copy, part) in metrics.buffered_copies.named() {
                    let (keyspace, level) = (keyspace.name.as_str(), level.to_string());
                    let labels = [("keyspace", keyspace), ("level", &level), ("copy", copy)];
                    out.sample(name, &labels, part);
                }
            }
        }
        self.expose_numbers_of_keyspaces(out);
    }

    fn expose_numbers_of_keyspaces(&self, out: &mut Exposition) {
        type Figure = fn(&KeyspaceMetrics) -> f64;
        let families: [(&str, &str, &str, Figure); 5] = [
            (
                "weir_scan_leaps_total",
                "counter",
                "Seeks over ranges without a visible entry, by keyspace.",
                |k| k.scan_leaps as f64,
            ),
            (
                "weir_sentinel_reads_total",
                "counter",
                "Reads that ended at a sentinel, by keyspace; an estimate.",
                |k| k.sentinel_reads as f64,
            ),
            (
                "weir_sentinel_runs_spared_total",
                "counter",
                "Older runs that these did not ask, by keyspace; an estimate.",
                |k| k.sentinel_runs_spared as f64,
            ),
            (
                "weir_table_bytes_max",
                "gauge",
                "Largest tables that compactions of single tables make now, by keyspace.",
                |k| k.table_bytes as f64,
            ),
            ("weir_memtable_bytes", "gauge", "Bytes in the active memtable, by keyspace.", |k| {
                k.memtable_bytes as f64
            }),
        ];
        for (name, kind, help, figure) in families {
            out.family(name, kind, help);
            for keyspace in &self.keyspaces {
                out.sample(name, &[("keyspace", &keyspace.name)], figure(keyspace));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Every line is a comment or `name{labels} number`, and hostile names are escaped.
    #[test]
    fn exposition_is_well_formed() {
        let metrics = Metrics {
            keyspaces: vec![KeyspaceMetrics {
                name: "a\"b\\c\nd".into(),
                levels: vec![LevelMetrics::default(); 2],
                ..Default::default()
            }],
            ..Default::default()
        };
        let text = metrics.prometheus();
        assert!(text.contains(r#"keyspace="a\"b\\c\nd",level="1"} 0"#), "{text}");
        for line in text.lines() {
            let sample = line.rsplit_once(' ').is_some_and(|(_, v)| v.parse::<f64>().is_ok());
            assert!(line.starts_with("# ") || sample, "{line}");
        }
    }
}
