// The views: each makes the nodes of its place. choice: what the place says.

function notSeen(answer) {
	const lines = [];
	if (answer.cut) lines.push("References beyond the limit of work are missing: sizes are wrong.");
	if (answer.bytes_lost) lines.push(sizeText(answer.bytes_lost) + " of memory could not be copied.");
	if (answer.bytes_swapped) lines.push(sizeText(answer.bytes_swapped) + " on swap were not read.");
	if (answer.pools_unreadable) lines.push(many(answer.pools_unreadable, "pool", "pools") + " changed while they were copied.");
	if (answer.bytes_changed) lines.push("It ran meanwhile: " + sizeText(answer.bytes_changed) + " changed and were copied again.");
	if (answer.no_pymalloc) lines.push("It has no pymalloc heap: what nothing leads to is not seen.");
	if (answer.file_absent) lines.push("Names of types may be missing: " + answer.file_absent + " is not at hand.");
	return lines.length ? make("ul", {}, lines.map((line) => make("li", {}, line))) : make("p", {}, "All of the heap was read.");
}

const SIZES = [
	{ name: "Retained", of: (row) => row.retained_size, size: true },
	{ name: "Objects", of: (row) => row.retained_count },
	{ name: "Size", of: (row) => row.size, size: true },
	{ name: "Count", of: (row) => row.count },
];
// Without those that no row has.
const sizesOf = (rows) => SIZES.filter((column) => rows.some((row) => column.of(row) !== undefined));

// Whether the lines are known that allocated the objects of the heap that is shown.
const hasLines = () => sources[source]?.lines;

const KEYS = {
	type: { name: "Type", of: (row) => row.type_name, cell: (row) => [typeLink(row.type_name), " ",
		make("span", { class: "faint" }, link("paths", "why", { what: row.type_name }), " ",
			link("holders", "holders", { what: row.type_name }),
			hasLines() ? [" ", link("lines", "lines", { what: row.type_name })] : null)] },
	module: { name: "Module", of: (row) => row.module ?? "(no module)" },
	path: { name: "Path", of: (row) => row.path },
	root: { name: "Root", of: (row) => row.root, cell: (row) => link(row.root, "query", { q: "root = " + quoted(row.root) }) },
	container: { name: "Container", of: (row) => row.container ?? "", cell: (row) => [objectLink(row.container, row.address), " " + row.type_name] },
	line: { name: "Line", of: (row) => row.line ?? "older than the trace, " + (row.module ?? "(no module)"),
		cell: (row) => [KEYS.line.of(row), row.holder && row.size ? make("span", { class: "faint" }, " "
			+ (100 * row.holder_size / row.size).toFixed(0) + " % through " + row.holder) : null] },
	size: { name: "Size of each", of: (row) => row.from, cell: (row) => sizeText(row.from) + " and more" },
};

const groups = (caption, key, rows) => table(caption, [...sizesOf(rows), KEYS[key]], rows);

async function overview() {
	const [types, roots] = await Promise.all(["type", "root"].map((key) => askHeap("by", { key, top: 100 })));
	const proof = types.references;
	const share = (part) => proof.objects ? (100 * part / proof.objects).toFixed(2) + " %" : "none";
	return [make("h2", {}, types.name + " (PID " + types.pid + "), CPython " + types.python_version),
		facts([["Objects", countText(types.total.count)], ["Size", sizeText(types.total.size)],
			["References", countText(types.edges)],
			["Proof", "of " + many(proof.objects, "mortal object", "mortal objects") + ", " + share(proof.exact)
				+ " have as many references as their count says, and " + share(proof.all_found) + " have all of them"]]),
		make("h3", {}, "Not seen"), notSeen(types),
		kept && [make("h3", {}, "Not in this file"), make("p", {}, "It has all views, their first 100 rows, and "
			+ (kept.about.objects < kept.about.objects_total
				? countText(kept.about.objects) + " of " + many(kept.about.objects_total, "object", "objects")
					+ ": those of the largest nodes of the tree, then those that retain most"
				: "all objects") + ". Of the " + many(kept.about.types, "type", "types")
			+ " that retain most it has paths, holders and objects. What else is asked, tracer serve "
			+ kept.file + " answers.")],
		make("p", {}, link("Biggest objects", "query", { q: "retained > 0" })),
		groups("The first types", "type", types.statistics.slice(0, 20)),
		groups("What holds them", "root", roots.statistics.slice(0, 20))];
}

async function types(choice) {
	const keys = Object.keys(KEYS).filter((one) => one !== "line" || hasLines());
	const key = keys.includes(choice.key) ? choice.key : "type";
	const answer = await askHeap("by", { key, top: choice.top ?? 100 });
	const select = make("select", { id: "key", onchange: () => (location.hash = place("types", { key: select.value })) },
		keys.map((one) => make("option", { value: one, selected: one === key }, one)));
	const rows = answer.statistics;
	return [make("h2", {}, "What the heap consists of"), make("p", {}, make("label", {}, "By ", select)),
		groups(many(answer.total.count, "object", "objects") + ", " + sizeText(answer.total.size) + ", by " + key, key, rows),
		rows.length < (choice.top ?? 100) ? null : more("types", { key }, rows.length, 10000)];
}

async function treeView() {
	const { total } = await askHeap("by", { key: "type", top: 100 });
	const tree = new Tree(total.size);
	await tree.level(tree.root, "root", 1);
	return [make("h2", {}, "What would be freed with what"),
		make("p", { class: "hint" }, "Arrow keys open and move, Enter shows the object."), tree.root];
}

const keptQueries = () => make("details", { open: true }, make("summary", {}, "Queries that are in this file"),
	make("ul", {}, [...kept.keys()].filter((key) => key.startsWith("heap/query ")).map((key) => key.slice(11))
		.map((q) => make("li", {}, link(q, "query", { q })))));

async function query(choice) {
	const form = queryForm(choice.q ?? "", (q) => (location.hash = place("query", { q })));
	const head = [make("h2", {}, "Objects for which a condition is true"), kept ? keptQueries() : form];
	if (!choice.q) return head;
	try {
		const answer = await askHeap("query", { q: choice.q, top: choice.top ?? 100 });
		const { total, objects } = answer;
		return [...head, make("p", {}, many(total.count, "object", "objects") + ", " + sizeText(total.size) + "; "
			+ sizeText(total.retained_size) + " would be freed with them"),
		table("Objects, the largest first", [
			{ name: "Retained", of: (row) => row.retained_size, size: true },
			{ name: "Size", of: (row) => row.size, size: true },
			{ name: "Address", of: (row) => row.address, cell: (row) => objectLink(addressText(row.address), row.address) },
			{ name: "Type", of: (row) => row.type_name },
			{ name: "Path", of: (row) => row.path ?? row.name ?? "" },
		], objects), more("query", { q: choice.q }, objects.length, total.count)];
	} catch (error) {
		return [...head, make("p", { role: "alert" }, error.message)];
	}
}

function pathNodes(path) {
	return [make("p", {}, many(path.count, "object", "objects") + ", " + sizeText(path.size) + ", retained "
		+ sizeText(path.retained_size)), path.expression ? make("code", {}, path.expression) : null,
	make("ol", { class: "path" }, path.steps.map((step) => make("li", {}, step.kind + " " + step.name + " → ",
		objectLink(step.type_name, step.address), step.function ? " of " + step.function : "",
		step.repeated_most ? ", " + step.repeated + " to " + step.repeated_most + " times" : "",
		step.guess ? " (a guess)" : ""))),
	path.cut ? make("p", {}, "The path is longer: its beginning is left out.") : null];
}

async function why(choice) {
	const answer = await askHeap("why", { what: choice.what, top: choice.top ?? 20 });
	return [make("h2", {}, "Paths to " + choice.what), make("p", { class: "hint" }, "The shortest from a root to each object, by kind."),
		answer.paths.map(pathNodes), more("why", { what: choice.what }, answer.paths.length, answer.paths_total)];
}

async function holders(choice) {
	const answer = await askHeap("holders", { what: choice.what, top: choice.top ?? 100 });
	return [make("h2", {}, "What refers to " + choice.what), table("References by kind", [
		{ name: "Count", of: (row) => row.count },
		{ name: "Kind", of: (row) => row.kind },
		{ name: "Name", of: (row) => row.name },
		{ name: "Of", of: (row) => row.type_name, cell: (row) => objectLink(row.type_name, row.address) },
	], answer.holders), more("holders", { what: choice.what }, answer.holders.length, answer.holders_total)];
}

async function lines(choice) {
	const answer = await askHeap("lines", { what: choice.what, top: choice.top ?? 100 }), rows = answer.statistics;
	return [make("h2", {}, "Lines that allocated " + choice.what),
		groups(many(answer.total.count, "object", "objects") + ", " + sizeText(answer.total.size), "line", rows),
		rows.length < (choice.top ?? 100) ? null : more("lines", { what: choice.what }, rows.length, 10000)];
}

// The stack that allocated an object. Nothing where no lines are known.
function allocated(answer) {
	if (answer.line === undefined) return null;
	if (answer.line === null) return [make("h3", {}, "Allocated by"), make("p", {}, "A line that was not seen: it is older than the trace.")];
	const frames = answer.traceback.length ? answer.traceback : [{ line: answer.line, function: "" }];
	return [make("h3", {}, "Allocated by"), make("ol", { class: "path", id: "allocated" }, frames.map((frame) =>
		make("li", {}, frame.line + (frame.function ? " in " + frame.function : ""))))];
}

const references = (caption, rows) => table(caption, [
	{ name: "Kind", of: (row) => row.kind },
	{ name: "Name", of: (row) => row.name },
	{ name: "Address", of: (row) => row.address, cell: (row) => addressText(row.address) },
	{ name: "Type", of: (row) => row.type_name, cell: (row) => objectLink(row.type_name, row.address) },
], rows);

async function object(choice) {
	if (!choice.at) {
		const input = make("input", { id: "address", autocomplete: "off", placeholder: "0x7f…" });
		return [make("h2", {}, "An object"), make("form", { id: "asked", onsubmit: (event) => {
			event.preventDefault();
			location.hash = place("object", { at: input.value.trim() });
		} }, make("label", {}, "Address ", input), make("button", { type: "submit" }, "Show"))];
	}
	const top = choice.top ?? 100;
	const [answer, paths] = await Promise.all([askHeap("show", { address: choice.at, top }),
		askHeap("why", { what: choice.at, top: 1 })]);
	return [make("h2", {}, answer.type_name + " at " + addressText(answer.address)),
		facts([["Value", answer.value ?? undefined], ["Size", sizeText(answer.size)], ["Retained", sizeText(answer.retained_size)],
			["Reference count", answer.refcount === null ? "immortal" : countText(answer.refcount) + ", found " + countText(answer.found)]]),
		allocated(answer), make("h3", {}, "Path from a root"), paths.paths.map(pathNodes),
		make("h3", {}, "Holds"), references(many(answer.references_out_total, "reference to an object", "references to objects"), answer.references_out),
		more("object", { at: choice.at }, answer.references_out.length, answer.references_out_total),
		make("h3", {}, "Is held by"), references(many(answer.references_in_total, "reference from an object", "references from objects"), answer.references_in),
		more("object", { at: choice.at }, answer.references_in.length, answer.references_in_total)];
}

async function waste(choice) {
	const answer = await askHeap("waste", { top: choice.top ?? 100 });
	return [make("h2", {}, "Waste: " + sizeText(answer.waste)), table("By kind, in bytes that the same contents would not need", [
		{ name: "Size", of: (row) => row.size, size: true }, { name: "Count", of: (row) => row.count },
		{ name: "Groups", of: (row) => row.groups }, { name: "Kind", of: (row) => row.kind + " " + row.type },
	], answer.kinds), table("By contents of texts and by kind of path to tables", [
		{ name: "Size", of: (row) => row.size, size: true }, { name: "Count", of: (row) => row.count },
		{ name: "Length", of: (row) => row.length }, { name: "Kind", of: (row) => row.kind + " " + row.type },
		{ name: "For example", of: (row) => row.example, cell: (row) => [objectLink(row.example, row.address), row.value ? ": " + row.value : ""] },
	], answer.statistics), more("waste", {}, answer.statistics.length, answer.statistics_total)];
}

async function cycles(choice) {
	const answer = await askHeap("cycles", { top: choice.top ?? 100 }), { total } = answer;
	return [make("h2", {}, "Cycles: " + countText(total.cycles)), facts([["Size", sizeText(total.size)],
		["Objects", countText(total.count)], ["Garbage", countText(total.garbage) + ", " + sizeText(answer.garbage_size)],
		["In gc.garbage", countText(total.in_gc_garbage) + ", " + sizeText(answer.in_gc_garbage_size)],
		["Frozen garbage", countText(total.frozen) + ", " + sizeText(answer.frozen_size)]]),
	table("By the types in a cycle", [
		{ name: "Retained", of: (row) => row.retained_size, size: true }, { name: "Cycles", of: (row) => row.cycles },
		{ name: "Garbage", of: (row) => row.garbage }, { name: "Objects", of: (row) => row.count },
		{ name: "Types", of: (row) => row.types.join(", "), cell: (row) => [objectLink(row.types.join(", "), row.address), " " + row.example] },
	], answer.statistics), more("cycles", {}, answer.statistics.length, answer.statistics_total)];
}
