/* SPDX-License-Identifier: Apache-2.0 */
#include "inspect/waste/waste.h"

#include <stdlib.h>

#include "util/sorted.h"

static const char *const names[WASTE_KINDS] = {
	[WASTE_DUPLICATE] = "duplicate",
	[WASTE_EMPTY] = "empty",
	[WASTE_SPARE] = "spare",
};

const char *waste_kind_name(enum waste_kind kind)
{
	return kind < WASTE_KINDS ? names[kind] : "";
}

static int waste_compare(const void *a, const void *b)
{
	const struct waste *x = a, *y = b;

	return CMP(y->bytes, x->bytes) ?: CMP(x->example, y->example);
}

int waste_find(struct waste_list *out, const struct paths *paths)
{
	*out = (struct waste_list){0};
	int err = waste_duplicates(out, paths->graph) ?: waste_tables(out, paths);
	if (!err && out->count)
		qsort(out->entries, out->count, sizeof(*out->entries), waste_compare);
	return err;
}

void waste_free(struct waste_list *list)
{
	free(list->entries);
	*list = (struct waste_list){0};
}
