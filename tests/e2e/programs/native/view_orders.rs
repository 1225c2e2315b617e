// SPDX-License-Identifier: Apache-2.0
// Keeps strings, vectors and map entries that two functions make by way of the standard library.
use std::collections::{BTreeMap, HashMap};

#[derive(Clone)]
struct Order {
    name: String,
    items: Vec<u64>,
}

#[inline(never)]
fn add_order(orders: &mut BTreeMap<u64, Order>, number: u64) {
    let name = format!("order {}", number);
    let mut items = Vec::new();
    for item in 0..20 {
        items.push(item);
    }
    orders.insert(number, Order { name, items });
}

#[inline(never)]
fn index(orders: &BTreeMap<u64, Order>) -> HashMap<String, Order> {
    orders.values().map(|order| (order.name.clone(), order.clone())).collect()
}

fn main() {
    let mut orders = BTreeMap::new();
    for number in 0..500 {
        add_order(&mut orders, number);
    }
    let by_name = index(&orders);
    println!("{} {}", by_name.len(), by_name["order 1"].items.len());
    std::mem::forget((orders, by_name));
}
