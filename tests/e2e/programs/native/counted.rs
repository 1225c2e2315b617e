// SPDX-License-Identifier: Apache-2.0
//! Collections that grow and go, and the books of the allocator that all of Rust's requests pass. Speaks as golden.py does.
use std::alloc::{GlobalAlloc, Layout, System};
use std::collections::{BTreeMap, HashMap, VecDeque};
use std::io::{BufRead, Write};
use std::sync::atomic::{AtomicI64, Ordering::Relaxed};

struct Counted;
static BYTES: AtomicI64 = AtomicI64::new(0);
static BLOCKS: AtomicI64 = AtomicI64::new(0);

unsafe impl GlobalAlloc for Counted {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        BYTES.fetch_add(layout.size() as i64, Relaxed);
        BLOCKS.fetch_add(1, Relaxed);
        System.alloc(layout)
    }
    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        BYTES.fetch_add(layout.size() as i64, Relaxed);
        BLOCKS.fetch_add(1, Relaxed);
        System.alloc_zeroed(layout)
    }
    unsafe fn dealloc(&self, block: *mut u8, layout: Layout) {
        BYTES.fetch_sub(layout.size() as i64, Relaxed);
        BLOCKS.fetch_sub(1, Relaxed);
        System.dealloc(block, layout)
    }
    unsafe fn realloc(&self, block: *mut u8, layout: Layout, bytes: usize) -> *mut u8 {
        BYTES.fetch_add(bytes as i64 - layout.size() as i64, Relaxed);
        System.realloc(block, layout, bytes)
    }
}

#[global_allocator]
static ALLOCATOR: Counted = Counted;

#[repr(align(64))]
#[derive(Clone)]
struct Wide(#[allow(dead_code)] [u8; 100]);

#[derive(Default)]
struct State {
    names: Vec<String>,
    numbered: BTreeMap<u32, String>,
    lists: HashMap<u32, Vec<u32>>,
    queue: VecDeque<Box<Wide>>,
}

fn work(kept: &mut State, round: u32) {
    for i in 0..5000u32 {
        let key = round * 5000 + i;
        let name = "x".repeat(10 + (i % 90) as usize);
        kept.numbered.insert(key, name.clone());
        kept.names.push(name);
        kept.lists.entry(key % 500).or_default().push(key);
        kept.queue.push_back(Box::new(Wide([1; 100])));
        if i % 3 == 0 {
            kept.queue.pop_front();
            if let Some(&least) = kept.numbered.keys().next() {
                kept.numbered.remove(&least);
            }
        }
    }
    kept.names.truncate(kept.names.len() / 2);
    kept.names.shrink_to_fit();
}

fn tell() {
    println!("{{\"own\": [{}, {}]}}", BYTES.load(Relaxed), BLOCKS.load(Relaxed));
    std::io::stdout().flush().unwrap();
}

fn main() {
    let mut kept = State::default();
    let mut line = String::with_capacity(100);
    let mut input = std::io::stdin().lock();
    println!("ready");
    tell();
    for round in 0.. {
        line.clear();
        if input.read_line(&mut line).unwrap() == 0 {
            break;
        }
        work(&mut kept, round);
        tell();
    }
}
