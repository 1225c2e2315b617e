/* SPDX-License-Identifier: Apache-2.0 */
/* Reads the pools that hold blocks seen in windows, and the target's text. */
#include <errno.h>
#include <stdlib.h>

#include "base/clock.h"
#include "base/error.h"
#include "heap/heap_kinds.h"
#include "member/member.h"
#include "member/probe.h"
#include "member/state.h"
#include "member/windows.h"
#include "process/memory.h"

#define LOOK_STRETCH_NS 10000000ull
#define LOOK_LAST_NS    20000000ull /* within a window, which is that much longer then */
#define LAST_FIRST_NS   8000000ull  /* after a window, the first look at its pools */
#define LAST_MOST_NS    250000000ull
#define LAST_SHARE      50u /* looks at these take at most 1/50 of the time */
#define BREAKPOINT      0xcc

static int is_breakpoint(const struct member *member, uint64_t address)
{
	uint8_t byte;

	return !space_read(member->runtime.space, address, &byte, sizeof(byte)) &&
	       byte == BREAKPOINT;
}

int member_window_is_probed(struct member *member)
{
	struct member_windows *windows = &member->windows;

	for (; windows->site < windows->text.count; windows->site++)
		if (is_breakpoint(member, windows->text.places[windows->site].address))
			return 1;
	return 0;
}

/*
 * A link is of sites of one kind, and the kernel removes them in the order of the plan. So the
 * first one of each kind is gone before any other. A bit for each kind whose first site has a
 * breakpoint.
 */
uint64_t member_window_marks(const struct member *member)
{
	const struct plan_text *text = &member->windows.text;
	uint64_t kinds = 0, marks = 0;

	for (size_t i = 0; i < text->count; i++) {
		uint64_t kind = 1ull << text->places[i].kind % 64;

		if (kinds & kind)
			continue;
		kinds |= kind;
		marks |= is_breakpoint(member, text->places[i].address) ? kind : 0;
	}
	return marks;
}

int member_window_is_whole(const struct member *member)
{
	return member_window_marks(member) == member->windows.marks;
}

/* Is there a probe between windows, too, since a pool is taken into use there? */
static int is_new_pool(const struct plan *plan, uint64_t offset)
{
	for (size_t i = 0; i < plan->count; i++)
		if (plan_site_is_new_pool(&plan->sites[i]) && plan->sites[i].offset == offset)
			return 1;
	return 0;
}

static int is_site_of_windows(const void *context, const struct plan_site *site)
{
	const struct member *member = context;

	if (member_is_native(member))
		return (site->cookie >> 8 & 0xff) == EVENT_API_NATIVE;
	if (plan_site_is_pooled(site))
		return !is_new_pool(&member->windows.plan.python, site->offset);
	return member->large_windowed && plan_site_is_passed_on(site);
}

struct text_find {
	struct member *member;
	struct process_maps maps;
};

static int text_add(void *context, const struct plan *plan, const struct elf_file *file)
{
	struct text_find *find = context;

	return plan_text_add(&find->member->windows.text, &find->maps, plan, file,
			     is_site_of_windows, find->member);
}

void member_text_find(struct member *member)
{
	struct text_find find = {.member = member};

	plan_text_free(&member->windows.text);
	if (process_maps_read(member->pid, &find.maps))
		return;
	member_plans_each(member, &member->windows.plan, text_add, &find);
	process_maps_free(&find.maps);
}

int member_look_feed(void *context, const void *record, size_t size)
{
	const struct member_look *look = context;

	if (look->fresh && !member_window_is_whole(look->member))
		return -ECANCELED;
	return look->member->ended ? -ESRCH : session_feed(look->session, record, size);
}

/* Reads pools until a time; returns how many of them. */
static size_t pools_read(const struct member_look *look, const uint64_t *pools, size_t count,
			 uint64_t until_ns)
{
	const struct member *member = look->member;
	const struct heap_kinds_opts opts = {
		.until_ns = until_ns, .record = member_look_feed, .context = (void *)look};
	size_t done = 0;
	int err;

	session_pull(look->session);
	if (!count || member->ended)
		return 0;
	err = heap_kinds_read(&member->runtime, pools, count, &opts, &done);
	if (err && err != -ESRCH && err != -ECANCELED)
		log_debug("PID %d: pools could not be read: %s", member->pid, error_reason(err));
	return done;
}

/*
 * Reads the pools of the open window again before it ends: a block that has died since the look
 * before would count as alive then. Those of the last window come first in every look until the
 * next one: how long short-lived blocks live is known as exactly as looks are close to each other.
 */
static void last_read(const struct member_look *look, uint64_t until_ns)
{
	uint64_t *pools;
	size_t count;

	if (trace_sighted_pools(look->session->trace, look->member->index, SIGHTED_LAST, &pools,
				&count))
		return;
	pools_read(look, pools, count, until_ns);
	free(pools);
}

void member_look_fresh(struct session *session, struct member *member)
{
	const struct member_look look = {session, member, 1};
	uint64_t began_ns = clock_ns(CLOCK_MONOTONIC), *pools;
	size_t count, done;
	int all;

	if (member->windows.dropped_ns && !member_is_native(member)) {
		last_read(&look, began_ns + LOOK_STRETCH_NS / 2);
		began_ns = clock_ns(CLOCK_MONOTONIC);
	}
	session_pull(session);
	/* Its records say for certain what has been allocated. */
	if (member_is_native(member)) {
		if (member->windows.dropped_ns && member_window_is_whole(member))
			member->windows.checked_ns = began_ns;
		return;
	}
	if (trace_sighted_pools(session->trace, member->index, SIGHTED_FRESH, &pools, &count))
		return;
	done = pools_read(&look, pools, count, began_ns + LOOK_LAST_NS);
	free(pools);
	all = member_large_fresh(session, member);
	if (done == count && all && member_window_is_whole(member))
		member->windows.checked_ns = began_ns;
}

void member_last_begin(struct member *member)
{
	member->windows.last_after_ns = member_is_native(member) ? 0 : LAST_FIRST_NS;
	member->windows.last_took_ns = 0;
}

uint64_t member_last_due_ns(const struct member *member)
{
	const struct member_windows *windows = &member->windows;
	uint64_t most_ns = windows->windows.pause_ns / LAST_SHARE;

	return windows->last_after_ns && windows->last_took_ns * windows->windows.targets <= most_ns
		       ? windows->end.time_ns + windows->last_after_ns
		       : UINT64_MAX;
}

void member_look_last(struct session *session, struct member *member)
{
	const struct member_look look = {session, member, 0};
	struct member_windows *windows = &member->windows;
	uint64_t began_ns = clock_ns(CLOCK_MONOTONIC), now_ns;

	last_read(&look, began_ns + LOOK_STRETCH_NS / 2);
	now_ns = clock_ns(CLOCK_MONOTONIC);
	windows->last_took_ns += now_ns - began_ns;
	while (windows->end.time_ns + windows->last_after_ns <= now_ns)
		windows->last_after_ns *= 2;
	if (windows->last_after_ns > LAST_MOST_NS)
		windows->last_after_ns = 0;
}

void member_look_all(struct session *session, struct member *member)
{
	const struct member_look look = {session, member, 0};
	struct member_windows *windows = &member->windows;
	uint64_t began_ns = clock_ns(CLOCK_MONOTONIC), *pools;
	size_t count, first = 0, done;

	if (member_is_native(member)) {
		member_native_walk(session, member);
		return;
	}
	last_read(&look, began_ns + LOOK_STRETCH_NS / 2);
	if (trace_sighted_pools(session->trace, member->index, SIGHTED_ALL, &pools, &count))
		return;
	while (first < count && pools[first] < windows->look_from)
		first++;
	if (first == count)
		first = 0;
	done = pools_read(&look, pools + first, count - first, began_ns + LOOK_STRETCH_NS);
	windows->look_from = first + done < count ? pools[first + done] : 0;
	free(pools);
	member_large_look(session, member);
	windows->look_ns = clock_ns(CLOCK_MONOTONIC);
	windows->look_took_ns = windows->look_ns - began_ns;
}
