/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Which pages of a process are resident: smaps_rollup, smaps and pagemap, read as close together as
 * possible. The files are opened while the privileges are complete; the kernel checks them then.
 */
#pragma once

#include <stdint.h>
#include <stdio.h>
#include <sys/types.h>

#include "inspect/rss/account.h"

struct smaps_files {
	FILE *rollup, *smaps, *status;
	int pagemap;
	int kpageflags; /* -1: not to be had, and zero pages are not told from others */
};

struct smaps_totals {
	uint64_t rss, pss, own, swap; /* of smaps_rollup; own: Private_Clean and Private_Dirty */
	uint64_t page_tables, hugetlb, anonymous_huge;
	uint64_t pages_unknown; /* resident bytes of maps that are too large to look at by page */
};

/* 0; -ESRCH; -EPERM; -errno. The caller closes the files, also on failure. */
int smaps_open(struct smaps_files *files, pid_t pid);
void smaps_close(struct smaps_files *files);
/*
 * Reads the maps with their resident pages into an empty account. It is repeated a few times until
 * the sum of the maps is the total. 0; -ESRCH: the process has ended; -E2BIG: too many maps;
 * -ENOMEM; -EPROTO.
 */
int smaps_read(struct smaps_files *files, struct memory_account *account,
	       struct smaps_totals *totals);
/* What smaps_rollup has of the totals. 0; -ESRCH. */
int smaps_totals_read(struct smaps_files *files, struct smaps_totals *totals);
/* What a map is, by the text that the kernel shows. Pure. */
enum memory_source smaps_source(const char *name, uint64_t inode);
