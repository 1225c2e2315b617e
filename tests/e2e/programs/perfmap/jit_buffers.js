// SPDX-License-Identifier: Apache-2.0
// Functions whose code V8 makes at run time, and which ask for 20 buffers of 100000 bytes.
const kept = [];

function descend(depth) {
	if (depth)
		return descend(depth - 1) + 1;
	kept.push(Buffer.allocUnsafeSlow(100000));
	return 0;
}

process.stdout.write("ready\n");
process.stdin.on("data", () => {
	for (let i = 0; i < 20; i++)
		descend(3);
	process.stdout.write("done\n");
});
process.stdin.on("end", () => process.exit(0));
