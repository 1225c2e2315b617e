/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Which processes have the pages that they share with each other: pages with the same number in
 * /proc/PID/pagemap are one page. How often the kernel has mapped a page (/proc/kpagecount) says
 * whether others have it, too.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#define SHARING_PROCESSES 256u /* limit */
#define SHARING_SETS      64u  /* limit of sets that are told apart; the others are in `rest` */

/* Pages that exactly these processes have; each page counts once. */
struct sharing_set {
	uint64_t members[SHARING_PROCESSES / 64]; /* bit n: the n-th process */
	size_t count;                             /* of members */
	uint64_t anonymous, file;                 /* bytes; file: of files and of shared memory */
	uint64_t outside; /* of both, in pages that processes beside these map, too */
};

struct sharing {
	struct sharing_set sets[SHARING_SETS + 1]; /* the most bytes first; the last may be: */
	size_t count;
	bool has_rest;     /* the last set is all other sets together; its members are not given */
	bool is_hidden;    /* the kernel shows no page numbers, or there is no kpagecount */
	uint64_t left_out; /* bytes of maps, beyond what is looked at */
};

struct sharing_files;

/*
 * Opens the files; needs the privileges of the attach, as numbers of pages are shown to those only
 * who opened the file with CAP_SYS_ADMIN. Processes that are gone are left out. 0; -E2BIG: too many
 * processes; -ENOMEM.
 */
int sharing_open(struct sharing_files **out, const pid_t *pids, size_t count);
void sharing_close(struct sharing_files *files); /* NULL is legal */
/* Bit n of members is the n-th of the pids above. 0; -ENOMEM. */
int sharing_read(struct sharing_files *files, struct sharing *out);
