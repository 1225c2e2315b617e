// SPDX-License-Identifier: Apache-2.0
// Trees of strings and vectors, built recursively by two threads. Keeps everything. Prints how many
// entries there are.
use std::collections::BTreeMap;

type Tree = BTreeMap<String, Vec<u64>>;

fn build(depth: u64, tree: &mut Tree) {
    if depth == 0 {
        return;
    }
    tree.insert(format!("entry {}", depth), (0..depth % 50 + 1).collect());
    build(depth - 1, tree);
}

fn built(depth: u64) -> usize {
    let mut tree = Tree::new();
    build(depth, &mut tree);
    let count = tree.len();
    std::mem::forget(tree);
    count
}

fn main() {
    let other = std::thread::spawn(|| built(300));
    println!("{} {}", built(500), other.join().unwrap());
}
