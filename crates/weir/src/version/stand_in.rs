//! A table without bytes, until `table` has one.
use crate::base::table_meta::TableMeta;
use std::sync::Arc;

/// An open table.
#[derive(Debug)]
pub(crate) struct Table {
    meta: Arc<TableMeta>,
}

impl Table {
    pub(crate) fn new(meta: Arc<TableMeta>) -> Arc<Self> {
        Arc::new(Self { meta })
    }
    pub(crate) fn meta(&self) -> &Arc<TableMeta> {
        &self.meta
    }
}
