/* SPDX-License-Identifier: Apache-2.0 */
/* Private to memory.c: what the addresses of a process belong to, and the files mapped there. */
#ifndef TRACER_PROCESS_MEMORY_VIEW_H
#define TRACER_PROCESS_MEMORY_VIEW_H

#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

enum view_kind {
	VIEW_NONE,    /* not mapped, not readable, a device, the kernel's own ("[vvar]") */
	VIEW_PRIVATE, /* private memory without a file */
	VIEW_FILE,    /* a private mapping of a file */
	VIEW_SHARED,  /* shared memory, a shared mapping of a file */
};

struct view_range {
	uint64_t start, end;
	uint8_t kind; /* enum view_kind */
};

#define VIEW_FILES 4u

/* All zeros but the pid: nothing is known. */
struct view {
	pid_t pid;
	struct view_range *ranges; /* by address, neighbours of a kind are one */
	size_t count;
	uint64_t read_ns;     /* when they were read; 0: never */
	unsigned int renewed; /* how often before they were a second old */
	/* files that were read last */
	struct view_file {
		uint64_t start, end, offset;
		int fd; /* -1: it is not to be read */
	} files[VIEW_FILES];
	unsigned int file_count, file_next;
};

/*
 * The range that address is in; of addresses without a map, kind VIEW_NONE and the end. exists: a
 * page is there, so it must be in a map: if it is in none that is known, they are read again. 0;
 * errors of process_maps_read().
 */
int view_find(struct view *view, uint64_t address, int exists, struct view_range *out);
/*
 * Reads from the file that is mapped at address, up to the end of a page; what of it is behind the
 * file's end is zero. 0; -EFAULT: the page is behind it, or the file cannot be read; -ESRCH;
 * -ENOMEM.
 */
int view_file_read(struct view *view, uint64_t address, void *out, size_t bytes);
/* Forgets all. */
void view_drop(struct view *view);

#endif
