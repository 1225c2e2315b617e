/* SPDX-License-Identifier: Apache-2.0 */
#include "trace/blocks/kind_counts.h"

#include "abi/events.h"
#include "util/array.h"

int kind_counts_add(struct kind_counts *counts, const struct kind_count *like)
{
	uint64_t key = kind_key(like->kind, like->bytes, like->cohort);
	uint32_t known = id_map_find(&counts->index, key);
	struct kind_count other = *like;
	int err;

	if (known != ID_MAP_NONE) {
		counts->items[known].live += like->live;
		return 0;
	}
	other.kind = EVENT_KIND_OTHER;
	if (counts->count >= KINDS_MAX && like->kind != EVENT_KIND_OTHER)
		return kind_counts_add(counts, &other);
	err = id_map_append(&counts->index, key, &counts->items, &counts->capacity, counts->count,
			    sizeof(*counts->items));
	if (!err)
		counts->items[counts->count++] = *like;
	return err;
}

void kind_counts_free(struct kind_counts *counts)
{
	struct account *account = counts->index.account;

	id_map_free(&counts->index);
	ARRAY_RELEASE(account, counts, items, capacity);
	*counts = (struct kind_counts){.index.account = account};
}
