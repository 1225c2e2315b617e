// The page: its controls, the table, the tree, and what is said of a frame.

const $ = (id) => document.getElementById(id);
const ROWS_MAX = 500;

function element(tag, text, class_name) {
	const made = document.createElement(tag);
	if (text !== undefined) made.textContent = text;
	if (class_name) made.className = class_name;
	return made;
}

const trees = new Map();

// What is shown of the snapshots. By thread and task only what is alive is known.
function chosenNow() {
	const figure = $("figure").value;
	return {
		figure,
		process: Number($("process").value),
		thread: figure in OWNER_FIGURES ? Number($("thread").value) : ALL,
		task: figure in OWNER_FIGURES ? Number($("task").value) : ALL,
	};
}

function treeNow(inverted) {
	const chosen = chosenNow();
	const key = [...Object.values(chosen), inverted].join();
	if (!trees.has(key)) trees.set(key, new Tree(chosen, inverted));
	return trees.get(key);
}

function amounts(node, tree, sums) {
	const figure = $("figure").value;
	const now = sums[0][node], total = tree.sums[0][0];
	const text = amountText(now, figure) + (total ? ` (${((100 * now) / total).toFixed(1)} %)` : "");
	return compared ? text + ", " + differenceText(now - sums[1][node], figure) : text;
}

function detailShow(tree, node) {
	const detail = $("detail");
	detail.replaceChildren();
	if (!node) {
		detail.append(element("p", "all: " + amounts(0, tree, tree.sums)));
		return;
	}
	const frame = tree.frameOf(node);
	detail.append(
		element("p", frameTitle(frame), "name"),
		element("p", shown(framePlace(frame)), "faint"),
		element("p", `${amounts(node, tree, tree.sums)}; of its own ${amounts(node, tree, tree.own)}`));
	const source = data.source && data.source[framePlace(frame)];
	if (source) {
		const lines = element("pre");
		for (const [number, text] of source)
			lines.append(element("span", `${String(number).padStart(6)}  ${shown(text)}\n`,
				number === frame.line ? "mine" : "faint"));
		detail.append(lines);
	}
}

const graph = new Graph($("canvas"), $("scroll"), $("height"), detailShow);

// --- the table -----------------------------------------------------------------------------------

let sorted_by = 0;

function columns() {
	const figure = $("figure").value;
	const amount = (title, value) => ({ title, value, text: (row) => amountText(value(row), figure) });
	const list = [amount("Own", (row) => row.own[0])];
	if (!($("group").value in OWNERS)) list.push(amount("With callees", (row) => row.all[0]));
	if (compared)
		list.push({
			title: "Own, change",
			value: (row) => Math.abs(row.own[0] - row.own[1]),
			text: (row) => differenceText(row.own[0] - row.own[1], figure),
		});
	return list;
}

function rowName(frame) {
	const group = $("group").value;
	return shown(group === "file" ? frame.file
		: group === "function" ? (frame.name || "?") + " (" + frame.file + ")"
		: framePlace(frame));
}

// A path that may break after each of its folders.
function pathCell(text) {
	const cell = element("td");
	for (const part of text.split(/(?<=\/)/)) cell.append(part, element("wbr"));
	return cell;
}

function tableShow() {
	const list = columns(), pattern = patternNow();
	const head = $("sheet").querySelector("thead tr"), body = $("sheet").querySelector("tbody");
	sorted_by = Math.min(sorted_by, list.length - 1);
	head.replaceChildren(...list.map((column, index) => {
		const cell = element("th"), button = element("button", column.title);
		cell.setAttribute("aria-sort", index === sorted_by ? "descending" : "none");
		button.type = "button";
		button.addEventListener("click", () => {
			sorted_by = index;
			tableShow();
		});
		cell.append(button);
		return cell;
	}), element("th", "Where"));
	const rows = tableRows(chosenNow(), $("group").value)
		.filter((row) => (row.all[0] || row.all[1]) && (!pattern || pattern.test(rowName(row.frame))))
		.sort((a, b) => list[sorted_by].value(b) - list[sorted_by].value(a));
	body.replaceChildren(...rows.slice(0, ROWS_MAX).map((row) => {
		const line = element("tr");
		line.append(...list.map((column) => element("td", column.text(row))), pathCell(rowName(row.frame)));
		return line;
	}));
	$("more").textContent = rows.length > ROWS_MAX ? `${rows.length - ROWS_MAX} more rows: search narrows them`
		: $("group").value in OWNERS && !($("figure").value in OWNER_FIGURES) ? `Only of what is alive the ${$("group").value} is known.`
		: "";
}

// --- the tree ------------------------------------------------------------------------------------

function branch(tree, node) {
	const list = element("ul");
	const children = tree.children[node];
	for (const child of children.slice(0, ROWS_MAX)) {
		const frame = tree.frameOf(child);
		const parts = [element("span", frameTitle(frame)), " ",
			element("span", amounts(child, tree, tree.sums), "faint")];
		const item = element("li");
		item.title = shown(framePlace(frame));
		if (!tree.children[child].length) {
			item.append(...parts);
			item.className = "leaf";
		} else {
			const details = element("details"), summary = element("summary");
			summary.append(...parts);
			details.append(summary);
			details.addEventListener("toggle", () => {
				if (details.open && details.childElementCount === 1) details.append(branch(tree, child));
				if (details.open) detailShow(tree, child);
			});
			item.append(details);
		}
		list.append(item);
	}
	if (children.length > ROWS_MAX) list.append(element("li", `${children.length - ROWS_MAX} more`, "faint"));
	return list;
}

// --- the controls --------------------------------------------------------------------------------

function patternNow() {
	const text = $("search").value;
	if (!text) return null;
	try {
		return new RegExp(text, "i");
	} catch {
		return new RegExp(text.replace(/[.*+?^${}()|[\]\\]/g, "\\$&"), "i");
	}
}

// What the frames that match hold: a traceback counts once.
function found(tree, graph_pattern) {
	let sum = 0;
	const todo = [0];
	while (todo.length) {
		const node = todo.pop();
		const frame = tree.frameOf(node);
		if (frame && (graph_pattern.test(frame.name) || graph_pattern.test(framePlace(frame)))) sum += tree.sums[0][node];
		else for (const child of tree.children[node]) todo.push(child);
	}
	const total = tree.sums[0][0];
	return amountText(sum, $("figure").value) + (total ? ` (${((100 * sum) / total).toFixed(1)} %)` : "") + " match";
}

function searchShow() {
	graph.pattern = patternNow();
	$("found").textContent = graph.pattern ? found(treeNow(false), graph.pattern) : "";
}

function totalsText() {
	const totals = ["size", "count"].map((figure) =>
		sides.map(([snapshot]) => total(snapshot, { ...chosenNow(), figure })));
	const texts = ["size", "count"].map((figure, i) => amountText(totals[i][0], figure) +
		(compared ? ` (${differenceText(totals[i][0] - totals[i][1], figure)})` : ""));
	return texts.join(" in ") + (compared ? ", compared with " + shown(data.old.name) : "");
}

function show() {
	const view = $("view").value, figure = $("figure").value;
	const drawn = view === "flame" || view === "icicle";
	$("graph").hidden = !drawn;
	$("sheet").hidden = view !== "table";
	$("groups").hidden = view !== "table";
	$("turned").hidden = !(drawn || view === "tree");
	$("reset").hidden = !drawn;
	for (const kind in OWNERS) $(kind + "s").hidden = owners[kind].length < 2 || !(figure in OWNER_FIGURES);
	$("outline").hidden = view !== "tree";
	$("notes").hidden = view !== "notes";
	$("detail").hidden = !(drawn || view === "tree");
	const tree = treeNow($("inverted").checked);
	searchShow();
	if (drawn) graph.show(tree, figure, view === "flame");
	if (view === "table") tableShow();
	if (view === "tree") $("outline").replaceChildren(branch(tree, 0));
	detailShow(tree, 0);
	$("totals").textContent = totalsText();
}

// "all", and each text by its index.
function optionsPut(select, texts) {
	select.append(...["all", ...texts].map((text, index) => {
		const option = element("option", shown(text));
		option.value = index - 1;
		return option;
	}));
}

function start() {
	document.title = shown(data.snapshot.name) + " - tracer";
	$("title").textContent = shown(data.snapshot.title);
	$("notes").querySelector("pre").textContent = shown(data.notes.join("\u0001")).replaceAll("\\u0001", "\n");
	optionsPut($("process"), data.snapshot.processes);
	for (const kind in OWNERS) {
		optionsPut($(kind), owners[kind]);
		if (owners[kind].length < 2) $("group").querySelector(`[value=${kind}]`).remove();
	}
	if (data.snapshot.label)
		for (const node of [$("tasks").firstChild, $("group").querySelector("[value=task]")])
			if (node) node.textContent = shown(data.snapshot.label) + " ";
	if (compared) $("colors").textContent = "▲ red has grown, ▼ blue with stripes has shrunk; frames are as wide as in the newer one. ";
	for (const option of [...$("figure").options]) if (option.value.startsWith("alloc") && !has_allocated) option.remove();
	$("processes").hidden = data.snapshot.processes.length < 2;
	for (const id of ["view", "figure", "process", "thread", "task", "group", "inverted"]) $(id).addEventListener("change", show);
	$("controls").addEventListener("submit", (event) => event.preventDefault());
	$("search").addEventListener("input", () => {
		searchShow();
		if ($("view").value === "table") tableShow();
		graph.draw();
	});
	$("reset").addEventListener("click", () => graph.tree && graph.zoomTo(0));
	document.addEventListener("keydown", (event) => {
		if (event.key === "/" && document.activeElement !== $("search")) {
			$("search").focus();
			event.preventDefault();
		}
	});
	if (location.hash.length > 1 && [...$("view").options].some((o) => "#" + o.value === location.hash))
		$("view").value = location.hash.slice(1);
	show();
}

start();
