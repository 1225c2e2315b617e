/* SPDX-License-Identifier: Apache-2.0 */
#include "export/html_threads.h"

#include <errno.h>
#include <inttypes.h>
#include <stdint.h>

#include "stats/thread_shares.h"
#include "tables/id_map.h"
#include "text/json.h"

struct threads {
	FILE *out;
	struct id_map index, names; /* by number: in the order of the list; in snapshot->threads */
	struct id_map tasks;        /* by name: in the order of the list */
	const struct snapshot *snapshot;
	int any;
};

static int names_find(struct threads *threads)
{
	int err = 0;

	for (size_t i = 0; !err && i < threads->snapshot->thread_count; i++)
		err = id_map_put(&threads->names, threads->snapshot->threads[i].tid, (uint32_t)i);
	return err;
}

static void name_write(struct threads *threads, const struct thread_share *share)
{
	uint32_t at = id_map_find(&threads->names, share->tid);
	const char *name = share->name;
	char text[EVENT_THREAD_NAME + 32];

	if (!name[0] && at != ID_MAP_NONE)
		name = threads->snapshot->threads[at].name;
	snprintf(text, sizeof(text), "%s (TID %u)", name[0] ? name : "(name not known)",
		 share->tid);
	fputs(threads->index.count ? ", " : "", threads->out);
	json_string(threads->out, text);
}

static int thread_visit(void *context, const struct thread_share *share)
{
	struct threads *threads = context;

	if (id_map_find(&threads->index, share->tid) != ID_MAP_NONE)
		return 0;
	name_write(threads, share);
	return id_map_put(&threads->index, share->tid, (uint32_t)threads->index.count);
}

static int task_visit(void *context, const struct thread_share *share)
{
	struct threads *threads = context;

	if (id_map_find(&threads->tasks, share->task) != ID_MAP_NONE)
		return 0;
	fputs(threads->tasks.count ? ", " : "", threads->out);
	json_string(threads->out, share->task ? strings_get(threads->snapshot->strings, share->task)
					      : "(no task)");
	return id_map_put(&threads->tasks, share->task, (uint32_t)threads->tasks.count);
}

static int share_visit(void *context, const struct thread_share *share)
{
	struct threads *threads = context;
	uint32_t task = id_map_find(&threads->tasks, share->task);

	fprintf(threads->out, "%s%u,%u,%u,%u,%" PRIu64 ",%" PRIu64, threads->any ? "," : "",
		share->trace->traceback, share->trace->process,
		id_map_find(&threads->index, share->tid), task == ID_MAP_NONE ? 0 : task,
		share->size, share->count);
	threads->any = 1;
	return 0;
}

int html_threads_write(FILE *out, const struct snapshot *snapshot)
{
	struct threads threads = {.out = out, .snapshot = snapshot};
	int known = snapshot_knows(snapshot, BESIDE_THREAD), err = 0;

	fputs("\"threads\": [", out);
	if (known)
		err = names_find(&threads)
			      ?: thread_shares_visit(snapshot, NULL, thread_visit, &threads);
	fputs("],\n\"tasks\": [", out);
	if (known && !err && snapshot->meta.tasks)
		err = thread_shares_visit(snapshot, NULL, task_visit, &threads);
	fputs("],\n\"by_owner\": [", out);
	if (known && !err && (threads.index.count > 1 || threads.tasks.count > 1))
		err = thread_shares_visit(snapshot, NULL, share_visit, &threads);
	putc(']', out);
	id_map_free(&threads.index);
	id_map_free(&threads.names);
	id_map_free(&threads.tasks);
	return err;
}
