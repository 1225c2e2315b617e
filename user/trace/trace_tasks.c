/* SPDX-License-Identifier: Apache-2.0 */
/*
 * asyncio tasks. A task without a name of its own has a number, which takes no memory: a server
 * may start one for each request.
 */
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>

#include "trace/state.h"
#include "util/utf8.h"

#define TASK_TEXT (UTF8_ENCODED(EVENT_TASK_BYTES) + 16)

/* 0, -ENOMEM, -EDQUOT. */
static int task_intern(struct process_state *process, const struct event_task *event,
		       uint32_t *task)
{
	uint32_t bytes = event->bytes < EVENT_TASK_BYTES ? event->bytes : EVENT_TASK_BYTES;
	char text[TASK_TEXT];
	size_t size;

	switch (event->how) {
	case EVENT_TASK_NONE:
		*task = 0;
		return 0;
	case EVENT_TASK_NUMBERED:
		*task = TRACE_TASK_NUMBERED | (uint32_t)event->number;
		if (event->number < TRACE_TASK_NUMBERED)
			return 0;
		size = (size_t)snprintf(text, sizeof(text), "Task-%" PRIu64,
					(uint64_t)event->number);
		break;
	case EVENT_TASK_NAMED:
		size = utf8_encode(text, event->name, event->kind, bytes);
		if (event->bytes > bytes)
			size += (size_t)snprintf(text + size, sizeof(text) - size, "…");
		if (!size) /* the empty string's id stands for no task */
			size = (size_t)snprintf(text, sizeof(text), "\"\"");
		break;
	default:
		*task = process->unknown;
		return 0;
	}
	return strings_intern(process->strings, text, size, task);
}

int state_task(struct process_state *process, const struct event_task *event)
{
	struct thread_entry *thread;

	if (event->how > EVENT_TASK_NAMED ||
	    (event->how == EVENT_TASK_NAMED &&
	     ((event->kind != 1 && event->kind != 2 && event->kind != 4) ||
	      event->bytes % event->kind)))
		return -EBADMSG;
	thread = state_thread_find(process, event->header.tid);
	if (!thread)
		return 0;
	thread->owner = OWNER_NONE;
	if (task_intern(process, event, &thread->task))
		thread->task = process->unknown;
	return 0;
}

void state_task_name(const struct process_state *process, uint32_t task, char numbered[32],
		     const char **name)
{
	*name = task & TRACE_TASK_NUMBERED ? numbered : strings_get(process->strings, task);
	if (task & TRACE_TASK_NUMBERED)
		snprintf(numbered, 32, "Task-%u", task & ~TRACE_TASK_NUMBERED);
}
