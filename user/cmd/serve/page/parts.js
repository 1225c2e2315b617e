// Nodes, requests and tables. Every text in an answer comes from the process that was read: it is
// only ever shown as text.

const $ = (id) => document.getElementById(id);

// make("a", { href }, "text", node): texts are shown as text; "onclick" and others are listeners.
function make(name, attributes = {}, ...children) {
	const node = document.createElement(name);
	for (const [key, value] of Object.entries(attributes)) {
		if (key.startsWith("on")) node.addEventListener(key.slice(2), value);
		else if (value !== undefined && value !== null && value !== false)
			node.setAttribute(key, value === true ? "" : value);
	}
	for (const child of children.flat(Infinity))
		if (child !== undefined && child !== null && child !== "")
			node.append(child instanceof Node ? child : shown(String(child)));
	return node;
}

const countText = (count) => count.toLocaleString("en");
const addressText = (address) => "0x" + address.toString(16);
const many = (count, one, others) => countText(count) + " " + (count === 1 ? one : others);

// The source that is shown; a heap's answers are of it.
let source = 0;

// Where a view is: "#query?q=type+%3D+dict".
function place(view, choice = {}) {
	const words = new URLSearchParams(choice);
	if (source && choice.source === undefined) words.set("source", source);
	const text = words.toString();
	return "#" + view + (text ? "?" + text : "");
}

const link = (text, view, choice) => make("a", { href: place(view, choice) }, text || "(no name)");
const objectLink = (text, address) => link(text, "object", { at: addressText(address) });
const typeLink = (type) => link(type, "query", { q: 'type = "' + type.replace(/["\\]/g, "\\$&") + '"' });

// The answers of an exported file: JSON, by path and what is asked about. null: a server answers.
let kept = null;

// Why a click leads to nothing.
const cutText = () => "This is not in the file, which has what is largest: tracer serve " + kept.file + " shows it.";

// In the file they are lines of two values, packed.
async function keptRead(packed) {
	const bytes = Uint8Array.from(atob(packed), (letter) => letter.charCodeAt(0));
	const lines = await new Response(new Blob([bytes]).stream().pipeThrough(new DecompressionStream("gzip"))).text();
	kept = new Map();
	for (const line of lines.split("\n")) {
		const [key, answer] = line.split("\t");
		if (answer) kept.set(JSON.parse(key), answer);
	}
	kept.about = JSON.parse(kept.get("file "));
	kept.file = kept.about.file;
}

// The answer to a question; an Error with what the server says.
async function ask(path, choice = {}) {
	if (kept) {
		const about = Object.entries(choice).filter(([name]) => name !== "source" && name !== "top");
		const answer = kept.get(path + " " + about.map(([, value]) => value).join(" "));
		if (!answer) throw new Error(cutText());
		return JSON.parse(answer);
	}
	const answer = await fetch("/api/" + path + "?" + new URLSearchParams(choice));
	if (!answer.ok) throw new Error((await answer.text()).trim());
	return answer.json();
}

const askHeap = (question, choice = {}) =>
	ask("heap/" + question, source ? { ...choice, source } : choice);

// columns: {name, of: row => what it is sorted by, cell: row => what is shown (left out: that),
// size: true: bytes}. The last column is text. most: rows that are shown. The node's show(rows) shows
// others, in the same order.
function table(caption, columns, rows, most = Infinity) {
	const body = make("tbody");
	const heads = [];
	const first = columns[0], largest = first.size ? rows.reduce((max, row) => Math.max(max, first.of(row) ?? 0), 0) : 0;
	let sorted = null;
	const fill = () => body.replaceChildren(...rows.slice(0, most).map((row) => make("tr", {}, columns.map((column) => {
		const value = column.of(row);
		const cell = make("td", { class: typeof value !== "number" && "text" }, column.cell ? column.cell(row)
			: typeof value !== "number" ? value
			: column.size ? sizeText(value) : countText(value));
		return column === first && largest ? bar(cell, value, largest) : cell;
	}))));
	const order = () => {
		if (!sorted) return;
		const sign = sorted.falls ? -1 : 1, of = columns[sorted.number].of;
		rows = [...rows].sort((a, b) => {
			const x = of(a) ?? -1, y = of(b) ?? -1;
			return sign * (x < y ? -1 : x > y ? 1 : 0);
		});
	};
	const sort = (number) => {
		const falls = heads[number].getAttribute("aria-sort") !== "descending";
		sorted = { number, falls };
		order();
		heads.forEach((head) => head.removeAttribute("aria-sort"));
		heads[number].setAttribute("aria-sort", falls ? "descending" : "ascending");
		fill();
	};
	columns.forEach((column, number) => heads.push(make("th", { scope: "col",
		class: (rows.length ? typeof column.of(rows[0]) === "string" : number === columns.length - 1) && "text" },
		make("button", { type: "button", onclick: () => sort(number) }, column.name))));
	fill();
	const sheet = make("div", { class: "scroll", tabindex: 0, role: "region", "aria-label": caption },
		make("table", {}, make("caption", {}, caption), make("thead", {}, make("tr", {}, heads)), body));
	sheet.show = (others) => {
		rows = others;
		order();
		fill();
	};
	return sheet;
}

// A button for more rows, if there are any: the same place with another number of them.
function more(view, choice, have, total) {
	if (have >= total || have >= 10000) return null;
	if (kept) return make("p", { class: "more" }, "The others are not in this file.");
	const top = Math.min(10 * Math.max(have, 10), 10000);
	return make("p", { class: "more" }, link("Show more of " + countText(total), view, { ...choice, top }));
}

// The page's policy allows no style in attributes.
function bar(node, part, whole) {
	if (!(part >= 0) || !(whole > 0)) return node;
	node.classList.add("bar");
	node.style.setProperty("--share", (100 * Math.min(1, part / whole)).toFixed(1) + "%");
	return node;
}

const facts = (entries) => make("dl", {}, entries.filter((entry) => entry[1] !== undefined)
	.map(([name, value]) => [make("dt", {}, name), make("dd", {}, value)]));
