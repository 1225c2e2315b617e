/* SPDX-License-Identifier: Apache-2.0 */
/* A table of a dictionary's keys: a PyDictKeysObject. Pure. */
#pragma once

#include "runtime/cpython/offsets.h"

struct keys {
	uint64_t address, entries, bytes;
	uint64_t count, entry_bytes;
	uint64_t slots;            /* of its index */
	uint32_t key_at, value_at; /* in an entry; value_at is 0 if values are elsewhere */
};
/*
 * bytes: the at->keys_indices bytes at the table's address. 0; -EINVAL: the table is damaged. Its
 * entries are not read.
 */
int dict_keys_decode(const struct object_offsets *at, uint64_t address, const uint8_t *bytes,
		     struct keys *out);
