// Two things side by side: snapshots, their processes, threads, tasks or values, or heaps.

const BY = {
	snapshot: { lineno: "line", function: "function", filename: "file" },
	heap: { type: "type", module: "module", path: "path" },
};
// Of a table: what is beyond is found with the filter.
const COMPARED_ROWS = 1000, COMPARED_TOP = 10000;

function comparedText(part) {
	if (part.kind === "process") return "process " + part.name + " (PID " + part.pid + ")";
	if (part.kind === "thread") return "thread " + (part.name || "without a name") + " (TID " + part.part.split("/")[2] + ")";
	return part.kind + " " + (part.name || "(none)");
}

// {label, options: [{value, text, kind, whole}]}, by source.
async function comparables() {
	const heaps = sources.filter((one) => one.kind === "heap").map((one) => ({ value: String(one.source), kind: "heap",
		pid: one.pid, text: one.file + ": " + one.name + " (PID " + one.pid + ")" }));
	const snapshots = await Promise.all(sources.filter((one) => one.snapshot).map(async (one) => {
		const { parts } = await ask("parts", { source: one.source });
		return { label: one.file, options: parts.map((part) => ({ value: part.part, kind: "snapshot",
			whole: part.kind === "snapshot", text: part.kind === "snapshot" ? one.file : comparedText(part)
				+ ": " + sizeText(part.size) })) };
	}));
	return [...snapshots, { label: "Heaps", options: heaps }].filter((group) => group.options.length);
}

function comparedSelect(label, id, groups, chosen, none, change) {
	const option = (one) => make("option", { value: one.value, selected: one === chosen }, one.text);
	const select = make("select", { id, onchange: () => change(select.value) },
		none ? make("option", { value: "" }, "(none)") : null,
		groups.map((group) => groups.length > 1 ? make("optgroup", { label: shown(group.label) }, group.options.map(option))
			: group.options.map(option)));
	return make("label", {}, label + " ", select);
}

const signed = (text, number) => number > 0 ? "+" + text : text.replace(/^-/, "−");
const error = (row, key, text) => row[key + "_error"] ? " ± " + text(row[key + "_error"]) : "";

// Columns of a figure and of its growth.
const figures = (key, name, text) => [
	{ name, of: (row) => row[key], cell: (row) => text(row[key]) + error(row, key, text) },
	{ name: name + ", growth", of: (row) => row[key + "_diff"],
		cell: (row) => signed(text(row[key + "_diff"]), row[key + "_diff"]) + error(row, key + "_diff", text) },
];

function frameText(frame) {
	const file = frame.filename + (frame.lineno ? ":" + frame.lineno : "");
	return frame.function ? frame.function + " (" + file + ")" : file;
}

// A table with a filter by the text of its last column, which choice.q and the address keep.
function filtered(caption, columns, rows, choice) {
	const name = columns[columns.length - 1].of, sheet = table(caption, columns, [], COMPARED_ROWS);
	const note = make("p", { class: "hint", role: "status" });
	const input = make("input", { id: "filter", type: "search", autocomplete: "off", spellcheck: "false",
		value: choice.q ?? "", oninput: () => fill() });
	const fill = () => {
		const wanted = input.value.toLowerCase(), found = rows.filter((row) => name(row).toLowerCase().includes(wanted));
		sheet.show(found);
		note.replaceChildren(many(found.length, "row", "rows")
			+ (found.length > COMPARED_ROWS ? ", the first " + countText(COMPARED_ROWS) + " of them are shown" : "")
			+ (rows.length === COMPARED_TOP ? "; those beyond the first " + countText(COMPARED_TOP) + " are left out" : ""));
		if (input.value) choice.q = input.value;
		else delete choice.q;
		history.replaceState(null, "", place("compare", choice));
	};
	fill();
	return [make("p", {}, make("label", {}, "Filter ", input)), note, sheet];
}

async function comparedSnapshots(a, b, by, choice) {
	const answer = await ask("compare", { a: a.value, b: b.value, by, top: COMPARED_TOP }), { total } = answer;
	const change = (key, text) => signed(text(total[key + "_diff"]), total[key + "_diff"]);
	return [facts([["A", sizeText(total.size - total.size_diff) + " in " + many(total.count - total.count_diff, "block", "blocks")],
		["B", sizeText(total.size) + " in " + many(total.count, "block", "blocks")],
		["Growth", change("size", sizeText) + ", " + change("count", countText) + " blocks"]]),
	filtered("What has grown and shrunk by " + BY.snapshot[by], [
		...figures("size", "Bytes", sizeText),
		{ name: "Share", of: (row) => total.size ? row.size / total.size : 0,
			cell: (row) => total.size ? (100 * row.size / total.size).toFixed(1) + " %" : "" },
		...figures("count", "Blocks", countText),
		{ name: "Where", of: (row) => frameText(row.traceback[0]) },
	], answer.statistics, choice),
	make("h3", {}, "Difference flame graph"),
	make("iframe", { title: "Difference flame graph", src: "/compare?" + new URLSearchParams({ a: a.value, b: b.value }) })];
}

async function comparedHeaps(a, b, c, by, choice) {
	const asked = { a: a.value, b: b.value, by, top: COMPARED_TOP };
	const { statistics } = await ask("heap/diff", c ? { ...asked, c: c.value } : asked);
	const name = { type: (row) => row.type_name, module: (row) => row.module ?? "(no module)", path: (row) => row.path }[by];
	const all = [a, b, c].filter(Boolean);
	return [all.some((one) => one.pid !== a.pid) ? make("p", {}, "They are of different processes.") : null,
		c ? make("p", { class: "hint" }, "Stayed: what B has and A has not, and is still in C.") : null,
		filtered("What has changed from A to B by " + by, [
			...c ? [{ name: "Stayed", of: (row) => row.stayed_size, size: true }, { name: "Stayed, count", of: (row) => row.stayed_count }] : [],
			...figures("size", "Size", sizeText), ...figures("count", "Count", countText),
			{ name: by[0].toUpperCase() + by.slice(1), of: name, cell: (row) => by === "type"
				? link(row.type_name, "query", { q: "type = " + quoted(row.type_name), source: b.value }) : name(row) },
		], statistics, choice)];
}

// Those that are chosen, or the first that are alike: [a, b, c].
function comparedNow(all, choice) {
	const find = (value) => all.find((one) => one.value === value);
	const snapshots = all.filter((one) => one.kind === "snapshot");
	const alike = [snapshots.filter((one) => one.whole), snapshots.filter((one) => !one.whole),
		all.filter((one) => one.kind === "heap")].find((list) => list.length > 1) ?? all;
	const a = find(choice.a) ?? alike[0], peers = all.filter((one) => one.kind === a.kind);
	const b = [find(choice.b), ...alike, ...peers].find((one) => one && one.kind === a.kind && (one !== a || one.value === choice.b));
	const c = find(choice.c);
	return [a, b ?? a, a.kind === "heap" && c?.kind === "heap" ? c : undefined];
}

async function compare(choice) {
	const groups = await comparables(), all = groups.flatMap((group) => group.options);
	const [a, b, c] = comparedNow(all, choice), heaps = a.kind === "heap";
	const words = BY[a.kind], by = words[choice.by] ? choice.by : Object.keys(words)[0];
	const now = { a: a.value, b: b.value, by, ...c ? { c: c.value } : {}, ...choice.q ? { q: choice.q } : {} };
	const go = (changed) => (location.hash = place("compare", { ...now, ...changed }));
	const same = groups.map((group) => ({ ...group, options: group.options.filter((one) => one.kind === a.kind) }))
		.filter((group) => group.options.length);
	const later = (value) => {
		const { c: _, ...rest } = now;
		location.hash = place("compare", value ? { ...rest, c: value } : rest);
	};
	const select = make("select", { id: "by", onchange: () => go({ by: select.value }) },
		Object.entries(words).map(([word, text]) => make("option", { value: word, selected: word === by }, text)));
	return [make("h2", {}, "Compare"), make("form", { id: "compared", onsubmit: (event) => event.preventDefault() },
		comparedSelect("A, older", "a", groups, a, false, (value) => go({ a: value })),
		comparedSelect("B, newer", "b", same, b, false, (value) => go({ b: value })),
		heaps && all.filter((one) => one.kind === "heap").length > 2 ? comparedSelect("C, later", "c", same, c, true, later) : null,
		make("label", {}, "By ", select),
		make("button", { type: "button", onclick: () => go({ a: b.value, b: a.value }) }, "Swap A and B")),
	...heaps ? await comparedHeaps(a, b, c, by, now) : await comparedSnapshots(a, b, by, now)];
}

const canCompare = () => sources.some((one) => one.snapshot) || sources.filter((one) => one.kind === "heap").length > 1;
