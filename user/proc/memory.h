/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The one way to read a target's memory. What reading does to the target: nothing.
 *
 * - It is not stopped, nothing is written, and no page is pinned. (process_vm_readv() pins what it
 *   reads, and since Linux 5.19 the kernel copies a pinned page that a fork shares.) Memory is read
 *   through /proc/PID/mem.
 * - A page is looked at in /proc/PID/pagemap before it is read, and read only if it is there. So no
 *   page is swapped in, and none is faulted in: the page tables stay as they are.
 *
 * What a page that is not there reads as:
 *
 * 	private memory without a file	zeros: it was never written to
 * 	private mapping of a file	the file, by a descriptor of our own
 * 	swapped out			-EFAULT, and is counted (space_missed())
 * 	all others			-EFAULT, and are counted: shared memory, a file that
 *					cannot be opened or whose reading may never return
 *
 * Devices are never read: reading a register may change it.
 *
 * Limits. A page may be swapped out between the look and the read, and is swapped in then; the look
 * is at most 15 ms old. What is known of the maps is at most a second old. A copy is not of one
 * moment unless the target is stopped.
 *
 * Every system call that reads memory or residency, or maps and files for it, is in memory.c. It
 * may wait for the target's mmap lock.
 */
#pragma once

#include <errno.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

/*
 * The memory of a process, opened: two descriptors (the limit of descriptors is raised when half of
 * them are used), which belong to the program that it ran then.
 * After an exec or its end all reads fail with -ESRCH. Opening needs the right to trace the process
 * (ptrace); reading does not, whatever the process or we have become since.
 */
struct space;

/* 0; -ESRCH; -EPERM; -EMFILE; -ENOMEM; -errno. */
int space_open(struct space **out, pid_t pid);
/* The same space once more, with a space_close() of its own; NULL is legal. */
struct space *space_share(struct space *space);
void space_close(struct space *space); /* NULL is legal */
pid_t space_pid(const struct space *space);
/*
 * Forgets what is known of maps and files: a few KiB that are found again when they are needed. For
 * spaces that are kept long and seldom read. NULL is legal.
 */
void space_rest(struct space *space);

/*
 * Reads exactly bytes at address into out. 0; -EFAULT: a part of it is not mapped, or is left out
 * as told above; -ESRCH: the memory is gone, or space is NULL; -ENOMEM; -errno. out may be
 * overwritten after a failure, too.
 */
int space_read(struct space *space, uint64_t address, void *out, size_t bytes);
/* A pointer-sized value. */
int space_read_u64(struct space *space, uint64_t address, uint64_t *out);
/*
 * Reads a text up to its NUL, cut at bytes - 1; it never reads beyond the page that the text ends
 * in. 0, as space_read(): out has what could be read.
 */
int space_read_text(struct space *space, uint64_t address, char *out, size_t bytes);

enum space_page {
	SPACE_NONE,    /* not mapped, a device, or it may not be read */
	SPACE_ZERO,    /* was never written to: zeros */
	SPACE_MEMORY,  /* in memory */
	SPACE_FILE,    /* not in its memory: as in the mapped file */
	SPACE_SWAPPED, /* is not read (with space_swap_in(): SPACE_MEMORY) */
	SPACE_ABSENT,  /* of shared memory, not in its page tables: is not read */
};

#define SPACE_PAGE  4096u /* whatever the size of the kernel's pages */
#define SPACE_PAGES 512u  /* that are asked about at once, at most */

/*
 * What the pages from address on would be read as (what[i]: enum space_page); nothing is counted.
 * 0; -EINVAL: more than SPACE_PAGES; -ESRCH; -ENOMEM; -errno.
 */
int space_pages(struct space *space, uint64_t address, size_t pages, uint8_t *what);

/* From now on pages that are swapped out are read, which brings them back (1), or not (0). */
void space_swap_in(struct space *space, int on);

/* Bytes of pages that reads needed and did not get, each page once. */
struct space_missed {
	uint64_t swapped; /* since they are swapped out */
	uint64_t absent;  /* SPACE_ABSENT, and pages of files that could not be read */
};

/* Since the opening. space may be NULL. */
struct space_missed space_missed(const struct space *space);

/*
 * What a command tells that failed with err: if reads met pages that are swapped out, -ENODATA and
 * so much (error_set); else err. space may be NULL.
 */
int space_error(const struct space *space, int err);

/* Does an error end a walk of memory? After any other, what could not be read is told. */
static inline bool space_is_fatal(int err)
{
	return err == -ESRCH || err == -EPERM || err == -ENOMEM || err == -EINTR;
}

/* One read without a space that is kept: opens, reads, closes. Errors of both. */
int memory_read(pid_t pid, uint64_t address, void *out, size_t bytes);

/* Memory that is read in the same way: of a process, or a copy of it. */
struct memory_reader {
	int (*read)(void *context, uint64_t address, void *out, size_t bytes);
	void *context; /* borrowed */
};
