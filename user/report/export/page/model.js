// The snapshot as the page's data holds it, and the trees that are drawn of it.

const data = JSON.parse(document.getElementById("data").textContent);

const frames = new Frames();
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

class Tree extends StackTree {
	constructor(chosen, inverted) {
		super(frames, compared);
		for (const [snapshot, numbers, side] of sides)
			this.addSide(snapshot, numbers, side, inverted, (add) => each(snapshot, chosen, add));
		this.complete();
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

function amountText(amount, figure) {
	return figure.endsWith("size") ? sizeText(amount)
		: amount.toLocaleString("en") + (amount === 1 ? " block" : " blocks");
}

function differenceText(amount, figure) {
	return (amount > 0 ? "+" : "") + amountText(amount, figure);
}
