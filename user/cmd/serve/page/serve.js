// The place in the address says what is shown, so that going back works.

// {name: [label; null: a link leads there, its function, of what kind of source; left out: of a
// heap; or whether there is something to show]}
const VIEWS = {
	overview: ["Overview", overview], types: ["Types", types], tree: ["Tree", treeView], query: ["Query", query],
	object: ["Object", object], waste: ["Waste", waste], cycles: ["Cycles", cycles],
	why: [null, why], holders: [null, holders], lines: [null, lines],
	time: ["Over time", time, "recording"],
	compare: ["Compare", compare, canCompare],
};
let sources = [], turn = 0;

// chosen: a source; undefined: there are reports only.
function viewsOf(chosen) {
	const isPossible = (of = "heap") => typeof of === "function" ? of() : chosen?.kind === of;
	return Object.keys(VIEWS).filter((name) => isPossible(VIEWS[name][2]) || (!chosen && name === "overview"));
}

function status(text, failed) {
	$("status").textContent = shown(text);
	$("status").className = failed ? "error" : "";
}

function reports() {
	const pages = kept ? [] : sources.filter((one) => one.kind !== "heap");
	return pages.length ? [make("h2", {}, "Reports"), make("ul", {}, pages.map((one) => make("li", {},
		make("a", { href: "/report?source=" + one.source }, one.file),
		one.kind === "recording" ? ", its last snapshot" : "")))] : [];
}

function time(choice) {
	const answers = {
		name: sources.find((one) => one.source === source).file,
		series: () => ask("time/series", { source }),
		range: (first, last) => ask("time/range", { source, first, last }),
		stops: kept?.about.stops,
	};
	return timeNodes(answers, choice, (range) => history.replaceState(null, "", place("time", range)));
}

async function show(by_user) {
	const mine = ++turn, [name, rest] = location.hash.slice(1).split("?");
	const choice = Object.fromEntries(new URLSearchParams(rest ?? ""));
	const browsed = sources.filter((one) => one.kind !== "report");
	const chosen = browsed.find((one) => String(one.source) === choice.source) ?? browsed[0];
	source = chosen?.source ?? 0;
	const views = viewsOf(chosen), view = views.includes(name) ? name : views[0], main = $("main");
	$("source").value = source;
	document.title = (VIEWS[view][0] ?? view) + " - " + (kept ? kept.file : "tracer serve");
	$("views").replaceChildren(...views.length > 1 ? views.filter((one) => VIEWS[one][0]).map((one) =>
		make("li", {}, make("a", { href: place(one), "aria-current": one === view ? "page" : undefined }, VIEWS[one][0]))) : []);
	main.setAttribute("aria-busy", true);
	status("Reading …");
	let nodes = [], failed = null;
	try {
		if (chosen || view !== "overview") nodes = await VIEWS[view][1](choice);
	} catch (error) {
		failed = error;
	}
	if (mine !== turn) return;
	if (view === views[0]) nodes = [...nodes, ...reports()];
	if (failed) nodes = [make("h2", {}, VIEWS[view][0] ?? view), make("p", { role: "alert" }, failed.message)];
	main.replaceChildren(...nodes.flat(2).filter(Boolean));
	main.setAttribute("aria-busy", false);
	status("");
	const focus = view === "query" ? $("query") : main.querySelector("h2");
	if (!by_user || !focus) return;
	if (view !== "query") focus.setAttribute("tabindex", -1);
	focus.focus();
}

async function begin() {
	try {
		if ($("kept").textContent.trim()) await keptRead($("kept").textContent);
		({ sources } = await ask("sources"));
	} catch (error) {
		status(error.message, true);
		return;
	}
	if (kept) $("title").textContent = shown("tracer: " + kept.file);
	const browsed = sources.filter((one) => one.kind !== "report");
	$("source").append(...browsed.map((one) => make("option", { value: one.source },
		one.file + (one.kind === "heap" ? ": " + one.name + " (PID " + one.pid + ")" : ", over time"))));
	$("sources").hidden = browsed.length < 2;
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
