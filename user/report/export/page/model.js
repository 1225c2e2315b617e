// The snapshot as the page's data holds it, and the trees that are drawn of it. Every text in it
// comes from the traced process: it is only ever shown as text (textContent, fillText).

const data = JSON.parse(document.getElementById("data").textContent);

// Frames of both snapshots under one number each: {file, name, line}.
class Frames {
	constructor() {
		this.list = [];
		this.numbers = new Map();
	}

	number(file, name, line) {
		const key = line + "\0" + file + "\0" + name;
		let number = this.numbers.get(key);
		if (number === undefined) {
			number = this.list.length;
			this.list.push({ file, name, line, module: undefined });
			this.numbers.set(key, number);
		}
		return number;
	}

	add(snapshot) {
		const { strings, frames } = snapshot;
		const numbers = new Uint32Array(frames.length / 3);
		for (let i = 0; i < numbers.length; i++)
			numbers[i] = this.number(strings[frames[3 * i]], strings[frames[3 * i + 1]], frames[3 * i + 2]);
		return numbers;
	}
}

const frames = new Frames();
// Stands for the callers of tracebacks that were cut.
const CUT = frames.number("", "(callers that were not kept)", 0);
// [snapshot, the numbers of its frames, 0: the snapshot, 1: the older one]
const sides = [data.snapshot, data.old]
	.filter(Boolean)
	.map((snapshot, side) => [snapshot, frames.add(snapshot), side]);
const compared = sides.length > 1;
// Of each traceback: its number, its process, and these figures.
const FIGURES = { size: 2, count: 3, allocated_size: 4, allocated_count: 5 };
const PARTS = 6;
// Of what is alive by thread and asyncio task: the traceback, the process, these two, and these.
const OWNERS = { thread: 2, task: 3 };
const OWNER_FIGURES = { size: 4, count: 5 };
const OWNER_PARTS = 6;
const ALL = -1, EACH = -2;
// The threads and the tasks of both snapshots, by their texts.
const owners = {}, owner_numbers = {};
for (const kind in OWNERS) {
	owners[kind] = [...new Set(sides.flatMap(([snapshot]) => snapshot[kind + "s"]))];
	owner_numbers[kind] = new Map(owners[kind].map((text, index) => [text, index]));
}
const has_allocated = sides.every(([snapshot]) => snapshot.allocated);

// Calls visit(traceback, amount, owner) for what is chosen, {figure, process, thread, task}. A
// thread or task of ALL adds all up; of EACH, that one is the owner that is told.
function each(snapshot, chosen, visit) {
	const kinds = Object.keys(OWNERS).filter((kind) => chosen[kind] !== ALL);
	const told = kinds.findIndex((kind) => chosen[kind] === EACH);
	const list = kinds.length ? snapshot.by_owner : snapshot.traces;
	const parts = kinds.length ? OWNER_PARTS : PARTS;
	const at = (kinds.length ? OWNER_FIGURES : FIGURES)[chosen.figure];
	if (at === undefined) return; // it is not known by thread what was allocated
	const numbers = kinds.map((kind) => snapshot[kind + "s"].map((text) => owner_numbers[kind].get(text)));
	for (let i = 0; i < list.length; i += parts) {
		if (!list[i + at] || (chosen.process >= 0 && list[i + 1] !== chosen.process)) continue;
		const of = kinds.map((kind, k) => numbers[k][list[i + OWNERS[kind]]]);
		if (kinds.every((kind, k) => k === told || of[k] === chosen[kind])) visit(list[i], list[i + at], of[told]);
	}
}

// A tree of frames, in arrays by node; node 0 is the root. Sums are those of a node with all below
// it: [new, old] by side. Built from the oldest frame down, or, inverted, from the most recent one.
class Tree {
	constructor(chosen, inverted) {
		this.frame = [-1];
		this.parent = [-1];
		this.children = [[]];
		this.sums = [[0], [0]];
		this.own = [[0], [0]];
		this.depth = [0];
		this.deepest = 0;
		this.places = new Map();
		for (const side of sides) this.addSide(side, chosen, inverted);
		for (const list of this.children) list.sort((a, b) => this.weight(b) - this.weight(a));
		this.places = null;
	}

	addSide([snapshot, numbers, side], chosen, inverted) {
		const { stacks, starts } = snapshot;
		const cut = new Set(snapshot.cut);
		each(snapshot, chosen, (traceback, amount) => {
			const first = starts[traceback], end = starts[traceback + 1];
			let node = 0;
			const down = (frame) => {
				node = this.child(node, frame);
				this.sums[side][node] += amount;
			};
			this.sums[side][0] += amount;
			if (!inverted && cut.has(traceback)) down(CUT);
			for (let j = first; j < end; j++)
				down(numbers[stacks[inverted ? j : first + end - 1 - j]]);
			if (inverted && cut.has(traceback)) down(CUT);
			this.own[side][node] += amount;
		});
	}

	child(parent, frame) {
		const key = parent * frames.list.length + frame;
		let node = this.places.get(key);
		if (node === undefined) {
			node = this.frame.length;
			this.places.set(key, node);
			this.frame.push(frame);
			this.parent.push(parent);
			this.children.push([]);
			for (const side of [0, 1]) {
				this.sums[side].push(0);
				this.own[side].push(0);
			}
			this.depth.push(this.depth[parent] + 1);
			this.deepest = Math.max(this.deepest, this.depth[node]);
			this.children[parent].push(node);
		}
		return node;
	}

	// What a node is drawn and sorted by: what only the older snapshot holds has no width.
	weight(node) {
		return this.sums[0][node];
	}
}

function total(snapshot, chosen) {
	let sum = 0;
	each(snapshot, chosen, (_, amount) => (sum += amount));
	return sum;
}

// Rows of a table: own and cumulative sums by line, function or file, as `tracer report` has them.
// A traceback counts once in a row's cumulative sum, however often recursion repeats its frames.
function tableRows(chosen, group) {
	if (group in OWNERS) return ownerRows(chosen, group);
	const rows = new Map();
	const row_of = frames.list.map((frame) => {
		const key = group === "file" ? frame.file
			: group === "function" ? frame.file + "\0" + frame.name
			: frame.file + "\0" + frame.line;
		let row = rows.get(key);
		if (!row) {
			row = { frame, own: [0, 0], all: [0, 0], last: -1 };
			rows.set(key, row);
		}
		return row;
	});
	let turn = 0;
	for (const [snapshot, numbers, side] of sides) {
		const { stacks, starts } = snapshot;
		each(snapshot, chosen, (traceback, amount) => {
			const first = starts[traceback], end = starts[traceback + 1];
			row_of[numbers[stacks[first]]].own[side] += amount;
			for (let j = first; j < end; j++) {
				const row = row_of[numbers[stacks[j]]];
				if (row.last === turn) continue;
				row.last = turn;
				row.all[side] += amount;
			}
			turn++;
		});
	}
	return [...rows.values()];
}

function ownerRows(chosen, kind) {
	const rows = owners[kind].map((text) => ({ frame: { file: text, name: "", line: 0 }, own: [0, 0], all: [0, 0] }));
	const one = chosen[kind] === ALL ? { ...chosen, [kind]: EACH } : chosen;
	for (const [snapshot, , side] of sides)
		each(snapshot, one, (_, amount, owner) => {
			const row = rows[owner ?? chosen[kind]];
			row.own[side] += amount;
			row.all[side] += amount;
		});
	return rows;
}

// Where a function has no name (files of tracemalloc), its file and line are shown, by the end of
// the path: its beginning is the same for most.
function frameTitle(frame) {
	return shown(frame.name || place(frame).split("/").slice(-2).join("/"));
}

function place(frame) {
	return frame.file + (frame.line ? ":" + frame.line : "");
}

// The package or folder that a file belongs to; colours go by it.
function moduleOf(frame) {
	if (frame.module === undefined) {
		const path = frame.file.replace(/\\/g, "/");
		const site = path.match(/(?:site|dist)-packages\/([^/]+)/);
		const library = path.match(/\/lib\/python[^/]*\/([^/]+)/);
		frame.module = site ? site[1] : library ? "python/" + library[1].replace(/\.py$/, "")
			: path.slice(0, path.lastIndexOf("/")) || path;
	}
	return frame.module;
}

function amountText(amount, figure) {
	return figure.endsWith("size") ? sizeText(amount)
		: amount.toLocaleString("en") + (amount === 1 ? " block" : " blocks");
}

function differenceText(amount, figure) {
	return (amount > 0 ? "+" : "") + amountText(amount, figure);
}
