//! Tests of the memtable against an ordered map.
