// The place in the address says what is shown, so that going back works.

const VIEWS = {
	overview: ["Overview", overview], types: ["Types", types], tree: ["Tree", treeView], query: ["Query", query],
	object: ["Object", object], waste: ["Waste", waste], cycles: ["Cycles", cycles],
	why: [null, why], holders: [null, holders],
};
let sources = [], turn = 0;

function status(text, failed) {
	$("status").textContent = shown(text);
	$("status").className = failed ? "error" : "";
}

function reports() {
	const pages = sources.filter((one) => one.kind === "report");
	return pages.length ? [make("h2", {}, "Reports"), make("ul", {}, pages.map((one) => make("li", {},
		make("a", { href: "/report?source=" + one.source }, one.file))))] : [];
}

async function show(by_user) {
	const mine = ++turn, [name, rest] = location.hash.slice(1).split("?");
	const choice = Object.fromEntries(new URLSearchParams(rest ?? ""));
	const heaps = sources.filter((one) => one.kind === "heap");
	source = heaps.find((one) => String(one.source) === choice.source)?.source ?? heaps[0]?.source ?? 0;
	const view = VIEWS[name] ? name : "overview", main = $("main");
	$("source").value = source;
	document.title = (VIEWS[view][0] ?? view) + " - tracer serve";
	$("views").replaceChildren(...heaps.length ? Object.entries(VIEWS).filter(([, [label]]) => label).map(([one, [label]]) =>
		make("li", {}, make("a", { href: place(one), "aria-current": one === view ? "page" : undefined }, label))) : []);
	main.setAttribute("aria-busy", true);
	status("Reading …");
	let nodes = [], failed = null;
	try {
		if (heaps.length) nodes = await VIEWS[view][1](choice);
	} catch (error) {
		failed = error;
	}
	if (mine !== turn) return;
	if (view === "overview") nodes = [...nodes, ...reports()];
	main.replaceChildren(...nodes.flat(2).filter(Boolean));
	main.setAttribute("aria-busy", false);
	status(failed ? failed.message : "", failed);
	const focus = view === "query" ? $("query") : main.querySelector("h2");
	if (!by_user || !focus) return;
	if (view !== "query") focus.setAttribute("tabindex", -1);
	focus.focus();
}

async function begin() {
	try {
		({ sources } = await ask("sources"));
	} catch (error) {
		status(error.message, true);
		return;
	}
	const heaps = sources.filter((one) => one.kind === "heap");
	$("source").append(...heaps.map((one) => make("option", { value: one.source },
		one.file + ": " + one.name + " (PID " + one.pid + ")")));
	$("sources").hidden = heaps.length < 2;
	$("source").addEventListener("change", () => {
		source = Number($("source").value);
		location.hash = place("overview");
	});
	$("skip").addEventListener("click", (event) => {
		event.preventDefault();
		const head = $("main").querySelector("h2");
		head?.setAttribute("tabindex", -1);
		head?.focus();
	});
	window.addEventListener("hashchange", () => show(true));
	show(false);
}

begin();
