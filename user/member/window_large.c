/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Reads large blocks that were seen in windows. In a window and between two only their headers and
 * first words are read; heap walks ask malloc's heap about each of them.
 */
#include <errno.h>
#include <stdlib.h>

#include "base/clock.h"
#include "base/error.h"
#include "heap/heap_large.h"
#include "malloc/reader.h"
#include "malloc/states.h"
#include "malloc/walk.h"
#include "member/member.h"
#include "member/state.h"
#include "member/windows.h"

#define LOOK_STRETCH_NS 10000000ull
#define LOOK_LAST_NS    20000000ull /* within a window, which is that much longer then */

static int member_glibc_open(const struct member *member, struct glibc **out)
{
	struct process_maps maps;
	int err = process_maps_read(member->pid, &maps);

	if (err)
		return err;
	err = glibc_open(out, member->pid, &maps);
	process_maps_free(&maps);
	return err;
}

int member_large_possible(const struct member *member)
{
	struct glibc *glibc;
	int err = member_glibc_open(member, &glibc), elsewhere;

	if (err == -ENOENT || err == -ENODATA)
		return error_set(-ENOTSUP, "its malloc is not glibc's");
	if (err)
		return err;
	elsewhere = glibc->main_is_elsewhere;
	glibc_close(glibc);
	return elsewhere ? error_set(-ENOTSUP, "a part of malloc's heap cannot be found") : 0;
}

/* What to read. */
struct large_blocks {
	const uint64_t *addresses;
	const uint8_t *states; /* NULL: not known */
	size_t count;
	uint64_t used; /* as in struct event_census_large */
	uint64_t until_ns;
	int fresh; /* as in struct member_look */
};

/* Returns how many were read, of which those after an error were not. */
static size_t blocks_read(struct session *session, const struct member *member,
			  struct reader *reader, const struct large_blocks *blocks)
{
	struct member_look look = {session, member, blocks->fresh};
	const struct heap_kinds_opts opts = {
		.until_ns = blocks->until_ns, .record = member_look_feed, .context = &look};
	size_t done = 0;
	int err = heap_large_read(&member->runtime, reader, blocks->addresses, blocks->states,
				  blocks->count, blocks->used, &opts, &done);

	if (err && err != -ESRCH && err != -ECANCELED)
		log_debug("PID %d: large blocks could not be read: %s", member->pid,
			  error_reason(err));
	return err ? 0 : done;
}

/* The blocks to look at; 0: there are none. The caller frees *addresses. */
static size_t sighted_take(struct session *session, const struct member *member, int fresh,
			   uint64_t **addresses)
{
	size_t count = 0;

	*addresses = NULL;
	if (!member->large_windowed || member->ended)
		return 0;
	session_pull(session);
	if (member->ended ||
	    trace_sighted_large(session->trace, member->index, fresh, addresses, &count))
		return 0;
	return count;
}

int member_large_fresh(struct session *session, const struct member *member)
{
	uint64_t until_ns = clock_ns(CLOCK_MONOTONIC) + LOOK_LAST_NS, *addresses;
	size_t count = sighted_take(session, member, 1, &addresses), done = 0;
	struct reader *reader;

	if (count && !reader_new(&reader, member->pid)) {
		done = blocks_read(session, member, reader,
				   &(struct large_blocks){.addresses = addresses,
							  .count = count,
							  .until_ns = until_ns,
							  .fresh = 1});
		reader_free(reader);
	}
	free(addresses);
	return done == count;
}

void member_large_look(struct session *session, struct member *member)
{
	uint64_t until_ns = clock_ns(CLOCK_MONOTONIC) + LOOK_STRETCH_NS, *addresses;
	size_t count = sighted_take(session, member, 0, &addresses), first = 0, done;
	struct member_windows *windows = &member->windows;
	struct reader *reader;

	while (first < count && addresses[first] < windows->large_from)
		first++;
	if (first == count)
		first = 0;
	if (count && !reader_new(&reader, member->pid)) {
		done = blocks_read(session, member, reader,
				   &(struct large_blocks){.addresses = addresses + first,
							  .count = count - first,
							  .until_ns = until_ns});
		windows->large_from = first + done < count ? addresses[first + done] : 0;
		reader_free(reader);
	}
	free(addresses);
}

void member_large_ask(struct session *session, const struct member *member)
{
	uint64_t *addresses;
	size_t count = sighted_take(session, member, 0, &addresses);
	uint8_t *states = calloc(count + 1, 1);
	struct glibc *glibc = NULL;
	struct glibc_totals totals;
	int err = !states ? -ENOMEM : count ? member_glibc_open(member, &glibc) : 0;

	if (glibc) {
		err = glibc_states(glibc, addresses, count, states);
		if (!err)
			err = glibc_walk(glibc, NULL, NULL, &totals);
		if (!err)
			blocks_read(session, member, glibc->reader,
				    &(struct large_blocks){.addresses = addresses,
							   .states = states,
							   .count = count,
							   .used = totals.counts[GLIBC_USED] +
								   glibc->mmaps.count,
							   .until_ns = UINT64_MAX});
		glibc_close(glibc);
	}
	if (err && err != -ESRCH)
		log_debug("PID %d: malloc's heap could not be read: %s", member->pid,
			  error_reason(err));
	free(states);
	free(addresses);
}
