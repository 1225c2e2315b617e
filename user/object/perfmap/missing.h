/* SPDX-License-Identifier: Apache-2.0 */
/* What a perf map file lacks of a table. */
#pragma once

#include <stddef.h>

#include "object/perfmap/perfmap_table.h"
#include "util/account.h"
#include "util/buffer.h"

/* Zero-initialise; text is the caller's to free. */
struct perfmap_missing {
	/* lines of the missing entries that overlap no line of the file; they may follow its end */
	struct buffer text;
	size_t count;     /* lines in it */
	size_t conflicts; /* entries that overlap lines with other names */
	int partial;      /* the file ends within a line; text then begins with a line end */
};

/* Reads the file from its start. 0; -EFBIG; -EDQUOT, -ENOSPC, -ENOMEM; -errno. */
int perfmap_missing_find(struct perfmap_missing *missing, const struct perfmap_table *table, int fd,
			 struct account *account);
