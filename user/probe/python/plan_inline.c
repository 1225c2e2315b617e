/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Even a stripped file tells the unwinder where its functions begin: .eh_frame_hdr has a sorted
 * table of them (Linux Standard Base, "Exception Frames").
 */
#include "probe/python/plan_inline.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "object/elf/elf_frames.h"
#include "object/insn/machine.h"
#include "probe/pymalloc/alive.h"
#include "probe/python/plan_slots.h"
#include "util/array.h"
#include "util/error.h"
#include "util/sorted.h"

#define TEXT_MAX      (64u << 20)
#define STUBS_MAX     (1u << 20)
#define DATA_MAX      (64u << 20)
#define FUNCTIONS_MAX (1u << 20)

/* BOLT's prefix for the names of sections that it has replaced. */
#define OLD_PREFIX ".bolt.org."

/* .eh_frame_hdr: the encodings that all linkers use. */
#define DW_EH_PE_UDATA4         0x03
#define DW_EH_PE_DATAREL_SDATA4 0x3b

struct loaded {
	struct inline_image image;
	/* the part of text that BOLT replaced, partly unused now; bytes 0: there is none */
	struct inline_range old;
	uint8_t *text, *stubs[INLINE_STUB_RANGES];
	uint64_t *starts;
};

/* 0; -ENOENT the file does not hold the bytes; -ENOMEM. The caller frees *bytes_out. */
static int range_load(struct elf_file *file, uint64_t vaddr, uint64_t size,
		      struct inline_range *range, uint8_t **bytes_out)
{
	uint8_t *bytes = malloc(size);

	if (!bytes)
		return -ENOMEM;
	int got = elf_file_read(file, vaddr, bytes, size);
	if (got <= 0) {
		free(bytes);
		return -ENOENT;
	}
	*bytes_out = bytes;
	*range = (struct inline_range){.code = bytes, .vaddr = vaddr, .bytes = (size_t)got};
	return 0;
}

/* 0; -ENOENT no such section; -ENOMEM. The caller frees *bytes_out. */
static int section_load(struct elf_file *file, const char *name, size_t limit,
			struct inline_range *range, uint8_t **bytes_out)
{
	uint64_t vaddr, size;

	if (elf_file_section(file, name, &vaddr, &size) || !size || size > limit)
		return -ENOENT;
	return range_load(file, vaddr, size, range, bytes_out);
}

static bool is_old(const struct elf_section *section)
{
	return !strncmp(section->name, OLD_PREFIX, strlen(OLD_PREFIX));
}

/* Does the section hold functions? A .plt only jumps to functions of other files. */
static bool is_code(const struct elf_section *section)
{
	return section->code && section->contents && section->size &&
	       strncmp(section->name, ".plt", 4) != 0;
}

/* Extends the range to include the section. -ENOTSUP: the result is too large. */
static int range_extend(struct inline_range *range, const struct elf_section *section)
{
	uint64_t start = section->vaddr, end = section->vaddr + section->size;

	if (range->bytes && range->vaddr < start)
		start = range->vaddr;
	if (range->bytes && range->vaddr + range->bytes > end)
		end = range->vaddr + range->bytes;
	if (section->vaddr + section->size < section->vaddr || end - start > TEXT_MAX)
		return error_set(-ENOTSUP, "the code of the file is spread over more than %u MiB",
				 TEXT_MAX >> 20);
	range->vaddr = start;
	range->bytes = (size_t)(end - start);
	return 0;
}

/* Loads all sections with code as one range; the gaps hold no code. */
static int text_load(struct elf_file *file, struct loaded *loaded)
{
	struct inline_range *text = &loaded->image.text;
	struct elf_section section;
	int err = 0;

	for (size_t i = 0; !err && !elf_file_loaded_section(file, i, &section); i++)
		if (is_code(&section))
			err = range_extend(text, &section);
	for (size_t i = 0; !err && !elf_file_loaded_section(file, i, &section); i++)
		if (is_code(&section) && is_old(&section))
			err = range_extend(&loaded->old, &section);
	if (err || !text->bytes)
		return err ?: error_set(-ENOTSUP, "the file has no section with code");
	loaded->text = malloc(text->bytes);
	if (!loaded->text)
		return -ENOMEM;
	memset(loaded->text, loaded->image.machine->filler, text->bytes);
	text->code = loaded->text;
	for (size_t i = 0; !elf_file_loaded_section(file, i, &section); i++)
		if (is_code(&section) &&
		    elf_file_read(file, section.vaddr, loaded->text + (section.vaddr - text->vaddr),
				  section.size) <= 0)
			return error_set(-ENOTSUP, "the file does not hold its code");
	return 0;
}

static int data_follow(struct elf_file *file, struct inline_alive *alive)
{
	struct elf_section section;
	int err = 0;

	for (size_t i = 0; !err && !elf_file_loaded_section(file, i, &section); i++) {
		struct inline_range data;
		uint8_t *bytes;

		if (section.code || !section.contents || is_old(&section) || !section.size ||
		    section.size > DATA_MAX)
			continue;
		err = range_load(file, section.vaddr, section.size, &data, &bytes);
		if (!err) {
			inline_alive_data(alive, &data);
			free(bytes);
		}
		err = err == -ENOENT ? 0 : err;
	}
	return err;
}

/* Overwrites the functions of a replaced section that nothing uses any more. */
static int dead_remove(struct elf_file *file, struct loaded *loaded)
{
	struct inline_alive alive;

	if (!loaded->old.bytes)
		return 0;
	/* References between functions are recognised on x86-64. */
	if (loaded->image.machine != &machine_x86)
		return error_set(-ENOTSUP, "the file was rewritten by BOLT");
	int err = inline_alive_open(&alive, &loaded->image, &loaded->old)
			  ?: data_follow(file, &alive);
	if (!err)
		inline_alive_finish(&alive, loaded->text);
	inline_alive_close(&alive);
	return err;
}

/* A statically linked program has no such table, but has .eh_frame. */
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

		memcpy(&distance, bytes + 12 + 8 * (size_t)i, sizeof(distance));
		uint64_t start = header.vaddr + (uint64_t)(int64_t)distance;
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
	qsort(loaded->starts, loaded->image.start_count, sizeof(*loaded->starts), key_compare);
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

	for (size_t i = 0; i < ARRAY_SIZE(functions); i++) {
		uint64_t slots[INLINE_IMPORTS_MAX / 4];
		size_t count = elf_file_import_slots(file, functions[i].name, slots,
						     INLINE_IMPORTS_MAX / 4);

		for (size_t s = 0; s < count; s++)
			image->imports[image->import_count++] =
				(struct inline_import){.slot = slots[s], .op = functions[i].op};
	}
}

/* 3.8 exports the variable, and has no function that leads to it. */
#define TRACING        "_Py_tracemalloc_config"
#define TRACING_OFFSET 4 /* .tracing */
#define GET_ALLOCATOR  "PyMem_GetAllocator"

static void objects_load(struct elf_file *file, struct inline_image *image)
{
	uint64_t functions[PLAN_FUNCTIONS];
	struct elf_symbol symbol;

	if (!plan_slots_find(file, "PyObject_", functions))
		memcpy(image->object_functions, functions, sizeof(image->object_functions));
	if (!elf_file_symbol(file, GET_ALLOCATOR, &symbol) && symbol.function) {
		image->get_allocator = symbol.vaddr;
		elf_file_import_slots(file, GET_ALLOCATOR, image->get_allocator_slots,
				      INLINE_TRACING_SLOTS);
	}
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

/*
 * Types without a free list, from one version on and before another. The interpreter's state
 * (pycore_interp.h) and pycore_freelist.h list the types that have one: from 3.11 on all free lists
 * are there, and from 3.14 on most types have one.
 */
static const struct new_type {
	const char *name;
	uint32_t from, before;
} new_types[] = {
	{"PyUnicode_Type", 0, UINT32_MAX},
	{"PyBytes_Type", 0, UINT32_MAX},
	{"PyLong_Type", 0, 0x030e0000},
	{"PyFunction_Type", 0x030b0000, 0x030e0000},
	{"PyCFunction_Type", 0x030b0000, 0x030e0000},
	{"PyCMethod_Type", 0x030b0000, 0x030e0000},
	{"PyMethod_Type", 0x030b0000, 0x030e0000},
	{"PyListIter_Type", 0x030b0000, 0x030e0000},
	{"PyTupleIter_Type", 0x030b0000, 0x030e0000},
	{"PyUnicodeIter_Type", 0x030b0000, 0x030e0000},
	{"PyRangeIter_Type", 0x030b0000, 0x030e0000},
	{"PyDictIterKey_Type", 0x030b0000, 0x030e0000},
	{"PyDictIterValue_Type", 0x030b0000, 0x030e0000},
	{"PyDictIterItem_Type", 0x030b0000, 0x030e0000},
	{"PySet_Type", 0x030b0000, 0x030e0000},
	{"PySetIter_Type", 0x030b0000, 0x030e0000},
	{"PyGen_Type", 0x030b0000, 0x030e0000},
	{"PyCell_Type", 0x030b0000, 0x030e0000},
	{"PyRange_Type", 0x030b0000, 0x030e0000},
	{"PyEnum_Type", 0x030b0000, 0x030e0000},
	{"PyZip_Type", 0x030b0000, 0x030e0000},
};

static void new_load(struct elf_file *file, struct inline_image *image)
{
	static const char *const functions[] = {"PyType_GenericAlloc", "_PyType_AllocNoTrack",
						"_PyObject_New",       "_PyObject_NewVar",
						"_PyObject_GC_New",    "_PyObject_GC_NewVar"};
	struct elf_symbol symbol;
	uint64_t version = 0;

	_Static_assert(ARRAY_SIZE(new_types) == INLINE_NEW_TYPES, "types");
	_Static_assert(ARRAY_SIZE(functions) == INLINE_NEW_FUNCTIONS, "functions");
	if (!elf_file_symbol(file, "Py_Version", &symbol) && !symbol.function && !symbol.tls &&
	    elf_file_read(file, symbol.vaddr, &version, sizeof(version)) != sizeof(version))
		version = UINT32_MAX - 1; /* the newest */
	for (size_t i = 0; i < INLINE_NEW_TYPES; i++)
		if (version >= new_types[i].from && version < new_types[i].before &&
		    !elf_file_symbol(file, new_types[i].name, &symbol) && !symbol.function &&
		    !symbol.tls) {
			image->new_types[i] = symbol.vaddr;
			elf_file_import_slots(file, new_types[i].name, &image->new_slots[i], 1);
		}
	for (size_t i = 0; i < INLINE_NEW_FUNCTIONS; i++) {
		if (elf_file_symbol(file, functions[i], &symbol) || !symbol.function ||
		    symbol.ifunc)
			continue;
		image->new_functions[i].vaddr = symbol.vaddr;
		image->new_functions[i].bytes = symbol.size;
	}
}

static int image_load(struct elf_file *file, struct loaded *loaded)
{
	static const char *const stubs[INLINE_STUB_RANGES] = {".plt", ".plt.sec", ".plt.got"};
	int err = text_load(file, loaded);

	if (err)
		return err;
	for (size_t i = 0; i < INLINE_STUB_RANGES; i++)
		if (section_load(file, stubs[i], STUBS_MAX, &loaded->image.stubs[i],
				 &loaded->stubs[i]) == -ENOMEM)
			return -ENOMEM;
	imports_load(file, &loaded->image);
	objects_load(file, &loaded->image);
	new_load(file, &loaded->image);
	err = starts_load(file, loaded);
	if (err)
		return err == -ENOENT ? error_set(-ENOTSUP,
						  "the file does not say where its functions begin")
				      : err;
	return dead_remove(file, loaded);
}

/* Names each site by the function that it is in, if that is known. */
static int sites_name(struct elf_file *file, struct plan_site *sites, size_t count)
{
	for (size_t i = 0; i < count; i++) {
		struct plan_site *site = &sites[i];
		struct elf_symbol symbol;

		if (elf_file_offset(file, site->vaddr, &site->offset))
			return error_set(-ENOTSUP, "the code at a site is not in the file");
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
	struct loaded loaded = {.image = {.machine = machine_own()}};
	int err = image_load(file, &loaded);

	err = err ?: inline_sites_find(&loaded.image, out);
	if (!err) {
		err = sites_name(file, out->sites, out->count)
			      ?: sites_name(file, out->pools, out->pool_count);
		if (err)
			inline_sites_free(out);
	}
	free(loaded.text);
	for (size_t i = 0; i < INLINE_STUB_RANGES; i++)
		free(loaded.stubs[i]);
	free(loaded.starts);
	return err;
}
