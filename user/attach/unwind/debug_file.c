/* SPDX-License-Identifier: Apache-2.0 */
#include "attach/unwind/debug_file.h"

#include <errno.h>
#include <fcntl.h>
#include <unistd.h>

#include "object/elf/elf_file.h"
#include "proc/process.h"

bool unwind_debug_is_wanted(int err, const struct unwind_table *table)
{
	return err ? err == -ENOENT : table->origin.uncovered > UNWIND_UNCOVERED_MAX;
}

int unwind_debug_open(pid_t pid, int fd, const char *path)
{
	int copy = fcntl(fd, F_DUPFD_CLOEXEC, 0), root, debug_fd;
	struct elf_file *file;

	if (copy < 0)
		return -1;
	if (elf_file_open(&file, copy, path, NULL)) {
		close(copy);
		return -1;
	}
	root = process_root_open(pid);
	if (root >= 0) {
		elf_file_find_debug(file, root);
		close(root);
	}
	debug_fd = elf_file_debug_fd(file);
	if (debug_fd >= 0)
		debug_fd = fcntl(debug_fd, F_DUPFD_CLOEXEC, 0);
	elf_file_close(file);
	return debug_fd;
}
