/* SPDX-License-Identifier: Apache-2.0 */
/* What grows in a heap that is too large to be copied: its types alone. */
#include "cmd/heap/growth.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#define ROWS_MAX  16384u
#define NO_OBJECT 1u /* stands for a type's address */

/* The row of a type; a new one grew from nothing. 0, -ENOMEM; -ENOSPC: there are too many. */
static int row_of_type(struct growth *growth, uint64_t address, const char *name,
		       struct growth_row **out)
{
	uint32_t at = id_map_find(&growth->row_of, address);
	char label[TYPES_FULL_NAME + 16];
	int err;

	if (at != ID_MAP_NONE) {
		*out = &growth->rows[at];
		return 0;
	}
	if (growth->count == ROWS_MAX) {
		growth->cut = 1;
		return -ENOSPC;
	}
	err = id_map_append(&growth->row_of, address, &growth->rows, &growth->capacity,
			    growth->count, sizeof(*growth->rows));
	if (err)
		return err;
	*out = &growth->rows[growth->count++];
	**out = (struct growth_row){.shape = address};
	snprintf(label, sizeof(label), "%s%s", address == NO_OBJECT ? "" : "objects of ", name);
	err = strings_intern(growth->names, label, strlen(label), &(*out)->label);
	for (const char *at = label; *at; at++)
		(*out)->merged = hash_u64((*out)->merged ^ (uint8_t)*at);
	return err ?: strings_intern(growth->names, name, strlen(name), &(*out)->type);
}

static int sum_add(struct growth *growth, uint64_t address, const char *name,
		   const struct heap_sum *sum)
{
	struct growth_row *row;
	int err = row_of_type(growth, address, name, &row);

	if (err)
		return err == -ENOSPC ? 0 : err;
	if (!growth->moments)
		row->first = (struct growth_sum){.bytes = (double)sum->bytes,
						 .keys = (double)sum->blocks};
	row->at[growth->moments] =
		(struct growth_sum){.bytes = (double)sum->bytes - row->first.bytes,
				    .keys = (double)sum->blocks - row->first.keys};
	row->holders = sum->blocks;
	row->retained = sum->bytes;
	return 0;
}

int growth_add_types(struct growth *growth, const struct heap_types *types)
{
	int err;

	if (growth->moments == GROWTH_MOMENTS)
		return -ENOSPC;
	err = growth->names ? 0 : strings_new(&growth->names);
	for (size_t i = 0; i < growth->count; i++) { /* those that are gone */
		struct growth_row *row = &growth->rows[i];

		row->at[growth->moments] =
			(struct growth_sum){.bytes = -row->first.bytes, .keys = -row->first.keys};
		row->holders = row->retained = 0;
	}
	for (size_t i = 0; i < types->count && !err; i++)
		err = sum_add(growth, types->types[i].address, heap_type_name(&types->types[i]),
			      &types->types[i].sum);
	if (!err)
		err = sum_add(growth, NO_OBJECT, "keys of dicts, items of lists, buffers",
			      &types->others);
	if (!err)
		growth->bytes[growth->moments++] = (double)types->walk.bytes;
	return err;
}
