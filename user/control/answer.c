/* SPDX-License-Identifier: Apache-2.0 */
#include "control/answer.h"

#include <inttypes.h>
#include <unistd.h>

#include "report/report.h"
#include "text/json.h"
#include "trace/trace.h"

void answer_status(FILE *out, const struct trace *trace, size_t process, int running,
		   uint64_t now_ns, uint64_t longest_pause_ns)
{
	const struct trace_process *info = trace_process_at(trace, process);
	const struct trace_table table = trace_live(trace, process, trace_first_layer(info));
	struct snapshot now = {0};

	trace_meta(trace, process, &now.meta);
	if (!running)
		now_ns = info->end_ns;
	fprintf(out,
		"{\"is_tracing\": %s, \"session\": %d, \"uptime\": %.3f, \"traceback_limit\": "
		"%" PRIu32 ", \"traced_memory\": {\"size\": %" PRIu64 ", \"peak\": %" PRIu64
		"}, \"tracer_memory\": %zu, \"live_blocks\": %" PRIu64 ", \"lost_events\": %" PRIu64
		", \"longest_pause_ns\": %" PRIu64 ", ",
		running ? "true" : "false", getpid(), (double)(now_ns - info->start_ns) / 1e9,
		info->nframe, table.live_bytes, table.peak_bytes, trace_memory(trace),
		table.live_blocks, snapshot_lost_events(&now), longest_pause_ns);
	report_json_meta(&now, out);
	putc('}', out);
}

static void frame_write(FILE *out, const struct strings *strings, const struct trace_frame *frame)
{
	fputs("{\"filename\": ", out);
	json_string(out, strings_get(strings, frame->filename));
	fprintf(out, ", \"lineno\": %" PRIu32 ", \"function\": ", frame->line);
	json_string(out, strings_get(strings, frame->function));
	if (frame->native)
		fputs(", \"kind\": \"native\"", out);
	putc('}', out);
}

void answer_lookup(FILE *out, struct trace *trace, size_t process, uint64_t address)
{
	enum event_layer layer = trace_first_layer(trace_process_at(trace, process));
	const struct block *block = trace_block_containing(trace, process, layer, address);
	struct trace_traceback traceback;

	fprintf(out, "{\"address\": %" PRIu64 ", \"block\": ", address);
	if (!block) {
		fputs("null}", out);
		return;
	}
	traceback = trace_traceback_at(trace, process, block->stack);
	fprintf(out,
		"{\"address\": %" PRIu64 ", \"offset\": %" PRIu64 ", \"size\": %" PRIu64
		", \"domain\": %" PRIu32 ", \"rounded\": %s}, \"total_nframe\": %" PRIu32
		", \"total_nframe_exact\": %s, \"traceback\": [",
		block->address, address - block->address, (uint64_t)block->bytes, block->domain,
		block->rounded ? "true" : "false", traceback.total,
		traceback.total > traceback.nframe ? "false" : "true");
	for (uint32_t i = 0; i < traceback.nframe; i++) {
		fputs(i ? ", " : "", out);
		frame_write(out, trace_strings(trace, process), &traceback.frames[i]);
	}
	fputs("]}", out);
}
