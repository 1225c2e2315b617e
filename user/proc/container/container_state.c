/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Limits how much of the runtimes' state is read. A user can fill a directory, or link one large
 * file into it many times, so each runtime has a share and all runtimes together have a limit.
 */
#include <errno.h>

#include "proc/container/container_list.h"
#include "proc/container/state_file.h"

#define SHARE_BYTES (32u << 20) /* state of one daemon or monitor */
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
	 * A file that is refused after it was read has cost the same, and opening a file has a cost
	 * too.
	 */
	bytes += STATE_FILE_COST;
	bytes = bytes < left ? bytes : left;
	list->share_bytes += bytes;
	list->state_bytes += bytes;
	if (err == -EFBIG && !list->state_refused++)
		container_list_remark(
			list, "state files of a runtime beyond the size limit are left out");
	return err;
}
