/* SPDX-License-Identifier: Apache-2.0 */
#include "cmd/agent/board.h"

#include <sched.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>

#include "proc/container/container.h"
#include "proc/process.h"
#include "util/buffer.h"
#include "util/cleanup.h"

#define SHORT_ID 12  /* digits that stand for a name */
#define TRIES    100 /* of a reader; writing takes microseconds */

struct board *board_new(void)
{
	struct board *board = mmap(NULL, sizeof(*board), PROT_READ | PROT_WRITE,
				   MAP_SHARED | MAP_ANONYMOUS, -1, 0);

	return board == MAP_FAILED ? NULL : board;
}

static const struct board_container *item_find(const struct board *board, const char *id)
{
	uint32_t count = atomic_load(&board->count);

	for (uint32_t i = 0; i < count && i < BOARD_MAX; i++)
		if (!strncmp(board->items[i].id, id, CGROUP_ID_SIZE - 1))
			return &board->items[i];
	return NULL;
}

static void item_set(struct board_container *item, const struct container *container)
{
	char label[CONTAINER_LABEL_SIZE];

	snprintf(item->id, sizeof(item->id), "%.64s", container->id);
	figure_text(container_label(container, label), false, item->label);
	figure_text(container->name, false, item->name);
	figure_text(container->pod_namespace, false, item->namespace);
	figure_text(container->pod, false, item->pod);
}

void board_update(struct board *board)
{
	struct container_list list;
	uint32_t count = 0;

	if (container_list_read(&list))
		return;
	atomic_fetch_or(&board->version, 1);
	/* Of containers with the same id root's counts. */
	for (int of_root = 1; of_root >= 0; of_root--)
		for (size_t i = 0; i < list.count && count < BOARD_MAX; i++) {
			const struct container *each = &list.entries[i];

			if (each->init_pid && (each->owner.uid == 0) == of_root)
				item_set(&board->items[count++], each);
		}
	atomic_store(&board->count, count);
	atomic_fetch_add(&board->version, 1);
	container_list_free(&list);
}

/* 0 and the id; 1: it is in no container, or has ended. */
static int id_read(pid_t pid, char id[CGROUP_ID_SIZE])
{
	_cleanup_(buffer_free) struct buffer text = {0};
	struct cgroup_container in;

	if (process_file_read(pid, "cgroup", CGROUP_TEXT_MAX, &text) ||
	    !cgroup_container_find((const char *)text.data, &in, NULL))
		return 1;
	memcpy(id, in.id, CGROUP_ID_SIZE);
	return 0;
}

bool board_lacks(const struct board *board, pid_t pid)
{
	char id[CGROUP_ID_SIZE];

	return !id_read(pid, id) && !item_find(board, id);
}

/* Copies an item, unless the board is written meanwhile. */
static bool item_copy(const struct board *board, const char *id, struct board_container *out)
{
	uint32_t version = atomic_load(&board->version);
	const struct board_container *item = version & 1 ? NULL : item_find(board, id);

	if (item)
		*out = *item;
	out->id[sizeof(out->id) - 1] = out->label[FIGURE_TEXT] = out->name[FIGURE_TEXT] = '\0';
	out->namespace[FIGURE_TEXT] = out->pod[FIGURE_TEXT] = '\0';
	atomic_thread_fence(memory_order_acquire);
	return !(version & 1) && version == atomic_load(&board->version) && item;
}

void board_find(const struct board *board, pid_t pid, struct board_container *out)
{
	struct board_container found = {0};
	char id[CGROUP_ID_SIZE];

	*out = (struct board_container){0};
	if (id_read(pid, id))
		return;
	for (unsigned int i = 0; board && i < TRIES; i++) {
		uint32_t version = atomic_load(&board->version);

		if (item_copy(board, id, &found)) {
			*out = found;
			return;
		}
		if (!(version & 1) && version == atomic_load(&board->version))
			break;
		sched_yield();
	}
	memcpy(out->id, id, sizeof(id));
	snprintf(out->label, sizeof(out->label), "%.*s", SHORT_ID, id);
}
