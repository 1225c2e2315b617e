// A recording over time: charts with a range between two handles, and what was allocated and freed
// in it. Answers come from two functions, which a server or the page itself may have:
// series() as tracer timeline prints it, range(first, last) of two snapshots by their numbers. stops:
// the numbers of those that have ranges; all of the series if it is left out.

const CHART_WIDTH = 1000, CHART_HEIGHT = 100, CHART_LINES = 5, RANGE_ROWS = 500, RANGE_WAIT_MS = 200;
// Of a stack's figures: where its bytes are, then its blocks.
const RANGE_PARTS = { alive: 0, freed: 2, peak: 4 }, RANGE_FIGURES = 6;

function draw(name, attributes, ...children) {
	const node = document.createElementNS("http://www.w3.org/2000/svg", name);
	for (const [key, value] of Object.entries(attributes)) node.setAttribute(key, value);
	node.append(...children);
	return node;
}

function clockText(seconds) {
	const at = new Date(1000 * seconds), two = (number) => String(number).padStart(2, "0");
	return at.getFullYear() + "-" + two(at.getMonth() + 1) + "-" + two(at.getDate()) + " "
		+ [at.getHours(), at.getMinutes(), at.getSeconds()].map(two).join(":");
}

function spanText(seconds) {
	if (seconds < 60) return seconds.toFixed(1) + " s";
	if (seconds < 3600) return Math.floor(seconds / 60) + " min " + Math.floor(seconds % 60) + " s";
	return Math.floor(seconds / 3600) + " h " + Math.floor(seconds / 60 % 60) + " min";
}

const partText = (part) => (part.least ? "at least " : "") + sizeText(part.size) + " in " + many(part.count, "block", "blocks");
const linePlace = (row) => (row.function ? row.function + " " : "") + framePlace({ file: row.filename, line: row.lineno });

// A status as wait(2) gives it.
function endText({ wait_status: status, oom_killed: oom }) {
	const signal = status & 127;
	if (!signal) return "ended with status " + (status >> 8 & 255);
	return oom ? "was killed by the kernel's OOM killer, for lack of memory" : "was killed by signal " + signal;
}

function collectionText({ full, collections, collected }) {
	return many(full, "full garbage collection", "full garbage collections") + " since the snapshot before; "
		+ "those of all generations, " + countText(collections) + ", freed " + many(collected, "object", "objects");
}

const MARKERS = {
	mode: ["Mode", (one) => "tracing mode " + one.mode],
	loss: ["Loss", (one) => [one.lost && many(one.lost, "event was", "events were") + " lost",
		one.dropped && many(one.dropped, "block was", "blocks were") + " dropped for lack of memory"].filter(Boolean).join(", ")
		+ " since the snapshot before"],
	emptied: ["Tables emptied", () => "by tracer ctl clear or a change of mode, since the snapshot before: figures begin anew"],
	fork: ["Fork", (one) => "of " + one.parent],
	process: ["Process", () => "traced from then on"],
	collection: ["Collection", collectionText],
	exit: ["End", endText],
};

class TimeView {
	constructor(series, data, choice, keep) {
		Object.assign(this, { series, data, keep });
		const { times, numbers } = series, last = numbers.length - 1;
		this.stops = (data.stops ?? numbers).map((number) => numbers.indexOf(number));
		const near = (number, other) => this.stops.find((index) => numbers[index] >= Number(number)) ?? other;
		this.ends = [near(choice.first, 0), near(choice.last, last)]; // indices of times
		if (this.ends[0] > this.ends[1]) this.ends.reverse();
		this.turn = 0;
		this.begin = times[0];
		this.seconds = times[last] - times[0];
		this.shades = [];
		this.tracks = [];
		this.nodes = this.make();
		this.place();
	}

	// In percent of the width.
	at(time) {
		return this.seconds ? Math.min(Math.max(100 * (time - this.begin) / this.seconds, 0), 100) : 0;
	}

	make() {
		const { series } = this, last = series.times.length - 1;
		this.handles = ["Begin of the range", "End of the range"].map((name, end) => this.handle(name, end));
		this.said = make("p", { id: "range" });
		this.result = make("div", { "aria-busy": true });
		const lines = series.lines.slice(0, CHART_LINES);
		const rss = series.rss.some(Boolean);
		return [make("p", { class: "hint" }, "Two handles choose a range: drag them, or use the arrow keys, Page Up and Down, Home and End."),
			make("div", { id: "charts" }, this.chart("Total", series.total.size, true), rss ? this.chart("RSS", series.rss) : null,
				lines.map((line) => this.chart(line.traceback.map(linePlace).join(" "), line.size)),
				make("p", { class: "axis" }, make("span", {}, clockText(series.begin + series.times[0])),
					make("span", {}, clockText(series.begin + series.times[last])))),
			make("p", { class: "hint" }, "Of the lines, " + lines.length + " of " + countText(series.line_count)
				+ ": those that held most. Each chart begins at 0 and has a scale of its own."),
			this.events(), this.said, this.result];
	}

	chart(name, values, with_handles) {
		const most = Math.max(...values, 1), { times } = this.series;
		const y = (value) => (CHART_HEIGHT - value / most * (CHART_HEIGHT - 4)).toFixed(1);
		const x = (time) => (this.at(time) * CHART_WIDTH / 100).toFixed(1);
		const points = values.map((value, index) => x(times[index]) + "," + y(value));
		// One snapshot alone has no width.
		if (points.length === 1 || !this.seconds) points.push(CHART_WIDTH + "," + y(values[values.length - 1]));
		const shade = draw("rect", { class: "shade", y: 0, height: CHART_HEIGHT });
		this.shades.push(shade);
		const text = name + ": " + sizeText(values[values.length - 1]) + " at the end, at most " + sizeText(Math.max(...values));
		const marks = with_handles ? this.series.markers.map((one) => draw("line", { class: "mark",
			x1: x(one.time), x2: x(one.time), y1: 0, y2: CHART_HEIGHT }, this.markTitle(one))) : [];
		const track = make("div", { class: "chart", onpointerdown: (event) => this.grab(event, track) },
			draw("svg", { viewBox: `0 0 ${CHART_WIDTH} ${CHART_HEIGHT}`, preserveAspectRatio: "none", role: "img", "aria-label": shown(text) },
				shade, draw("polygon", { points: `0,${CHART_HEIGHT} ${points.join(" ")} ${CHART_WIDTH},${CHART_HEIGHT}` }),
				draw("polyline", { points: points.join(" ") }), ...marks), with_handles ? this.handles : null);
		this.tracks.push(track);
		return [make("p", { class: "label" }, text), track];
	}

	markTitle(one) {
		return draw("title", {}, shown(this.markText(one)));
	}

	markText(one) {
		const [kind, text] = MARKERS[one.kind] ?? [one.kind, () => ""];
		return spanText(one.time) + ": " + kind + (one.pid ? ", " + one.name + " (PID " + one.pid + ")" : "") + ": " + text(one);
	}

	events() {
		const { markers, markers_left_out: left } = this.series;
		return make("details", { id: "events", open: markers.length > 0 && markers.length <= 10 },
			make("summary", {}, many(markers.length, "event", "events")),
			make("ul", {}, markers.map((one) => make("li", {}, this.markText(one)))),
			left ? make("p", {}, countText(left) + " more are not shown.") : null,
			make("p", { class: "hint" }, "A recording tells changes of mode, losses, emptied tables, forks, processes that came, "
				+ "ends, and of CPython full garbage collections, each in the snapshot after it."));
	}

	handle(name, end) {
		return make("div", { class: "handle", role: "slider", tabindex: 0, "aria-label": name, "aria-orientation": "horizontal",
			"aria-controls": "range", onkeydown: (event) => this.key(event, end) });
	}

	key(event, end) {
		const last = this.stops.length - 1, page = Math.max(1, Math.round(last / 10));
		const step = { ArrowLeft: -1, ArrowDown: -1, ArrowRight: 1, ArrowUp: 1, PageDown: -page, PageUp: page,
			Home: -last, End: last }[event.key];
		if (step === undefined || event.ctrlKey || event.altKey || event.metaKey) return;
		event.preventDefault();
		this.move(end, this.stops[Math.min(Math.max(this.stops.indexOf(this.ends[end]) + step, 0), last)]);
	}

	// Neither handle passes the other.
	move(end, index) {
		const [low, high] = end ? [this.ends[0], this.series.times.length - 1] : [0, this.ends[1]];
		const moved = Math.min(Math.max(index, low), high);
		if (moved === this.ends[end]) return;
		this.ends[end] = moved;
		this.place();
		this.ask(RANGE_WAIT_MS);
	}

	// The pointer takes the nearer handle; where both are, the one that is on its way.
	grab(event, track) {
		if (event.button) return;
		event.preventDefault();
		const index = this.nearest(event, track), [first, last] = this.ends;
		const taken = this.handles.indexOf(event.target);
		let end = first === last ? undefined
			: taken >= 0 ? taken : Number(Math.abs(index - last) < Math.abs(index - first));
		const move = (one) => {
			const at = this.nearest(one, track);
			if (end === undefined && at !== first) end = Number(at > first);
			if (end === undefined) return;
			this.handles[end].focus();
			this.move(end, at);
		};
		track.setPointerCapture(event.pointerId);
		track.addEventListener("pointermove", move);
		track.addEventListener("lostpointercapture", () => track.removeEventListener("pointermove", move), { once: true });
		move(event);
	}

	nearest(event, track) {
		const box = track.getBoundingClientRect(), { times } = this.series;
		const percent = 100 * (event.clientX - box.left) / box.width;
		const far = (index) => Math.abs(this.at(times[index]) - percent);
		return this.stops.reduce((best, index) => (far(index) < far(best) ? index : best));
	}

	place() {
		const { series, ends } = this, { times, total } = series;
		const [from, to] = ends.map((index) => this.at(times[index]));
		for (const shade of this.shades) {
			shade.setAttribute("x", from * CHART_WIDTH / 100);
			shade.setAttribute("width", Math.max((to - from) * CHART_WIDTH / 100, 1));
		}
		this.handles.forEach((handle, end) => {
			const index = ends[end];
			handle.style.left = this.at(times[index]) + "%";
			handle.setAttribute("aria-valuemin", end ? ends[0] : 0);
			handle.setAttribute("aria-valuemax", end ? times.length - 1 : ends[1]);
			handle.setAttribute("aria-valuenow", index);
			handle.setAttribute("aria-valuetext", spanText(times[index]) + " after the beginning, "
				+ clockText(series.begin + times[index]) + ", total " + sizeText(total.size[index]));
		});
		this.said.textContent = "From " + spanText(times[ends[0]]) + " to " + spanText(times[ends[1]])
			+ " after the beginning: " + spanText(times[ends[1]] - times[ends[0]]) + ".";
	}

	// The answer for the range when the handles have rested; an older one is not shown any more.
	async ask(wait = 0) {
		const mine = ++this.turn, [first, last] = this.ends.map((index) => this.series.numbers[index]);
		this.result.setAttribute("aria-busy", true);
		if (wait) await new Promise((done) => setTimeout(done, wait));
		if (mine !== this.turn) return;
		let nodes;
		try {
			nodes = this.range(await this.data.range(first, last));
		} catch (error) {
			nodes = [make("p", { role: "alert" }, error.message)];
		}
		if (mine !== this.turn) return;
		if (wait) this.keep({ first, last });
		this.result.replaceChildren(...nodes);
		this.result.setAttribute("aria-busy", false);
		this.drawn?.();
	}

	// What the range's answer says.
	range(answer) {
		const { from, to, peak, alive, freed, allocated } = answer;
		const notes = [];
		if (answer.estimated) notes.push("Figures are estimates: of one moment tracer report --at has their errors.");
		if (answer.emptied) notes.push("In this range tables were emptied: what was alive before is older than the trace after it.");
		if (alive.least) notes.push("How old blocks are is not in this recording (--ages): of what was allocated here and is alive at the end, what each stack has gained is shown.");
		if (freed.least) notes.push("What was allocated is not counted in this recording: of what was freed, what each stack has lost is shown.");
		if (answer.stacks_left_out) notes.push("The graph and the table lack " + many(answer.stacks_left_out, "stack", "stacks") + " with the lowest figures.");
		if (from.snapshot === to.snapshot) notes.push("Both ends are one snapshot: nothing happens between them; highest is what was alive then.");
		return [make("h3", {}, "In this range"), facts([["Allocated, alive at its end", partText(alive)], ["Freed", partText(freed)],
			["Allocated", allocated ? partText(allocated) : undefined],
			["Highest", sizeText(peak.size) + " at " + spanText(peak.time) + ", of " + many(answer.snapshots, "snapshot", "snapshots")
				+ (answer.peak_between > peak.size ? "; " + sizeText(answer.peak_between) + " between two of them" : "")],
			["Total", sizeText(from.size) + ", then " + sizeText(to.size) + " (" + (to.size > from.size ? "+" : "") + sizeText(to.size - from.size) + ")"]]),
		notes.length ? make("ul", {}, notes.map((note) => make("li", {}, note))) : null, ...this.graph(answer), this.lines(answer),
		make("h3", {}, "Not seen until the end of the range"), make("ul", {}, answer.not_seen.map((line) => make("li", {}, line)))].filter(Boolean);
	}

	graph(answer) {
		const frames = new Frames(), numbers = frames.add(answer), trees = new Map();
		const detail = make("div", { id: "detail", "aria-live": "polite" });
		const canvas = make("canvas", { id: "canvas", tabindex: 0, role: "application",
			"aria-label": "Flame graph; arrow keys move between frames, Enter zooms in, Escape out", "aria-describedby": "detail" });
		const height = make("div", { id: "height" }, canvas), scroll = make("div", { id: "scroll" }, height);
		const select = make("select", { id: "part", onchange: () => show() }, Object.entries({ alive: "Allocated, alive at the end",
			freed: "Freed", peak: "Alive at the highest moment" }).map(([value, text]) =>
			make("option", { value, selected: value === (this.part ?? (answer.alive.size ? "alive" : "peak")) }, text)));
		const graph = new Graph(canvas, scroll, height, (tree, node) => {
			const frame = tree.frameOf(node), sum = tree.sums[0][node], all = tree.sums[0][0];
			detail.replaceChildren(...[frame && make("p", { class: "name" }, frameTitle(frame)),
				frame && make("p", { class: "faint" }, framePlace(frame)),
				make("p", {}, (frame ? "" : "all: ") + sizeText(sum) + (all ? " (" + (100 * sum / all).toFixed(1) + " %)" : ""))].filter(Boolean));
		});
		const show = () => {
			const part = select.value;
			if (!trees.has(part)) {
				const tree = new StackTree(frames, false);
				tree.addSide(answer, numbers, 0, false, (add) => {
					for (let i = 0; i + 1 < answer.starts.length; i++) {
						const amount = answer.figures[RANGE_FIGURES * i + RANGE_PARTS[part]];
						if (amount) add(i, amount);
					}
				});
				trees.set(part, tree.complete());
			}
			graph.show(trees.get(part), "size", true);
			graph.onFocus(trees.get(part), 0);
		};
		select.addEventListener("change", () => (this.part = select.value));
		this.drawn = show; // it has a width when it is in the page
		return [make("p", {}, make("label", {}, "Flame graph of ", select)), scroll, detail];
	}

	// By line, as the stacks' most recent frames are.
	lines(answer) {
		const rows = new Map();
		for (let i = 0; i + 1 < answer.starts.length; i++) {
			const frame = 3 * answer.stacks[answer.starts[i]], line = answer.frames[frame + 2];
			const place = framePlace({ file: answer.strings[answer.frames[frame]], line });
			const code = answer.strings[answer.frames[frame + 1]], name = line || code === place ? place : code + " (" + place + ")";
			const row = rows.get(name) ?? { name, figures: new Array(RANGE_FIGURES).fill(0) };
			rows.set(name, row);
			for (let j = 0; j < RANGE_FIGURES; j++) row.figures[j] += answer.figures[RANGE_FIGURES * i + j];
		}
		const column = (name, at) => ({ name, of: (row) => row.figures[at], size: at % 2 === 0 });
		const sorted = [...rows.values()].sort((a, b) => b.figures[0] - a.figures[0] || b.figures[2] - a.figures[2] || b.figures[4] - a.figures[4]);
		const caption = "By line" + (sorted.length > RANGE_ROWS ? ", the first " + RANGE_ROWS + " of " + countText(sorted.length) : "");
		return table(caption, [column("Alive", 0), column("Blocks", 1), column("Freed", 2), column("Blocks", 3), column("Highest", 4),
			{ name: "Line", of: (row) => row.name }], sorted.slice(0, RANGE_ROWS));
	}
}

// The nodes of the view. data: {name, series(), range(first, last)}; keep(choice): called with what
// the address is to say.
async function timeNodes(data, choice, keep) {
	const series = await data.series(), view = new TimeView(series, data, choice, keep);
	const shown_count = series.numbers.length, last = series.times[shown_count - 1];
	const notes = [];
	if (shown_count < series.snapshots) notes.push("The charts show " + countText(shown_count) + " of them, evenly spread" + (data.stops ? "" : ", where the handles can rest") + "; the highest moment of a range is of all of them.");
	if (view.stops.length < shown_count) notes.push("This file has the ranges between " + countText(view.stops.length) + " of them, where the handles rest: tracer serve " + data.name + " has all.");
	if (series.snapshots === 1) notes.push("With one snapshot there is nothing to compare.");
	if (series.damage) notes.push(series.damage + ".");
	if (series.estimated) notes.push("Figures are estimates.");
	view.ask();
	return [make("h2", {}, data.name + " over time"), make("p", {}, many(series.snapshots, "snapshot", "snapshots") + ", from "
		+ clockText(series.begin + series.times[0]) + " for " + spanText(last - series.times[0])
		+ ": the recording as it was when it was read. What it gained since is not shown."),
	notes.length ? make("ul", {}, notes.map((note) => make("li", {}, note))) : null, view.nodes];
}
