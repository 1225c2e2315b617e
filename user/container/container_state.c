/* SPDX-License-Identifier: Apache-2.0 */
/*
 * How much of the runtimes' states is read. Whoever has a directory can fill it, and link one large
 * file into it any number of times: so each runtime has a share, and all of them together have a
 * limit.
 */
#include <errno.h>

#include "container/container_list.h"
#include "container/state_file.h"

#define SHARE_BYTES (32u << 20) /* of one daemon's or monitor's state */
#define TOTAL_BYTES (64u << 20)

void container_state_begin(struct container_list *list)
{
	list->share_bytes = 0;
}

int container_state_read(struct container_list *list, int directory, const char *path, size_t max,
			 json_t **out)
{
	size_t share = SHARE_BYTES - list->share_bytes, total = TOTAL_BYTES - list->state_bytes,
	       bytes = 0;
	size_t left = share < total ? share : total;
	int err = left ? state_json_read(directory, path, max < left ? max : left, &bytes, out)
		       : -EFBIG;

	/*
	 * What was refused after it was read has cost the same, and a look at a file is not for
	 * nothing.
	 */
	bytes += STATE_FILE_COST;
	bytes = bytes < left ? bytes : left;
	list->share_bytes += bytes;
	list->state_bytes += bytes;
	if (err == -EFBIG && !list->state_refused++)
		container_list_remark(
			list,
			"files of a runtime that are larger than what is read of it are left out");
	return err;
}
