// The flame graph (oldest frame at the bottom) and the icicle (at the top), on a canvas: a node of
// the DOM for each frame would not open 100,000 stacks in a second. The canvas is as high as what is
// visible of it, and draws only that.

const ROW = 18, MIN_WIDTH = 0.4;

// What has shrunk has stripes, so that no colour has to be told from another.
function stripes(dark) {
	const tile = document.createElement("canvas"), pen = tile.getContext("2d");
	tile.width = tile.height = 6;
	pen.strokeStyle = dark ? "rgb(255 255 255 / 0.3)" : "rgb(0 0 0 / 0.25)";
	for (const x of [-6, 0, 6]) {
		pen.moveTo(x, 6);
		pen.lineTo(x + 6, 0);
	}
	pen.stroke();
	return pen.createPattern(tile, "repeat");
}

class Graph {
	constructor(canvas, scroll, height, onFocus) {
		Object.assign(this, { canvas, scroll, height, onFocus });
		this.zoom = 0;
		this.focus = 0;
		this.pattern = null;
		this.upward = true;
		canvas.addEventListener("click", (event) => this.pick(event, true));
		canvas.addEventListener("mousemove", (event) => this.pick(event, false));
		canvas.addEventListener("keydown", (event) => this.key(event));
		scroll.addEventListener("scroll", () => this.draw());
		new ResizeObserver(() => this.draw()).observe(scroll);
		matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => this.draw());
	}

	show(tree, figure, upward) {
		Object.assign(this, { tree, figure, upward, zoom: 0, focus: 0 });
		this.place();
	}

	// The nodes above the one that is zoomed to stay visible, as wide as the graph.
	place() {
		const { tree } = this;
		let deepest = 0;
		const todo = [this.zoom];
		while (todo.length) {
			const node = todo.pop();
			deepest = Math.max(deepest, tree.depth[node]);
			todo.push(...tree.children[node].slice(0, 1000));
		}
		this.rows = deepest + 1;
		this.height.style.height = this.rows * ROW + "px";
		this.scroll.scrollTop = this.upward ? this.scroll.scrollHeight : 0;
		this.draw();
	}

	// Calls visit(node, x, width) for what is wide enough to be seen.
	walk(width, visit) {
		const { tree } = this;
		for (let node = this.zoom; node > 0; node = tree.parent[node])
			if (node !== this.zoom) visit(node, 0, width);
		visit(0, 0, width);
		const todo = [[this.zoom, 0]];
		const scale = width / (tree.weight(this.zoom) || 1);
		while (todo.length) {
			let [node, x] = todo.pop();
			if (node) visit(node, x, tree.weight(node) * scale);
			for (const child of tree.children[node]) {
				const wide = tree.weight(child) * scale;
				if (wide < MIN_WIDTH) break; // children are sorted
				todo.push([child, x]);
				x += wide;
			}
		}
	}

	rowTop(depth) {
		return (this.upward ? this.rows - 1 - depth : depth) * ROW - this.scroll.scrollTop;
	}

	color(node, dark) {
		const { tree } = this;
		if (!node) return dark ? "#3a3c46" : "#e3e4ea";
		const frame = tree.frameOf(node);
		if (this.pattern && this.matches(node)) return dark ? "#b026c9" : "#e879f9";
		if (tree.compared) {
			const now = tree.sums[0][node], change = this.change(node);
			const share = Math.min(1, Math.abs(change) / Math.max(now, 1));
			const light = dark ? 28 + 14 * share : 92 - 30 * share;
			return `hsl(${change > 0 ? 8 : 215} ${change ? 75 : 0}% ${light}%)`;
		}
		const text = moduleOf(frame);
		let hash = 2166136261;
		for (let i = 0; i < text.length; i++) hash = Math.imul(hash ^ text.charCodeAt(i), 16777619);
		const shade = (hash >>> 9) % 10;
		return `hsl(${(hash >>> 0) % 360} ${dark ? 38 : 58}% ${dark ? 32 + shade : 76 + shade}%)`;
	}

	// Of a comparison: how much it has grown.
	change(node) {
		return this.tree.compared ? this.tree.sums[0][node] - this.tree.sums[1][node] : 0;
	}

	matches(node) {
		const frame = this.tree.frameOf(node);
		return frame && (this.pattern.test(frame.name) || this.pattern.test(framePlace(frame)));
	}

	draw() {
		if (!this.tree || this.scroll.offsetParent === null) return;
		const dark = matchMedia("(prefers-color-scheme: dark)").matches;
		const ratio = window.devicePixelRatio || 1;
		const width = this.scroll.clientWidth;
		const view = Math.min(this.scroll.clientHeight, this.rows * ROW);
		this.canvas.width = width * ratio;
		this.canvas.height = view * ratio;
		this.canvas.style.height = view + "px";
		const pen = this.canvas.getContext("2d");
		pen.setTransform(ratio, 0, 0, ratio, 0, 0);
		pen.clearRect(0, 0, width, view);
		pen.font = "11px ui-monospace, monospace";
		pen.textBaseline = "middle";
		const letter = pen.measureText("m").width, shrunk = this.tree.compared && stripes(dark);
		this.walk(width, (node, x, wide) => {
			const top = this.rowTop(this.tree.depth[node]);
			if (top < -ROW || top > view) return;
			pen.fillStyle = this.color(node, dark);
			pen.fillRect(x, top, Math.max(wide - 0.5, MIN_WIDTH), ROW - 1);
			if (this.change(node) < 0) {
				pen.fillStyle = shrunk;
				pen.fillRect(x, top, Math.max(wide - 0.5, MIN_WIDTH), ROW - 1);
			}
			if (node === this.focus && document.activeElement === this.canvas) {
				pen.strokeStyle = dark ? "#fff" : "#000";
				pen.lineWidth = 2;
				pen.strokeRect(x + 1, top + 1, Math.max(wide - 2, 2), ROW - 3);
			}
			const room = Math.floor((wide - 6) / letter);
			if (room < 3) return;
			const title = this.title(node);
			pen.fillStyle = dark ? "#f3f3f6" : "#17171a";
			pen.fillText(title.length > room ? title.slice(0, room - 1) + "…" : title, x + 3, top + ROW / 2);
		});
	}

	title(node) {
		const change = this.change(node), sign = change > 0 ? "▲ " : change < 0 ? "▼ " : "";
		return sign + (node ? frameTitle(this.tree.frameOf(node)) : "all");
	}

	at(event) {
		const box = this.canvas.getBoundingClientRect();
		const x = event.clientX - box.left;
		const row = Math.floor((event.clientY - box.top + this.scroll.scrollTop) / ROW);
		const depth = this.upward ? this.rows - 1 - row : row;
		let hit = -1;
		this.walk(box.width, (node, left, wide) => {
			if (this.tree.depth[node] === depth && x >= left && x < left + wide) hit = node;
		});
		return hit;
	}

	pick(event, zoom) {
		const node = this.at(event);
		if (node < 0) return;
		this.focus = node;
		if (zoom) this.zoomTo(node);
		else this.draw();
		this.onFocus(this.tree, node);
	}

	zoomTo(node) {
		this.zoom = this.focus = node;
		this.place();
		this.onFocus(this.tree, node);
	}

	key(event) {
		const { tree, focus } = this;
		const parent = tree.parent[focus];
		const beside = parent < 0 ? [0] : tree.children[parent];
		const place = beside.indexOf(focus);
		const [in_, out] = this.upward ? ["ArrowUp", "ArrowDown"] : ["ArrowDown", "ArrowUp"];
		const next = {
			[in_]: tree.children[focus][0],
			[out]: parent < 0 ? undefined : parent,
			ArrowLeft: beside[place - 1],
			ArrowRight: beside[place + 1],
		}[event.key];
		if (event.key === "Enter") this.zoomTo(focus);
		else if (event.key === "Escape") this.zoomTo(Math.max(tree.parent[this.zoom], 0));
		else if (next === undefined) return;
		else this.move(next);
		event.preventDefault();
	}

	move(node) {
		this.focus = node;
		const top = this.rowTop(this.tree.depth[node]);
		if (top < 0) this.scroll.scrollTop += top;
		else if (top + ROW > this.scroll.clientHeight) this.scroll.scrollTop += top + ROW - this.scroll.clientHeight;
		this.draw();
		this.onFocus(this.tree, node);
	}
}
