// The line of a query, with completion of fields, operators, values and what combines them.

const TOKEN = /"(?:[^"\\]|\\.)*"?|'(?:[^'\\]|\\.)*'?|[()]|[!<>=~]+|[^\s()"'!<>=~]+/g;
// Of these fields the values are known: as the table of what they are has them.
const VALUES = { type: (row) => row.type_name, root: (row) => row.root };
let query_fields;
const query_values = new Map(); // by source and field

async function fieldsLoad() {
	query_fields ??= (await ask("query-fields")).fields;
}

const valuesOf = (field) => query_values.get(source + " " + field);

// Only when they are offered: the server has one thread, and a query is to be answered first.
async function valuesLoad(field) {
	const key = source + " " + field;
	if (query_values.has(key)) return;
	query_values.set(key, []);
	try {
		query_values.set(key, (await askHeap("by", { key: field, top: 1000 })).statistics.map(VALUES[field]));
	} catch (error) {
		query_values.delete(key); // it is asked for again
		throw error;
	}
}

const quoted = (text) => /^[\w.*<>-]+$/.test(text) ? text : '"' + text.replace(/["\\]/g, "\\$&") + '"';

// Of the text before the caret {begin: where what is typed begins, options: [{text, help}], lacks: the
// field whose values are not there yet}.
function complete(text) {
	const tokens = [...text.matchAll(TOKEN)];
	const last = tokens[tokens.length - 1];
	const typed = last && last.index + last[0].length === text.length && last[0] !== "(" ? tokens.pop()[0] : "";
	let state = "field", field;
	for (const [token] of tokens) {
		if (state === "field") {
			if (token === "(" || token === "not") continue;
			field = query_fields.find((one) => one.field === token);
			state = "operator";
		} else if (state === "operator") {
			state = "value";
		} else if (state === "value") {
			state = "end";
		} else if (token === "and" || token === "or") {
			state = "field";
		}
	}
	const options = {
		field: () => [...query_fields.map((one) => ({ text: one.field, help: one.help })), { text: "not", help: "the opposite" }],
		operator: () => (field ? field.operators.split(" ") : []).map((one) => ({ text: one, help: "" })),
		value: () => (field && valuesOf(field.field) || []).map((one) => ({ text: quoted(one), help: "" })),
		end: () => [{ text: "and", help: "both" }, { text: "or", help: "at least one" }],
	}[state]();
	const bare = typed.replace(/^["']/, "").toLowerCase();
	const fits = options.filter((one) => one.text !== typed && (state === "value"
		? one.text.toLowerCase().includes(bare) : one.text.startsWith(typed)));
	const lacks = state === "value" && field && VALUES[field.field] && !valuesOf(field.field) ? field.field : undefined;
	return { begin: text.length - typed.length, options: fits.slice(0, 30), lacks };
}

// The form. submit(text) is called with a whole query.
function queryForm(text, submit) {
	let options = [], begin = 0, chosen = -1;
	const list = make("ul", { role: "listbox", id: "completions", "aria-label": "Completions", hidden: true });
	const input = make("input", { id: "query", type: "text", role: "combobox", "aria-autocomplete": "list",
		"aria-expanded": "false", "aria-controls": "completions", "aria-label": "Query", autocomplete: "off",
		spellcheck: "false", maxlength: 4096, placeholder: "type = dict and retained > 1M" });
	input.value = text;
	const close = () => {
		list.hidden = true;
		chosen = -1;
		input.setAttribute("aria-expanded", false);
		input.removeAttribute("aria-activedescendant");
	};
	const choose = (number) => {
		chosen = number;
		[...list.children].forEach((item, index) => item.setAttribute("aria-selected", index === chosen));
		list.children[chosen]?.scrollIntoView({ block: "nearest" });
		input.setAttribute("aria-activedescendant", "completion" + chosen);
	};
	const accept = (number) => {
		const caret = input.selectionStart, put = options[number].text + " ";
		input.value = input.value.slice(0, begin) + put + input.value.slice(caret).trimStart();
		input.setSelectionRange(begin + put.length, begin + put.length);
		input.focus();
		offer();
	};
	const offer = () => {
		if (!query_fields) return;
		const found = complete(input.value.slice(0, input.selectionStart));
		({ begin, options } = found);
		if (found.lacks) valuesLoad(found.lacks).then(() => document.activeElement === input && offer(), () => {});
		list.replaceChildren(...options.map((option, index) => make("li", { role: "option", id: "completion" + index,
			"aria-selected": false, onmousedown: (event) => { event.preventDefault(); accept(index); } },
		option.text, option.help ? make("span", { class: "faint" }, "  " + option.help) : null)));
		close();
		list.hidden = !options.length;
		input.setAttribute("aria-expanded", !list.hidden);
	};
	input.addEventListener("input", offer);
	// A query that is there has its answer below: a list would cover it.
	input.addEventListener("focus", () => !input.value && offer());
	input.addEventListener("blur", close);
	input.addEventListener("keydown", (event) => {
		const open = !list.hidden;
		if (event.key === "ArrowDown" || event.key === "ArrowUp") {
			if (!open) offer();
			else choose((chosen + (event.key === "ArrowDown" ? 1 : chosen < 0 ? 0 : -1) + options.length) % options.length);
		} else if (event.key === "Escape" && open) close();
		else if (event.key === "Enter" && open && chosen >= 0) accept(chosen);
		else return;
		event.preventDefault();
	});
	fieldsLoad().then(() => document.activeElement === input && !input.value && offer(), () => {});
	return make("form", { id: "asked", onsubmit: (event) => { event.preventDefault(); close(); submit(input.value); } },
		input, make("button", { type: "submit" }, "Find"), list);
}
