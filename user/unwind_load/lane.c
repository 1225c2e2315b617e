/* SPDX-License-Identifier: Apache-2.0 */
#include "unwind_load/lane.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/array.h"
#include "base/regular.h"
#include "unwind_load/debug_file.h"
#include "unwind_load/loader.h"

void wanted_close(const struct wanted *wanted)
{
	if (wanted->fd >= 0)
		close(wanted->fd);
	if (wanted->debug_fd >= 0)
		close(wanted->debug_fd);
	free(wanted->path);
}

static void table_fd_close(struct lane *lane)
{
	if (lane->table_fd >= 0)
		close(lane->table_fd);
	lane->table_fd = -1;
}

void lane_remove_first(struct lane *lane)
{
	wanted_close(&lane->queue[0]);
	table_fd_close(lane);
	unwind_table_free(lane->without);
	lane->without = NULL;
	lane->is_again = 0;
	lane->count--;
	memmove(lane->queue, lane->queue + 1, lane->count * sizeof(*lane->queue));
}

void lane_free(struct lane *lane)
{
	while (lane->count)
		lane_remove_first(lane);
	worker_free(lane->worker);
	free(lane->queue);
}

int lane_add(struct lane *lane, const struct wanted *wanted, size_t max)
{
	int err = lane->count < max ? array_reserve(&lane->queue, &lane->capacity, lane->count, 1,
						    sizeof(*lane->queue))
				    : -EMFILE;

	if (!err)
		lane->queue[lane->count++] = *wanted;
	else
		wanted_close(wanted);
	return err;
}

struct wanted *lane_find(struct lane *lane, const struct abi_unwind_key *key)
{
	for (size_t i = 0; i < lane->count; i++)
		if (!memcmp(&lane->queue[i].key, key, sizeof(*key)))
			return &lane->queue[i];
	return NULL;
}

void lane_hurry(struct lane *lane, struct wanted *wanted)
{
	size_t at = (size_t)(wanted - lane->queue);
	struct wanted copy = *wanted;

	copy.is_urgent = 1;
	if (at > 1) {
		memmove(lane->queue + 2, lane->queue + 1, (at - 1) * sizeof(copy));
		at = 1;
	}
	lane->queue[at] = copy;
}

int lane_has_urgent(const struct lane *lane)
{
	for (size_t i = 0; i < lane->count; i++)
		if (lane->queue[i].is_urgent)
			return 1;
	return 0;
}

int unwind_loader_read(int fd, struct unwind_table **out)
{
	struct stat st;
	size_t size;
	char *bytes;
	int err = 0;

	if (regular_stat(fd, &st))
		return -errno;
	if (st.st_size <= 0 || (uint64_t)st.st_size > UNWIND_PACKED_MAX)
		return -EPROTO;
	bytes = malloc((size_t)st.st_size);
	if (!bytes)
		return -ENOMEM;
	for (size = 0; size < (size_t)st.st_size && !err;) {
		ssize_t got = pread(fd, bytes + size, (size_t)st.st_size - size, (off_t)size);

		if (got > 0)
			size += (size_t)got;
		else if (got == 0 || errno != EINTR)
			err = -EPROTO;
	}
	if (!err)
		err = unwind_table_unpack(out, bytes, size);
	free(bytes);
	return err;
}

/* Compiles the table of the first file of the queue. 0; -EAGAIN: not yet; -errno. */
static int table_ask(struct lane *lane, const struct wanted *wanted, uint64_t until_ns,
		     struct unwind_table **table)
{
	int err;

	if (lane->table_fd < 0)
		lane->table_fd = memfd_create("unwind-table", MFD_CLOEXEC);
	if (lane->table_fd < 0)
		return -errno;
	err = worker_unwind(lane->worker, wanted->fd, wanted->debug_fd, lane->table_fd,
			    wanted->key.rows, until_ns);
	return err ? err : unwind_loader_read(lane->table_fd, table);
}

int lane_compile(struct lane *lane, uint64_t until_ns, struct unwind_table **table)
{
	struct wanted *wanted = &lane->queue[0];
	int err = table_ask(lane, wanted, until_ns, table);

	if (err != -EAGAIN && !lane->is_again && wanted->path &&
	    unwind_debug_is_wanted(err, *table))
		wanted->debug_fd = unwind_debug_open(wanted->pid, wanted->fd, wanted->path);
	if (wanted->debug_fd >= 0 && !lane->is_again) {
		lane->is_again = 1;
		lane->without = err ? NULL : *table;
		table_fd_close(lane);
		err = table_ask(lane, wanted, until_ns, table);
	}
	if (err && err != -EAGAIN && lane->without) {
		*table = lane->without;
		lane->without = NULL;
		return 0;
	}
	return err;
}
