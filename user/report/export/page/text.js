// How pages show texts and sizes: export's, and that of tracer serve.

// Characters that would change how the text around them is shown, as escapes.
const HIDDEN = /[\u0000-\u001f\u007f-\u009f\u00ad\u061c\u200b-\u200f\u2028-\u202e\u2060-\u2069\ufeff\ud800-\udfff\ufff9-\ufffb]/gu;

function shown(text) {
	return text.replace(HIDDEN, (c) => "\\u" + c.charCodeAt(0).toString(16).padStart(4, "0"));
}

const UNITS = ["B", "KiB", "MiB", "GiB", "TiB", "PiB"];

function sizeText(bytes) {
	let unit = 0, value = Math.abs(bytes);
	while (value >= 1024 && unit < UNITS.length - 1) {
		value /= 1024;
		unit++;
	}
	return (bytes < 0 ? "−" : "") + (unit ? value.toFixed(value < 100 ? 1 : 0) : value) + " " + UNITS[unit];
}

