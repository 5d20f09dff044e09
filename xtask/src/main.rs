//! The repository's own tool: `cargo xtask tidy`.
//!
//! `tidy` checks what compiler and clippy cannot: the layer law, locks between format pages and
//! code, lengths, where `unsafe` may stand, unreachable files, broken links. It depends on nothing
//! but the standard library, so that it starts at once on a fresh clone.
//! Not here: formatting, lints and tests; `.ci/run` calls cargo for those.

mod constants;
mod list;
mod sha256;
mod source;
mod tidy;
mod tree;

use std::path::Path;
use std::process::ExitCode;

const USAGE: &str = "\
usage: cargo xtask tidy [--fix-hashes]

  tidy                 check the whole tree and name each violation with its file and line
  tidy --fix-hashes    first rewrite the `// FORMAT:` lines to the hashes of the pages they name";

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let args: Vec<&str> = args.iter().map(String::as_str).collect();
    let result = match args.as_slice() {
        ["tidy"] => run_tidy(false),
        ["tidy", "--fix-hashes"] => run_tidy(true),
        _ => Err(USAGE.to_owned()),
    };
    match result {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(message) => {
            eprintln!("{message}");
            ExitCode::from(2)
        }
    }
}

/// Checks the tree that this tool was built from; true if nothing is wrong with it.
fn run_tidy(fix_hashes: bool) -> Result<bool, String> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().ok_or("xtask has no parent")?;
    let mut tree = tree::Tree::load(root)?;
    if fix_hashes {
        let fixed = tidy::formats::fix(&tree);
        for (path, text) in &fixed {
            tree::write(root, path, text)?;
            println!("{path}: format hashes brought up to date");
        }
        if !fixed.is_empty() {
            tree = tree::Tree::load(root)?;
        }
    }
    let violations = tidy::check(&tree);
    for violation in &violations {
        println!("{violation}");
    }
    if violations.is_empty() {
        println!("tidy: {} files, nothing to complain about", tree.len());
    } else {
        println!("tidy: {} violations in {} files", violations.len(), tree.len());
    }
    Ok(violations.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: running the tests reports an untidy tree.
    #[test]
    fn this_repository_is_tidy() {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("the repository root");
        let tree = tree::Tree::load(root).expect("the tree can be read");
        let violations: Vec<String> = tidy::check(&tree).iter().map(ToString::to_string).collect();
        assert!(violations.is_empty(), "run `cargo xtask tidy`:\n{}", violations.join("\n"));
    }
}
