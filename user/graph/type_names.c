/* SPDX-License-Identifier: Apache-2.0 */
/* The module and the qualified name of a class, as its repr() has them. */
#include <stdio.h>
#include <string.h>

#include "graph/references.h"
#include "layouts/text_state.h"

#define MAX_KEYS 4096u /* of a class's dictionary that are read */

/* The text of a compact ASCII str. 1; 0: it is none. */
static int ascii_read(const struct image *image, uint64_t address, char out[TYPES_NAME])
{
	const struct abi_offsets *abi = &image->offsets.abi;
	uint64_t state = address ? image_u64(image, address + abi->unicode_state) : 0;

	out[0] = '\0';
	if (text_is_ascii(abi, state))
		image_text(image, address + abi->unicode_ascii, out, TYPES_NAME);
	return out[0] != 0;
}

/* The value of the key __module__ in the class's dictionary. */
static int module_read(const struct image *image, const struct type *type, char out[TYPES_NAME])
{
	const struct object_offsets *at = &image->offsets.objects;
	uint64_t dict = image_u64(image, type->address + at->type_dict);
	struct keys keys;

	if (!dict || image_u64(image, dict + at->dict_values) ||
	    keys_read(image, image_u64(image, dict + at->dict_keys), &keys))
		return 0;
	for (uint64_t i = 0; i < keys.count && i < MAX_KEYS; i++) {
		uint64_t entry = keys.entries + i * keys.entry_bytes;

		if (ascii_read(image, image_u64(image, entry + keys.key_at), out) &&
		    !strcmp(out, "__module__"))
			return ascii_read(image, image_u64(image, entry + keys.value_at), out);
	}
	return 0;
}

void types_heap_name(const struct types *types, struct type *type)
{
	const struct image *image = types->image;
	char module[TYPES_NAME], name[TYPES_NAME], full[TYPES_FULL_NAME];

	if (!ascii_read(image,
			image_u64(image, type->address + image->offsets.objects.heaptype_name),
			name))
		return;
	if (module_read(image, type, module) && strcmp(module, "builtins"))
		snprintf(full, sizeof(full), "%s.%s", module, name);
	else
		snprintf(full, sizeof(full), "%s", name);
	full[TYPES_NAME - 1] = 0;
	memcpy(type->name, full, TYPES_NAME);
}

void types_full_name(const struct types *types, const struct type *type, char out[TYPES_FULL_NAME])
{
	const struct image *image = types->image;
	char module[TYPES_NAME], name[TYPES_NAME];

	snprintf(out, TYPES_FULL_NAME, "%s", type->name);
	/* The name of a type that is written in C has its module. */
	if (!(type->flags & TYPE_HEAP) || strchr(type->name, '.') ||
	    !module_read(image, type, module) || !strcmp(module, "builtins"))
		return;
	if (!ascii_read(image,
			image_u64(image, type->address + image->offsets.objects.heaptype_qualname),
			name))
		snprintf(name, sizeof(name), "%s", type->name);
	snprintf(out, TYPES_FULL_NAME, "%s.%s", module, name);
}
