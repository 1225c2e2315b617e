// Frames, and the trees that are drawn of stacks: of export's page, and of tracer serve. Every text
// comes from the traced process: it is only ever shown as text (textContent, fillText).

// Frames of several snapshots under one number each: {file, name, line}.
class Frames {
	constructor() {
		this.list = [];
		this.numbers = new Map();
		// Stands for the callers of tracebacks that were cut.
		this.cut = this.number("", "(callers that were not kept)", 0);
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

// A tree of frames, in arrays by node; node 0 is the root. Sums are those of a node with all below
// it: [new, old] by side; a tree of one side alone is not compared.
class StackTree {
	constructor(frames, compared) {
		Object.assign(this, { frames, compared });
		this.frame = [-1];
		this.parent = [-1];
		this.children = [[]];
		this.sums = [[0], [0]];
		this.own = [[0], [0]];
		this.depth = [0];
		this.deepest = 0;
		this.places = new Map();
	}

	// Adds what each() calls its argument with, a traceback and an amount: from the oldest frame
	// down, or, inverted, from the most recent one. numbers: those of the snapshot's frames.
	addSide(snapshot, numbers, side, inverted, each) {
		const { stacks, starts } = snapshot;
		const cut = new Set(snapshot.cut);
		each((traceback, amount) => {
			const first = starts[traceback], end = starts[traceback + 1];
			let node = 0;
			const down = (frame) => {
				node = this.child(node, frame);
				this.sums[side][node] += amount;
			};
			this.sums[side][0] += amount;
			if (!inverted && cut.has(traceback)) down(this.frames.cut);
			for (let j = first; j < end; j++)
				down(numbers[stacks[inverted ? j : first + end - 1 - j]]);
			if (inverted && cut.has(traceback)) down(this.frames.cut);
			this.own[side][node] += amount;
		});
	}

	// After all sides.
	complete() {
		for (const list of this.children) list.sort((a, b) => this.weight(b) - this.weight(a));
		this.places = null;
		return this;
	}

	child(parent, frame) {
		const key = parent * this.frames.list.length + frame;
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

	frameOf(node) {
		return this.frames.list[this.frame[node]];
	}
}

function framePlace(frame) {
	return frame.file + (frame.line ? ":" + frame.line : "");
}

// Where a function has no name (files of tracemalloc), its file and line are shown, by the end of
// the path: its beginning is the same for most.
function frameTitle(frame) {
	return shown(frame.name || framePlace(frame).split("/").slice(-2).join("/"));
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
