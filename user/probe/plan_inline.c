/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Even a stripped file has to tell the unwinder where its functions begin: .eh_frame_hdr has a sorted table
 * of them (Linux Standard Base, "Exception Frames").
 */
#include "probe/plan_inline.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "target/elf_frames.h"

#define TEXT_MAX      (64u << 20)
#define STUBS_MAX     (1u << 20)
#define FUNCTIONS_MAX (1u << 20)

/* .eh_frame_hdr: the encodings that every linker uses. */
#define DW_EH_PE_UDATA4         0x03
#define DW_EH_PE_DATAREL_SDATA4 0x3b

struct loaded {
	struct inline_image image;
	uint8_t *text, *stubs[INLINE_STUB_RANGES];
	uint64_t *starts;
};

/* 0; -ENOENT no such section; -ENOMEM. *bytes_out is the caller's. */
static int section_load(struct elf_file *file, const char *name, size_t limit, struct inline_range *range,
			uint8_t **bytes_out)
{
	uint64_t vaddr, size;
	uint8_t *bytes;
	int got;

	if (elf_file_section(file, name, &vaddr, &size) || !size || size > limit)
		return -ENOENT;
	bytes = malloc(size);
	if (!bytes)
		return -ENOMEM;
	got = elf_file_read(file, vaddr, bytes, size);
	if (got <= 0) {
		free(bytes);
		return -ENOENT;
	}
	*bytes_out = bytes;
	*range = (struct inline_range){.code = bytes, .vaddr = vaddr, .bytes = (size_t)got};
	return 0;
}

static int start_compare(const void *a, const void *b)
{
	const uint64_t *left = a, *right = b;

	return *left < *right ? -1 : *left > *right;
}

/* A program that is linked statically has no such table, but what it is made of. */
static int frames_load(struct elf_file *file, struct loaded *loaded)
{
	const struct inline_range *text = &loaded->image.text;
	size_t count;
	int err = elf_frames_starts(file, &loaded->starts, &count);

	for (size_t i = 0; !err && i < count; i++)
		if (loaded->starts[i] - text->vaddr < text->bytes)
			loaded->starts[loaded->image.start_count++] = loaded->starts[i];
	return err;
}

static int header_load(struct elf_file *file, struct loaded *loaded)
{
	const struct inline_range *text = &loaded->image.text;
	struct inline_range header;
	uint8_t *bytes;
	uint32_t count;
	int err = section_load(file, ".eh_frame_hdr", 12 + 8 * FUNCTIONS_MAX, &header, &bytes);

	if (err)
		return err;
	if (header.bytes < 12 || bytes[0] != 1 || bytes[2] != DW_EH_PE_UDATA4 ||
	    bytes[3] != DW_EH_PE_DATAREL_SDATA4) {
		free(bytes);
		return -ENOENT;
	}
	memcpy(&count, bytes + 8, sizeof(count));
	if (count > (header.bytes - 12) / 8)
		count = (uint32_t)((header.bytes - 12) / 8);
	loaded->starts = calloc((size_t)count + 1, sizeof(*loaded->starts));
	for (uint32_t i = 0; i < count && loaded->starts; i++) {
		int32_t distance;
		uint64_t start;

		memcpy(&distance, bytes + 12 + 8 * (size_t)i, sizeof(distance));
		start = header.vaddr + (uint64_t)(int64_t)distance;
		if (start - text->vaddr < text->bytes)
			loaded->starts[loaded->image.start_count++] = start;
	}
	free(bytes);
	return loaded->starts ? 0 : -ENOMEM;
}

static int starts_load(struct elf_file *file, struct loaded *loaded)
{
	int err = header_load(file, loaded);

	if (err == -ENOENT)
		err = frames_load(file, loaded);
	if (err)
		return err;
	qsort(loaded->starts, loaded->image.start_count, sizeof(*loaded->starts), start_compare);
	loaded->image.starts = loaded->starts;
	return loaded->image.start_count ? 0 : -ENOENT;
}

static void imports_load(struct elf_file *file, struct inline_image *image)
{
	static const struct {
		const char *name;
		enum abi_op op;
	} functions[] = {
		{"malloc", ABI_OP_MALLOC},
		{"calloc", ABI_OP_CALLOC},
		{"realloc", ABI_OP_REALLOC},
		{"free", ABI_OP_FREE},
	};

	for (size_t i = 0; i < sizeof(functions) / sizeof(functions[0]); i++) {
		uint64_t slots[INLINE_IMPORTS_MAX / 4];
		size_t count = elf_file_import_slots(file, functions[i].name, slots, INLINE_IMPORTS_MAX / 4);

		for (size_t s = 0; s < count; s++)
			image->imports[image->import_count++] =
				(struct inline_import){.slot = slots[s], .op = functions[i].op};
	}
}

/* 3.8 exports the variable, and has no function that could tell where it is. */
#define TRACING        "_Py_tracemalloc_config"
#define TRACING_OFFSET 4 /* .tracing */

static void objects_load(struct elf_file *file, struct inline_image *image)
{
	struct elf_symbol symbol;

	if (!elf_file_symbol(file, "_Py_NewReference", &symbol) && symbol.function) {
		image->new_reference = symbol.vaddr;
		elf_file_import_slots(file, "_Py_NewReference", image->new_reference_slots,
				      INLINE_TRACING_SLOTS);
	} else if (!elf_file_symbol(file, TRACING, &symbol) && !symbol.function && !symbol.tls) {
		image->tracing = symbol.vaddr + TRACING_OFFSET;
		image->tracing_offset = TRACING_OFFSET;
		elf_file_import_slots(file, TRACING, image->tracing_slots, INLINE_TRACING_SLOTS);
	}
}

#define VERSION_INT_LIST 0x030e0000u /* int objects have a free list from 3.14 on */

/* str and bytes have had a free list in no version. */
static void new_load(struct elf_file *file, struct inline_image *image)
{
	static const char *const types[] = {"PyUnicode_Type", "PyBytes_Type", "PyLong_Type"};
	static const char *const functions[] = {"PyType_GenericAlloc", "_PyType_AllocNoTrack",
						"_PyObject_New",       "_PyObject_NewVar",
						"_PyObject_GC_New",    "_PyObject_GC_NewVar"};
	struct elf_symbol symbol;
	uint64_t version = 0;

	_Static_assert(sizeof(types) / sizeof(types[0]) == INLINE_NEW_TYPES, "types");
	_Static_assert(sizeof(functions) / sizeof(functions[0]) == INLINE_NEW_FUNCTIONS, "functions");
	if (!elf_file_symbol(file, "Py_Version", &symbol) && !symbol.function && !symbol.tls &&
	    elf_file_read(file, symbol.vaddr, &version, sizeof(version)) != sizeof(version))
		version = VERSION_INT_LIST;
	for (size_t i = 0; i < INLINE_NEW_TYPES - (version >= VERSION_INT_LIST); i++)
		if (!elf_file_symbol(file, types[i], &symbol) && !symbol.function && !symbol.tls) {
			image->new_types[i] = symbol.vaddr;
			elf_file_import_slots(file, types[i], &image->new_slots[i], 1);
		}
	for (size_t i = 0; i < INLINE_NEW_FUNCTIONS; i++) {
		if (elf_file_symbol(file, functions[i], &symbol) || !symbol.function || symbol.ifunc)
			continue;
		image->new_functions[i].vaddr = symbol.vaddr;
		image->new_functions[i].bytes = symbol.size;
	}
}

static int image_load(struct elf_file *file, struct loaded *loaded)
{
	static const char *const stubs[INLINE_STUB_RANGES] = {".plt", ".plt.sec", ".plt.got"};
	int err = section_load(file, ".text", TEXT_MAX, &loaded->image.text, &loaded->text);

	if (err)
		return err == -ENOENT ? error_set(-ENOTSUP, "the file has no code in .text") : err;
	for (size_t i = 0; i < INLINE_STUB_RANGES; i++)
		if (section_load(file, stubs[i], STUBS_MAX, &loaded->image.stubs[i], &loaded->stubs[i]) ==
		    -ENOMEM)
			return -ENOMEM;
	imports_load(file, &loaded->image);
	objects_load(file, &loaded->image);
	new_load(file, &loaded->image);
	err = starts_load(file, loaded);
	return err == -ENOENT ? error_set(-ENOTSUP, "the file does not say where its functions begin") : err;
}

/* A site is named by the function that it is in, where that is known. */
static int sites_name(struct elf_file *file, struct plan_site *sites, size_t count)
{
	for (size_t i = 0; i < count; i++) {
		struct plan_site *site = &sites[i];
		struct elf_symbol symbol;

		if (elf_file_offset(file, site->vaddr, &site->offset))
			return error_set(-ENOTSUP, "code has no place in the file");
		if (!elf_file_symbol_at(file, site->vaddr, &symbol)) {
			site->in_function = (uint32_t)(site->vaddr - symbol.vaddr);
			snprintf(site->symbol, sizeof(site->symbol), "%.60s+0x%x", symbol.name,
				 site->in_function);
		} else {
			snprintf(site->symbol, sizeof(site->symbol), "0x%llx",
				 (unsigned long long)site->vaddr);
		}
	}
	return 0;
}

int plan_inline(struct elf_file *file, struct inline_sites *out)
{
	struct loaded loaded = {0};
	int err = image_load(file, &loaded);

	if (!err)
		err = inline_sites_find(&loaded.image, out);
	if (!err) {
		err = sites_name(file, out->sites, out->count);
		if (!err)
			err = sites_name(file, out->pools, out->pool_count);
		if (err)
			inline_sites_free(out);
	}
	free(loaded.text);
	for (size_t i = 0; i < INLINE_STUB_RANGES; i++)
		free(loaded.stubs[i]);
	free(loaded.starts);
	return err;
}
