//! Keyspaces that are opened, created, dropped and given other options.

use weir::{Durability, ErrorKind};

use super::{Checked, NAMES, Runner, Space, set_options};
use crate::model::KeyspaceModel;
use crate::options;

impl Runner {
    pub(super) fn keyspace(&mut self, ks: u8, number: u32) -> Checked {
        let slot = usize::from(ks);
        let before = self.spaces[slot].as_ref().map(|space| space.handle.options());
        let handle = self
            .db()?
            .keyspace_with(NAMES[slot], options::keyspace(number))
            .map_err(|e| format!("keyspace {}: {e}", NAMES[slot]))?;
        if let Some(before) = before
            && handle.options() != before
        {
            return Err(format!("opening keyspace {} has changed its options", NAMES[slot]));
        }
        set_options(&handle, options::keyspace(number))?;
        match &mut self.spaces[slot] {
            Some(space) => space.handle = handle,
            empty => {
                self.models.push(KeyspaceModel::default());
                *empty = Some(Space { handle, model: self.models.len() - 1 });
                // What was acknowledged before a creation or a drop is as durable as it is.
                self.acknowledge(Durability::Sync);
            }
        }
        Ok(())
    }

    pub(super) fn create(&mut self, ks: u8, number: u32) -> Checked {
        let slot = usize::from(ks);
        let result = self.db()?.create_keyspace(NAMES[slot], options::keyspace(number));
        match (result, &mut self.spaces[slot]) {
            (Ok(_), Some(_)) => Err(format!("keyspace {} was created twice", NAMES[slot])),
            (Err(e), Some(_)) if e.kind() == ErrorKind::Conflict => Ok(()),
            (Ok(handle), empty) => {
                self.models.push(KeyspaceModel::default());
                *empty = Some(Space { handle, model: self.models.len() - 1 });
                self.acknowledge(Durability::Sync);
                Ok(())
            }
            (Err(e), _) => Err(format!("create_keyspace {}: {e}", NAMES[slot])),
        }
    }

    pub(super) fn open_stored(&mut self, ks: u8) -> Checked {
        let slot = usize::from(ks);
        match (self.db()?.open_keyspace(NAMES[slot]), &mut self.spaces[slot]) {
            (Ok(handle), Some(space)) => {
                space.handle = handle;
                Ok(())
            }
            (Err(e), None) if e.kind() == ErrorKind::NotFound => Ok(()),
            (Ok(_), None) => Err(format!("keyspace {} exists after its drop", NAMES[slot])),
            (Err(e), _) => Err(format!("open_keyspace {}: {e}", NAMES[slot])),
        }
    }

    pub(super) fn drop_keyspace(&mut self, ks: u8) -> Checked {
        let slot = usize::from(ks);
        if slot == 0 {
            return Ok(());
        }
        let result = self.db()?.drop_keyspace(NAMES[slot]);
        match (result, self.spaces[slot].take()) {
            (Err(e), None) if e.kind() == ErrorKind::NotFound => Ok(()),
            (Ok(()), None) => Err("a keyspace that does not exist was dropped".into()),
            (Err(e), _) => Err(format!("drop_keyspace {}: {e}", NAMES[slot])),
            (Ok(()), Some(space)) => {
                let model = space.model;
                let ended = |r: weir::Result<()>, what: &str| match r {
                    Err(e) if e.kind() == ErrorKind::Closed => Ok(()),
                    Err(e) => Err(format!("{what} in a dropped keyspace: {e}")),
                    Ok(()) => Err(format!("{what} in a dropped keyspace succeeded")),
                };
                ended(space.handle.get(b"key000001").map(drop), "get")?;
                ended(space.handle.put(b"key000001", b"v"), "put")?;
                self.models[model] = KeyspaceModel::default();
                self.acknowledge(Durability::Sync);
                Ok(())
            }
        }
    }

    pub(super) fn list(&mut self) -> Checked {
        let mut found = self.db()?.keyspaces();
        found.sort();
        let mut expected: Vec<String> = NAMES
            .iter()
            .zip(&self.spaces)
            .filter(|(_, space)| space.is_some())
            .map(|(name, _)| (*name).to_owned())
            .collect();
        expected.sort();
        if found == expected {
            return Ok(());
        }
        Err(format!("the keyspaces are {found:?}, expected {expected:?}"))
    }
}
