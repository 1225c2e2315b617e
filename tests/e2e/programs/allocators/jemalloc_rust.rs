// SPDX-License-Identifier: Apache-2.0
// A Rust program whose allocator is a copy of jemalloc linked into it, with the prefix that
// tikv-jemallocator gives it. It says "ready", and for each line that it reads what jemalloc itself
// counts, as JSON.
use std::alloc::{GlobalAlloc, Layout};
use std::collections::{BTreeMap, HashMap};
use std::ffi::{c_void, CString};
use std::io::BufRead;
use std::os::raw::{c_char, c_int};

extern "C" {
    fn _rjem_aligned_alloc(align: usize, size: usize) -> *mut c_void;
    fn _rjem_malloc(size: usize) -> *mut c_void;
    fn _rjem_free(block: *mut c_void);
    fn _rjem_mallctl(
        name: *const c_char,
        old: *mut c_void,
        old_size: *mut usize,
        new: *mut c_void,
        new_size: usize,
    ) -> c_int;
}

struct Jemalloc;

unsafe impl GlobalAlloc for Jemalloc {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        if layout.align() <= 16 {
            _rjem_malloc(layout.size()) as *mut u8
        } else {
            _rjem_aligned_alloc(layout.align(), layout.size()) as *mut u8
        }
    }
    unsafe fn dealloc(&self, block: *mut u8, _: Layout) {
        _rjem_free(block as *mut c_void)
    }
}

#[global_allocator]
static ALLOCATOR: Jemalloc = Jemalloc;

fn count_of(name: &str) -> usize {
    let name = CString::new(name).unwrap();
    let mut value = 0usize;
    let mut size = 8usize;
    unsafe {
        _rjem_mallctl(
            name.as_ptr(),
            &mut value as *mut usize as *mut c_void,
            &mut size,
            std::ptr::null_mut(),
            0,
        );
    }
    value
}

fn counts_new() {
    let name = CString::new("epoch").unwrap();
    let mut epoch = 1u64;
    unsafe {
        _rjem_mallctl(
            name.as_ptr(),
            std::ptr::null_mut(),
            std::ptr::null_mut(),
            &mut epoch as *mut u64 as *mut c_void,
            8,
        );
    }
}

fn main() {
    let mut names: BTreeMap<u32, String> = BTreeMap::new();
    let mut series: HashMap<String, Vec<u64>> = HashMap::new();
    for i in 0..100_000u32 {
        names.insert(i, "x".repeat(i as usize % 300));
    }
    for i in 0..10_000u32 {
        series.insert(format!("key{}", i), vec![1; i as usize % 900]);
    }
    names.retain(|i, _| i % 3 == 0);
    println!("ready");
    for _ in std::io::stdin().lock().lines() {
        counts_new();
        println!(
            "{{\"allocated\": {}, \"active\": {}, \"mapped\": {}, \"retained\": {}}}",
            count_of("stats.allocated"),
            count_of("stats.active"),
            count_of("stats.mapped"),
            count_of("stats.retained")
        );
    }
    println!("{}", names.len() + series.len());
}
