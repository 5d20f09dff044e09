//! What a merge will make of buffer lists, foreseen when it begins: which of its entries users will
//! find in a list's tables afterwards, and which in its outputs.
//!
//! By the decision that its edit will be given (`buffer_effects`), made against the root of the
//! beginning. The edit meets a later one: what was foreseen may then be wrong. Only the choice of
//! cached blocks depends on it.
//!
//! ```text
//! before   users ask   list of the source   |t7|~~|t8|        and the source where there is a hole
//! after                list of the target   |  source table | and the output where there is a hole
//! ```
//!
//! Not here: what becomes of the heat (`compaction::execute`).

use std::collections::BTreeSet;
use std::sync::Arc;

use super::buffer_effects::{Leaving, foresee, lists_matter};
use super::buffer_list::{BufferList, Holes};
use super::edit::ListChange;
use super::keyspaces::KeyspaceVersion;
use super::list_heat::ListHeat;
use super::shape::RunId;
use crate::base::ids::TableUid;
use crate::base::table_meta::TableMeta;

/// What a merge will make of the lists of its runs. By default there are none.
#[derive(Default)]
pub(crate) struct Foreseen {
    /// What the list of the output run answers for.
    pub(crate) served: Served,
    /// Of each input.
    pub(crate) inputs: Vec<InputLists>,
}

/// The keys for which the list of the output run answers after the merge.
#[derive(Default)]
pub(crate) struct Served {
    /// All but these; `None`: none, because nothing is appended to it.
    but: Option<Holes>,
}

/// The lists of an input. By default there are none.
#[derive(Default)]
pub(crate) struct InputLists {
    /// Its tables go over into the list of the output run.
    pub(crate) stays: bool,
    /// What users read of it through a list that does not answer for it any more.
    pub(crate) heat: Option<ListHeat>,
}

impl Served {
    /// Whether it answers for `key`, also for what was there before the merge.
    pub(crate) fn covers(&self, key: &[u8]) -> bool {
        self.but.as_ref().is_some_and(|but| !but.cover(key))
    }
}

impl Foreseen {
    /// Of a merge of these tables of runs into `output`.
    pub(crate) fn of(
        keyspace: &KeyspaceVersion,
        inputs: &[(RunId, &[TableUid])],
        output: RunId,
    ) -> Self {
        if !lists_matter(keyspace, &keyspace.options) {
            let inputs = inputs.iter().map(|_| InputLists::default()).collect();
            return Self { served: Served::default(), inputs };
        }
        let tables_of = |id: RunId, uids: &[TableUid]| -> Vec<Arc<TableMeta>> {
            let tables = keyspace.version.run(id).into_iter().flat_map(|run| run.tables.iter());
            let uids: BTreeSet<TableUid> = uids.iter().copied().collect();
            let inputs = tables.filter(|(meta, _)| uids.contains(&meta.uid));
            inputs.map(|(meta, _)| Arc::clone(meta)).collect()
        };
        let inputs: Vec<_> = inputs.iter().map(|&(id, uids)| (id, tables_of(id, uids))).collect();
        let leaving = inputs.iter().flat_map(|(from, metas)| {
            metas.iter().map(|meta| Leaving { from: *from, meta: Arc::clone(meta) })
        });
        let (but, appended) = asked_after(keyspace, leaving.collect(), output);
        let lists_of = |(id, metas): &(RunId, Vec<Arc<TableMeta>>)| {
            let stays = metas.iter().any(|meta| appended.contains(&meta.uid));
            let list = keyspace.version.run(*id).and_then(|run| run.list.as_deref());
            // The list that is appended to goes on answering.
            let list = list.filter(|_| but.is_none() || *id != output);
            let bounds = metas.first().zip(metas.last());
            let heat = list
                .zip(bounds)
                .map(|(list, (first, last))| ListHeat::of(list, &first.smallest, &last.largest));
            InputLists { stays, heat }
        };
        let inputs = inputs.iter().map(lists_of).collect();
        Self { served: Served { but }, inputs }
    }
}

/// The keys for which the run `output` itself will be asked, not its list; `None` if it has none
/// then, for all. And the tables that are appended to the list.
fn asked_after(
    keyspace: &KeyspaceVersion,
    leaving: Vec<Leaving>,
    output: RunId,
) -> (Option<Holes>, BTreeSet<TableUid>) {
    let changes = foresee(keyspace, leaving, output);
    let list = keyspace.version.run(output).and_then(|run| run.list.as_deref());
    let mut asked = Holes::default();
    let holes = list.into_iter().flat_map(BufferList::runs).flat_map(|run| run.holes.iter());
    holes.for_each(|range| asked.add(range.clone()));
    let (mut appended, mut ends) = (BTreeSet::new(), false);
    for change in changes.into_iter().filter(|change| change.run() == output) {
        match change {
            ListChange::Append { uid, .. } => drop(appended.insert(uid)),
            ListChange::Hole { smallest, largest, .. } => {
                asked.add((Arc::from(smallest), Arc::from(largest)));
            }
            ListChange::Trim { uid, .. } => {
                let mut tables = list.into_iter().flat_map(BufferList::tables);
                if let Some((meta, _)) = tables.find(|(meta, _)| meta.uid == uid) {
                    asked.add((Arc::from(&*meta.smallest), Arc::from(&*meta.largest)));
                }
            }
            ListChange::Drop { .. } => ends = true,
            ListChange::Count { .. } => {}
        }
    }
    let goes_on = !ends && list.is_some_and(|list| !list.runs().is_empty());
    ((goes_on || !appended.is_empty()).then_some(asked), appended)
}
