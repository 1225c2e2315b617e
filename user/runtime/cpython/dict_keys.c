/* SPDX-License-Identifier: Apache-2.0 */
#include "runtime/cpython/dict_keys.h"

#include <errno.h>

#include "util/word.h"

#define GENERAL_ENTRY 24u /* {hash, key, value} */
#define SHORT_ENTRY   16u /* {key, value}: all keys are str, 3.11+ */
#define MAX_LOG2      40u

/* Up to 3.10 the width of an index depends on dk_size; entries follow the indices. */
static int keys_read_old(const struct object_offsets *at, const uint8_t *bytes, struct keys *out)
{
	uint64_t size = u64_at(bytes + at->keys_size), width;

	if (size >> MAX_LOG2)
		return -EINVAL;
	width = size <= 0xff ? 1 : size <= 0xffff ? 2 : size <= 0xffffffff ? 4 : 8;
	out->entries = out->address + at->keys_indices + size * width;
	out->entry_bytes = GENERAL_ENTRY;
	out->key_at = 8;
	out->value_at = 16;
	out->slots = size;
	return out->count > size ? -EINVAL : 0;
}

static int keys_read_new(const struct object_offsets *at, const uint8_t *bytes, struct keys *out)
{
	uint8_t log2_size = bytes[at->keys_size], log2_index = bytes[at->keys_index_log2];
	int general = bytes[at->keys_kind] == 0;

	if (log2_size > MAX_LOG2 || log2_index > MAX_LOG2 + 3)
		return -EINVAL;
	out->entries = out->address + at->keys_indices + (1ull << log2_index);
	out->entry_bytes = general ? GENERAL_ENTRY : SHORT_ENTRY;
	out->key_at = general ? 8 : 0;
	out->value_at = general ? 16 : 8;
	out->slots = 1ull << log2_size;
	return out->count > out->slots ? -EINVAL : 0;
}

int dict_keys_decode(const struct object_offsets *at, uint64_t address, const uint8_t *bytes,
		     struct keys *out)
{
	*out = (struct keys){.address = address, .count = u64_at(bytes + at->keys_count)};
	int err = at->keys_kind == ABI_NONE ? keys_read_old(at, bytes, out)
					    : keys_read_new(at, bytes, out);
	if (!err)
		out->bytes = out->entries - address + out->count * out->entry_bytes;
	return err;
}
