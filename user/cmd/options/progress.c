/* SPDX-License-Identifier: Apache-2.0 */
#include "cmd/options/progress.h"

#include <stdio.h>
#include <string.h>

#include "session/session.h"
#include "util/clock.h"
#include "util/error.h"
#include "util/size.h"
#include "util/status_line.h"
#include "util/text.h"

#define PERIOD_NS 1000000000ull

/* The live blocks in the first layer of all running processes. */
static struct trace_table live_sum(const struct trace *trace, size_t *processes)
{
	struct trace_table sum = {0};

	for (size_t i = 0; i < trace_process_count(trace); i++) {
		const struct trace_process *process = trace_process_at(trace, i);

		if (!process || process->end != TRACE_RUNNING)
			continue;
		const struct trace_table live = trace_live(trace, i, trace_first_layer(process));

		sum.live_bytes += live.live_bytes;
		sum.live_blocks += live.live_blocks;
		++*processes;
	}
	return sum;
}

/* With --overhead the probes' share of CPU time is known; otherwise the rate of events is shown. */
static void cost_describe(const struct session *session, const struct speed *speed, uint64_t now_ns,
			  char *out, size_t capacity)
{
	double share = session_cost(session);
	uint64_t records = session_records(session) - speed->records;

	if (share >= 0)
		snprintf(out, capacity, "cost %.1f %%", 100 * share);
	else
		snprintf(out, capacity, "%s events/s",
			 COUNT_TEXT((uint64_t)((double)records * 1e9 /
					       (double)(now_ns - speed->shown_ns))));
}

static uint64_t lost_read(const struct trace *trace)
{
	const struct event_loss *loss = trace_loss(trace);
	uint64_t counts[LOSS_COUNT];

	for (size_t i = 0; i < LOSS_COUNT; i++)
		counts[i] = loss->counts[i];
	return loss_events(counts);
}

/*
 * "12 of 30 s: 17.7 MiB in 182,391 blocks of 3 processes, 41,210 events/s, 0 lost; Ctrl-C ends it",
 * shortened to the width of the terminal.
 */
static void line_show(const struct speed *speed, struct session *session, uint64_t now_ns,
		      uint64_t duration_ns)
{
	const struct trace *trace = session_trace(session);
	unsigned long long seconds = (now_ns - speed->begun_ns) / PERIOD_NS;
	char limit[32] = "", of[48] = "", cost[48], bytes[32], blocks[32], lost[32], line[320];
	size_t processes = 0, capacity = status_line_width();
	struct trace_table live = live_sum(trace, &processes);

	if (duration_ns)
		snprintf(limit, sizeof(limit), " of %.3g", (double)duration_ns / 1e9);
	if (processes > 1)
		snprintf(of, sizeof(of), " of %zu processes", processes);
	cost_describe(session, speed, now_ns, cost, sizeof(cost));
	size_text(bytes, live.live_bytes);
	text_count(blocks, live.live_blocks);
	text_count(lost, lost_read(trace));
	for (int left_out = 0; left_out < 4; left_out++) {
		snprintf(line, sizeof(line), "%llu%s s: %s in %s blocks%s%s%s, %s lost%s", seconds,
			 limit, bytes, blocks, left_out ? "" : of, left_out > 2 ? "" : ", ",
			 left_out > 2 ? "" : cost, lost, left_out > 1 ? "" : "; Ctrl-C ends it");
		if (strlen(line) <= capacity)
			break;
	}
	status_line_show(line);
}

void speed_step(struct speed *speed, struct session *session, uint64_t duration_ns)
{
	uint64_t now_ns = clock_ns(CLOCK_MONOTONIC);

	if (!speed->begun_ns && session_running(session))
		speed->begun_ns = now_ns;
	if (now_ns - speed->shown_ns < PERIOD_NS)
		return;
	if (log_level && status_line_is_possible()) {
		if (speed->begun_ns && speed->shown_ns)
			line_show(speed, session, now_ns, duration_ns);
		else if (!speed->begun_ns)
			status_line_show("nothing is under trace yet; Ctrl-C ends it");
	}
	speed->shown_ns = now_ns;
	speed->records = session_records(session);
}
