//! Cuts a failing list of operations down (delta debugging).
//!
//! Source: Zeller and Hildebrandt, "Simplifying and Isolating Failure-Inducing Input", IEEE TSE
//! 2002, algorithm ddmin. We differ: parts are only ever removed, never kept alone (a failure of a
//! store nearly always needs the beginning), and single operations are made smaller at the end.

use crate::op::Op;

/// The smallest list found that still fails, and how often `fails` was asked. It is asked at most
/// `tries_max` times.
pub fn reduce(
    mut ops: Vec<Op>,
    tries_max: usize,
    mut fails: impl FnMut(&[Op]) -> bool,
) -> (Vec<Op>, usize) {
    let mut tries = 0;
    let mut part = ops.len().div_ceil(2).max(1);
    while tries < tries_max {
        let before = ops.len();
        let mut from = 0;
        while from < ops.len() && tries < tries_max {
            let to = (from + part).min(ops.len());
            let candidate = [&ops[..from], &ops[to..]].concat();
            tries += 1;
            if fails(&candidate) {
                ops = candidate;
            } else {
                from = to;
            }
        }
        if part > 1 {
            part = part.div_ceil(2);
        } else if ops.len() == before {
            break;
        }
    }
    (simplify(ops, tries_max, &mut tries, &mut fails), tries)
}

/// Empties batches item by item and shortens values.
fn simplify(
    mut ops: Vec<Op>,
    tries_max: usize,
    tries: &mut usize,
    fails: &mut impl FnMut(&[Op]) -> bool,
) -> Vec<Op> {
    for at in 0..ops.len() {
        for smaller in smaller(&ops[at]) {
            if *tries >= tries_max {
                return ops;
            }
            let mut candidate = ops.clone();
            candidate[at] = smaller;
            *tries += 1;
            if fails(&candidate) {
                ops = candidate;
                break;
            }
        }
    }
    ops
}

fn smaller(op: &Op) -> Vec<Op> {
    match op {
        Op::Batch { items, dur } if items.len() > 1 => {
            let half = items.len() / 2;
            [&items[..1], &items[items.len() - 1..], &items[..half], &items[half..]]
                .into_iter()
                .map(|part| Op::Batch { items: part.to_vec(), dur: *dur })
                .collect()
        }
        Op::Commits { batches, dur } if batches.len() > 1 => {
            batches.iter().map(|items| Op::Batch { items: items.clone(), dur: *dur }).collect()
        }
        Op::Cursor { ks, snap, moves } if moves.len() > 1 => (1..moves.len())
            .map(|n| Op::Cursor { ks: *ks, snap: *snap, moves: moves[n..].to_vec() })
            .rev()
            .collect(),
        Op::MultiGet { ks, keys, snap } if keys.len() > 1 => {
            keys.iter().map(|k| Op::MultiGet { ks: *ks, keys: vec![*k], snap: *snap }).collect()
        }
        _ => Vec::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A failure that needs three operations in order is found among a thousand.
    #[test]
    fn three_of_a_thousand_are_left() {
        let ops: Vec<Op> = (0..1000).map(|i| Op::Wait { millis: i }).collect();
        let needs = [17, 480, 991];
        let (left, _) = reduce(ops, 2000, |list| {
            let mut wanted = needs.iter();
            let mut next = wanted.next();
            for op in list {
                if matches!((op, next), (Op::Wait { millis }, Some(n)) if millis == n) {
                    next = wanted.next();
                }
            }
            next.is_none()
        });
        assert_eq!(left, needs.map(|millis| Op::Wait { millis }));
    }
}
