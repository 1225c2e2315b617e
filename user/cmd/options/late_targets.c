/* SPDX-License-Identifier: Apache-2.0 */
#include "cmd/options/late_targets.h"

#include <errno.h>
#include <stdlib.h>
#include <time.h>

#include "cmd/options/options.h"
#include "util/clock.h"
#include "util/error.h"

#define LOOK_NS 20000000ull

int late_targets_add(struct late_targets *targets, pid_t pid)
{
	struct late *items = realloc(targets->items, (targets->count + 1) * sizeof(*items));

	if (!items)
		return -ENOMEM;
	targets->items = items;
	items[targets->count++] = (struct late){.pid = pid};
	log_info("PID %d: no Python in it yet; waiting for it to load one", (int)pid);
	return 0;
}

int late_attach(struct session *session, pid_t pid)
{
	int err = session_add(session, pid, 0);

	if (!err)
		log_info("PID %d has loaded Python while it ran: its blocks from before now are "
			 "older than the trace",
			 (int)pid);
	return err;
}

size_t late_targets_look(struct late_targets *targets, struct session *session)
{
	uint64_t now = clock_ns(CLOCK_MONOTONIC);
	size_t kept = 0, attached = 0;

	if (!targets->count || now - targets->looked_ns < LOOK_NS)
		return 0;
	targets->looked_ns = now;
	for (size_t i = 0; i < targets->count; i++) {
		struct late *late = &targets->items[i];

		/* A session that follows processes may have attached first. */
		if (session_has(session, late->pid)) {
			attached++;
			continue;
		}
		int found = late_look(late, NULL), err = found;

		if (!found) {
			targets->items[kept++] = *late;
			continue;
		}
		if (found > 0)
			err = late_attach(session, late->pid);
		attached += !err;
		if (err == -ESRCH)
			error_print(error_set(-ESRCH, "it has ended, and had loaded no Python"),
				    NULL, "PID %d", (int)late->pid);
		else if (err)
			error_print(err, cli_remedy(err), "PID %d", (int)late->pid);
	}
	targets->count = kept;
	return attached;
}

void late_targets_give_up(struct late_targets *targets)
{
	for (size_t i = 0; i < targets->count; i++)
		error_print(error_set(-ENOENT, "it has loaded no Python while it was waited for"),
			    NULL, "PID %d", (int)targets->items[i].pid);
	targets->count = 0;
}

void late_targets_free(struct late_targets *targets)
{
	free(targets->items);
}
