//! What the shell says about itself.

/// The commands.
pub(crate) const TEXT: &str = r#"Commands:
  put [-s] KEY VALUE          store a value (-s: on stable storage before the answer)
  get KEY [@N]                show a value, or (none)
  del [-s] KEY                delete a key
  scan [-r] [-n COUNT] [-k] [FROM [TO]] [@N]
                              show pairs from FROM on, up to and without TO; -r backward,
                              -n at most COUNT, -k keys only
  scan -p PREFIX ...          show pairs whose key begins with PREFIX
  count ...                   as scan, but show only how many
  batch ... end               apply the puts and dels between together or not at all; abort
                              instead of end forgets them
  snapshot                    take a snapshot; its number N serves as @N in get, scan and count
  snapshots, release N        list them; let one go
  keyspaces                   list the keyspaces
  use NAME, create NAME, drop NAME
                              go to a keyspace; make one and go there; remove one
  flush, compact, sync        write memory to tables; merge everything; make the log durable
  stats [-p]                  what the store did since it was opened (-p: for Prometheus)
  help, exit

Words are separated by spaces. "Double quotes" hold a word with spaces; \xNN is a byte, \n \t \r
\0 as in C, and a backslash before a punctuation mark is that mark. # begins a comment. A key that
begins with - and a letter is quoted, so that it is not taken for an option."#;
