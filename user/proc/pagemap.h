/* SPDX-License-Identifier: Apache-2.0 */
/*
 * /proc/PID/pagemap: a word for each page of a process (Documentation/admin-guide/mm/pagemap.rst),
 * here of 4 KiB, whatever the size of the kernel's pages: parts of a larger page have its word.
 * Reading it changes nothing, while reading a page that does not exist would make the kernel fill
 * the process's page tables.
 */
#pragma once

#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#define PAGEMAP_PAGE    4096u
#define PAGEMAP_PRESENT (1ull << 63)
#define PAGEMAP_SWAPPED (1ull << 62)
#define PAGEMAP_FILE    (1ull << 61) /* of a file, or shared */
#define PAGEMAP_OWN     (1ull << 56) /* mapped by this process only */
#define PAGEMAP_NUMBER  ((1ull << 55) - 1)

/* A descriptor, which the caller closes; -ESRCH; -EPERM; -errno. */
int pagemap_open(pid_t pid);
/*
 * The words of that many pages from the one at address on. How many were read: fewer at the end of
 * the address space, 0 if the process's memory is gone; -errno.
 */
ssize_t pagemap_read(int fd, uint64_t address, uint64_t *entries, size_t pages);

/*
 * Passes the words of the pages in [start, end), up to PAGEMAP_PIECE of them at once, in a buffer
 * of so many words; a result other than 0 ends it. 0; that result; -ESRCH: the process's memory is
 * gone, or the address space has ended; -errno.
 */
#define PAGEMAP_PIECE 16384u
typedef int (*pagemap_fn)(void *context, uint64_t address, const uint64_t *entries, size_t pages);
int pagemap_each(int fd, uint64_t start, uint64_t end, uint64_t *buffer, pagemap_fn each,
		 void *context);
