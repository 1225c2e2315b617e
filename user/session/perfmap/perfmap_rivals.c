/* SPDX-License-Identifier: Apache-2.0 */
/* Processes of different PID namespaces that share a /tmp may write the same map file. */
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "proc/descriptors.h"
#include "proc/process.h"
#include "proc/tmp_dir.h"
#include "session/perfmap/perfmap_state.h"

static int same_directory(int a, int b)
{
	struct stat first, second;

	return !fstat(a, &first) && !fstat(b, &second) && first.st_dev == second.st_dev &&
	       first.st_ino == second.st_ino;
}

static void target_compare(struct perfmap_target *a, struct perfmap_target *b)
{
	for (int i = 0; i < 4; i++) {
		struct perfmap_place *first = &a->places.at[i / 2], *second = &b->places.at[i % 2];

		if (first->directory < 0 || second->directory < 0 ||
		    strcmp(first->name, second->name) ||
		    !same_directory(first->directory, second->directory))
			continue;
		first->rival = b->pid;
		second->rival = a->pid;
	}
}

/* Another process, whose id is that of the place: does it write the file? */
static void process_compare(struct perfmap_place *place, pid_t pid)
{
	int directory = tmp_dir_open(pid);
	struct stat file;

	if (directory < 0)
		return;
	if (same_directory(directory, place->directory) &&
	    !fstatat(directory, place->name, &file, AT_SYMLINK_NOFOLLOW) &&
	    writers_find(pid, place->name, &file).count)
		place->rival = pid;
	close(directory);
}

void perfmap_rivals_find(struct perfmap_session *session, struct perfmap_target *target)
{
	pid_t ids[2] = {target->ns_pid, target->pid}, *pids;
	struct process_info info;
	size_t count;

	for (size_t i = 0; i < session->count; i++)
		if (session->targets[i] != target && !session->targets[i]->finished)
			target_compare(target, session->targets[i]);
	if (!target->named || process_list(&pids, &count))
		return;
	for (size_t i = 0; i < count; i++) {
		if (pids[i] == target->pid || process_info_read(pids[i], &info) ||
		    info.kernel_thread)
			continue;
		for (int at = 0; at < 2; at++)
			if (target->places.at[at].directory >= 0 && info.ns_pid == ids[at])
				process_compare(&target->places.at[at], pids[i]);
	}
	free(pids);
}
