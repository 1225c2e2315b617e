// The tree of dominators: what would be freed with each node, level by level. A level is asked for
// when its node is opened.

class Tree {
	constructor(total) {
		this.total = total;
		this.root = make("ul", { role: "tree", "aria-label": "What would be freed with what",
			onkeydown: (event) => this.key(event) });
		this.numbers = 0;
	}

	// Fills a list with a level. of: the address of the node above; "root".
	async level(list, of, depth, top = 100) {
		const { tree } = await askHeap("tree", { of, top });
		const items = tree.children.map((node, index) => this.item(node, depth, index, tree.children_total));
		const left = tree.children_total - items.length, others = many(left, "other", "others");
		if (left > 0 && kept) items.push(this.note(others + ": not in this file"));
		else if (left > 0 && top < 10000)
			items.push(this.note(others + ": show more", () => this.level(list, of, depth, Math.min(10 * top, 10000))
				.then(() => this.focus(list.children[items.length - 1]))));
		list.replaceChildren(...items);
		if (!this.root.querySelector('[tabindex="0"]')) items[0]?.setAttribute("tabindex", 0);
	}

	item(node, depth, index, total) {
		const id = "node" + this.numbers++, opens = node.retained_count > node.count;
		const share = this.total ? (100 * node.retained_size / this.total).toFixed(1) + " %, " : "";
		const item = make("li", { role: "treeitem", tabindex: -1, "aria-level": depth, "aria-setsize": total,
			"aria-posinset": index + 1, "aria-expanded": opens ? "false" : undefined, "aria-labelledby": id,
			onclick: (event) => { event.stopPropagation(); this.focus(item); this.toggle(item); } },
		make("span", { class: "label", id }, node.name + " → " + node.type_name + ": ",
			make("b", {}, sizeText(node.retained_size)), " retained, " + share
			+ many(node.retained_count, "object", "objects") + "; own "
			+ sizeText(node.size) + ", " + countText(node.count) + " "),
		opens ? make("ul", { role: "group", hidden: true }) : null);
		bar(item.firstChild, node.retained_size, this.total);
		item.node = node;
		item.depth = depth;
		return item;
	}

	// What is no object. show: what Enter does; undefined: nothing.
	note(text, show = () => {}) {
		const id = "node" + this.numbers++;
		const item = make("li", { role: "treeitem", tabindex: -1, "aria-labelledby": id,
			onclick: (event) => { event.stopPropagation(); show(); } },
		make("span", { class: "label faint", id }, text));
		item.show = show;
		return item;
	}

	focus(item) {
		if (!item) return;
		this.root.querySelectorAll('[tabindex="0"]').forEach((other) => other.setAttribute("tabindex", -1));
		item.setAttribute("tabindex", 0);
		item.focus();
	}

	async toggle(item, open = item.getAttribute("aria-expanded") === "false") {
		const list = item.querySelector('[role="group"]');
		if (!list) return;
		item.setAttribute("aria-expanded", open);
		list.hidden = !open;
		if (open && !list.children.length) {
			item.setAttribute("aria-busy", true);
			try {
				await this.level(list, addressText(item.node.address), item.depth + 1);
			} catch (error) {
				list.replaceChildren(this.note(error.message));
			}
			item.removeAttribute("aria-busy");
		}
	}

	key(event) {
		const item = event.target.closest('[role="treeitem"]');
		if (!item || event.ctrlKey || event.altKey || event.metaKey) return;
		const all = [...this.root.querySelectorAll('[role="treeitem"]')].filter((other) => !other.closest("[hidden]"));
		const at = all.indexOf(item), expanded = item.getAttribute("aria-expanded");
		const keys = {
			ArrowDown: () => this.focus(all[at + 1]),
			ArrowUp: () => this.focus(all[at - 1]),
			Home: () => this.focus(all[0]),
			End: () => this.focus(all[all.length - 1]),
			ArrowRight: () => expanded === "false" ? this.toggle(item, true)
				: expanded === "true" ? this.focus(item.querySelector('[role="treeitem"]')) : null,
			ArrowLeft: () => expanded === "true" ? this.toggle(item, false)
				: this.focus(item.parentElement.closest('[role="treeitem"]')),
			Enter: () => item.show ? item.show()
				: (location.hash = place("object", { at: addressText(item.node.address) })),
			" ": () => item.show ? item.show() : this.toggle(item),
		};
		if (!keys[event.key]) return;
		event.preventDefault();
		keys[event.key]();
	}
}
