/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Model. An object is {refcount, type, …}. It begins
 *
 * 	at the start of its block		if its type has no garbage collection,
 * 	after the collector's head (16 bytes)	if it has Py_TPFLAGS_HAVE_GC,
 * 	after two pointers and that head	if its type has a managed dict or weak
 * 						references (3.11+).
 *
 * A block is taken for an object if it has, at one of these offsets, a plausible reference count
 * and the address of a type whose flags require that offset. An address is a type's if the chain of
 * types of types leads from it to PyType_Type. Every address is read once: types are kept in a
 * table, other addresses in a cache of fixed size: a target may hold any number of them.
 *
 * A count of 0 marks an object on a free list. Blocks are not wiped, so a freed object looks the
 * same: a block is a dead object only if it holds no live one and its collector head is intact.
 */
#include "heap/heap_types.h"

#include <endian.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "base/hash.h"
#include "process/memory.h"

/* Py_TPFLAGS_MANAGED_WEAKREF, _MANAGED_DICT; not used up to 3.10 */
#define FLAG_PREHEADER     (3ull << 3)
#define FLAG_HAVE_GC       (1ull << 14)
#define FLAG_TYPE_SUBCLASS (1ull << 31)
#define FLAG_UNICODE       (1ull << 28) /* the size of a str depends on its text */
#define FLAG_INLINE_VALUES (1ull << 2)  /* attributes follow the object, 3.13+ */
#define PREHEADER_BYTES    16u
#define MAX_REFCOUNT       UINT32_MAX /* of immortal objects in 3.12 and later */
#define MAX_METATYPES      8u
#define MAX_TYPES          (1u << 20) /* objects of further types count as no objects */
#define MAX_TYPE_BYTES     256u       /* that are read of a type */
#define MAX_LOOKS          32768u     /* reads of types when only sizes are needed: 30 ms */
#define MAX_INSTANCE       4096u      /* bytes; larger than any block of a pool */
#define MAX_SIZED_TYPES    4096u      /* when only sizes are needed: it is a sample */
#define HOOKS_BEFORE       16u        /* bytes that the debug hooks prepend to a block */
#define HOOKS_BYTES        24u        /* bytes that they add in total */
#define NO_TYPES           (1u << 14) /* power of two */

struct slot {
	uint64_t address; /* 0: free */
	uint32_t type;
};

struct census {
	const struct python_runtime *runtime;
	const struct heap_offsets *offsets;
	struct heap_types *out;
	size_t capacity, types_max; /* of out->types */
	struct slot *slots;         /* hash table of capacity * 2: type address to out->types */
	uint64_t *no_types;         /* cache of NO_TYPES addresses that are no types, by hash */
	uint64_t looks;             /* how many more types may be read */
	uint64_t data, data_bytes;  /* the interpreter's .data and .bss, with its static objects */
	int err;
};

static uint64_t u64_at(const uint8_t *bytes)
{
	uint64_t value;

	memcpy(&value, bytes, sizeof(value));
	return value;
}

static void sum_add(struct heap_sum *sum, uint32_t bytes)
{
	sum->blocks++;
	sum->bytes += bytes;
}

static struct slot *slot_of(const struct census *census, uint64_t address)
{
	size_t mask = census->capacity * 2 - 1, i = hash_u64(address) & mask;

	while (census->slots[i].address && census->slots[i].address != address)
		i = (i + 1) & mask;
	return &census->slots[i];
}

static int types_grow(struct census *census)
{
	struct heap_types *out = census->out;
	size_t capacity = census->capacity ? census->capacity * 2 : 1024;
	struct heap_type *types = realloc(out->types, capacity * sizeof(*types));
	struct slot *slots = calloc(capacity * 2, sizeof(*slots));

	if (types)
		out->types = types;
	if (!types || !slots) {
		free(slots);
		return -ENOMEM;
	}
	free(census->slots);
	census->slots = slots;
	census->capacity = capacity;
	for (size_t i = 0; i < out->count; i++)
		*slot_of(census, types[i].address) = (struct slot){types[i].address, (uint32_t)i};
	return 0;
}

/* tp_basicsize and tp_itemsize follow tp_name in every version. */
static uint32_t instance_bytes(const struct census *census, const uint8_t *type, uint64_t flags)
{
	uint32_t name_at = census->offsets->type_name;
	uint64_t bytes = u64_at(type + name_at + 8);

	if (u64_at(type + name_at + 16) || flags & (FLAG_UNICODE | FLAG_INLINE_VALUES) ||
	    bytes > MAX_INSTANCE)
		return 0;
	return ((uint32_t)bytes + 7) / 8 * 8;
}

static int type_add(struct census *census, uint64_t address, uint64_t flags, uint32_t instance)
{
	struct heap_types *out = census->out;
	uint32_t number = (uint32_t)out->count;

	if (number == census->types_max)
		return -ENOENT;
	if (number == census->capacity && types_grow(census))
		return -ENOMEM;
	out->types[number] =
		(struct heap_type){.address = address, .flags = flags, .instance_bytes = instance};
	*slot_of(census, address) = (struct slot){address, number};
	out->count++;
	return (int)number;
}

/* The index in out->types; -ENOENT: there is no type at address; -errno. */
static int type_find(struct census *census, uint64_t address, unsigned int metatypes);

static int type_look(struct census *census, uint64_t address, unsigned int metatypes)
{
	uint32_t flags_at = census->offsets->type_flags;
	uint8_t bytes[MAX_TYPE_BYTES];
	uint64_t flags;
	int metatype, err;

	if (!metatypes || !census->looks)
		return -ENOENT;
	census->looks--;
	err = memory_read(census->runtime->pid, address, bytes, flags_at + 8);
	if (err)
		return err == -EFAULT ? -ENOENT : err;
	if (!u64_at(bytes))
		return -ENOENT;
	metatype = type_find(census, u64_at(bytes + census->runtime->offsets->abi.object_type),
			     metatypes - 1);
	if (metatype < 0)
		return metatype;
	/*
	 * Every object's chain leads to PyType_Type; only a type is an instance of a subclass of
	 * it.
	 */
	if (!(census->out->types[metatype].flags & FLAG_TYPE_SUBCLASS))
		return -ENOENT;
	flags = u64_at(bytes + flags_at);
	return type_add(census, address, flags, instance_bytes(census, bytes, flags));
}

static int type_find(struct census *census, uint64_t address, unsigned int metatypes)
{
	const struct slot *slot;
	uint64_t *no_type;
	int type;

	if (!address || address & 7 || address >> 47)
		return -ENOENT;
	slot = slot_of(census, address);
	if (slot->address)
		return (int)slot->type;
	no_type = &census->no_types[hash_u64(address) & (NO_TYPES - 1)];
	if (*no_type == address)
		return -ENOENT;
	type = type_look(census, address, metatypes);
	if (type == -ENOENT)
		*no_type = address;
	return type;
}

/*
 * Could it be a reference count? In an executable that is not position-independent, static objects
 * such as None have addresses as small as a count, and a list's items may be {None, a type}.
 */
static int count_plausible(const struct census *census, uint64_t count)
{
	count &= ~((uint64_t)census->offsets->count_flags << 48);
	return count && count <= MAX_REFCOUNT &&
	       (count & 7 || count - census->data >= census->data_bytes);
}

static uint32_t object_offset(const struct census *census, uint64_t flags)
{
	return (flags & FLAG_HAVE_GC ? census->offsets->gc_head_bytes : 0) +
	       (flags & FLAG_PREHEADER ? PREHEADER_BYTES : 0);
}

/* The type of the object in a block; -ENOENT: there is none; -errno. */
static int object_find(struct census *census, const uint8_t *block, uint32_t bytes, int dead)
{
	uint32_t head = census->offsets->gc_head_bytes;
	const uint32_t offsets[] = {0, head, head + PREHEADER_BYTES};

	for (size_t i = 0; i < sizeof(offsets) / sizeof(offsets[0]); i++) {
		const uint8_t *object = block + offsets[i];
		int type;

		if (offsets[i] + 16 > bytes)
			break;
		/* _gc_next is NULL while the collector does not track the object. */
		if (dead ? u64_at(object) || (offsets[i] && u64_at(object - head))
			 : !count_plausible(census, u64_at(object)))
			continue;
		type = type_find(census, u64_at(object + census->runtime->offsets->abi.object_type),
				 MAX_METATYPES);
		if (type == -ENOENT)
			continue;
		if (type < 0 || object_offset(census, census->out->types[type].flags) == offsets[i])
			return type;
	}
	return -ENOENT;
}

/*
 * CPython's debug hooks (PYTHONMALLOC=debug, -X dev, debug builds) enlarge a block: the requested
 * size, big-endian; a letter for the allocator domain, and 7 guard bytes; the requested block; 8
 * guard bytes, and a serial number in some builds. Returns the bytes before the requested block: 0
 * or 16.
 */
static uint32_t hooks_before(const uint8_t *block, uint32_t bytes)
{
	uint64_t asked;

	if (bytes < HOOKS_BYTES || (block[8] != 'o' && block[8] != 'm' && block[8] != 'r') ||
	    memcmp(block + 9, "\xfd\xfd\xfd\xfd\xfd\xfd\xfd", 7))
		return 0;
	memcpy(&asked, block, sizeof(asked));
	return be64toh(asked) <= bytes - HOOKS_BYTES ? HOOKS_BEFORE : 0;
}

static int block_visit(uint64_t address, uint32_t bytes, const uint8_t *content, void *context)
{
	struct census *census = context;
	struct heap_types *out = census->out;
	uint32_t before = hooks_before(content, bytes);
	int type = object_find(census, content + before, bytes - before, 0);

	(void)address;
	sum_add(&out->classes[(bytes - 1) / HEAP_CLASS_BYTES % HEAP_CLASSES], bytes);
	if (type >= 0) {
		sum_add(&out->objects, bytes);
		sum_add(&out->types[type].sum, bytes);
		return 0;
	}
	if (type == -ENOENT)
		type = object_find(census, content + before, bytes - before, 1);
	if (type < 0 && type != -ENOENT) {
		census->err = type;
		return 1;
	}
	sum_add(type >= 0 ? &out->dead : &out->others, bytes);
	return 0;
}

/* Reads at most to the end of a page at a time: the next page may not be mapped. */
static int name_read(const struct census *census, struct heap_type *type)
{
	uint64_t at;
	size_t have = 0;
	int err = memory_read_u64(census->runtime->pid, type->address + census->offsets->type_name,
				  &at);

	while (!err && have < sizeof(type->name) - 1 && strnlen(type->name, have) == have) {
		size_t bytes = sizeof(type->name) - 1 - have, page = 4096 - (at + have) % 4096;

		if (bytes > page)
			bytes = page;
		err = memory_read(census->runtime->pid, at + have, type->name + have, bytes);
		have += err ? 0 : bytes;
	}
	type->name[have] = 0;
	return err == -EFAULT ? 0 : err;
}

static int type_compare(const void *a, const void *b)
{
	const struct heap_type *x = a, *y = b;

	if (x->sum.bytes != y->sum.bytes)
		return x->sum.bytes < y->sum.bytes ? 1 : -1;
	if (x->sum.blocks != y->sum.blocks)
		return x->sum.blocks < y->sum.blocks ? 1 : -1;
	return x->address < y->address ? -1 : x->address > y->address;
}

/* Drops types without objects, reads the names of the others and sorts them. */
static int types_finish(const struct census *census)
{
	struct heap_types *out = census->out;
	size_t kept = 0;
	int err = 0;

	for (size_t i = 0; i < out->count && !err; i++) {
		if (!out->types[i].sum.blocks)
			continue;
		err = name_read(census, &out->types[i]);
		out->types[kept++] = out->types[i];
	}
	out->count = kept;
	qsort(out->types, kept, sizeof(*out->types), type_compare);
	return err;
}

static void data_find(struct census *census)
{
	struct elf_file *file = census->runtime->file;
	uint64_t data, bss, bytes, bss_bytes;

	if (elf_file_section(file, ".data", &data, &bytes))
		return;
	if (!elf_file_section(file, ".bss", &bss, &bss_bytes) && bss > data)
		bytes = bss + bss_bytes - data;
	census->data = data + census->runtime->bias;
	census->data_bytes = bytes;
}

/* PyType_Type, which is its own type. */
static int root_add(struct census *census)
{
	const struct python_runtime *runtime = census->runtime;
	struct elf_symbol symbol;
	uint64_t address, flags;
	int err = elf_file_symbol(runtime->file, "PyType_Type", &symbol);

	if (err == -ENOENT)
		return error_set(
			-ENOTSUP,
			"%s has no symbol PyType_Type, which is needed to recognize objects",
			elf_file_path(runtime->file));
	if (err)
		return err;
	address = symbol.vaddr + runtime->bias;
	err = memory_read_u64(runtime->pid, address + census->offsets->type_flags, &flags);
	if (err)
		return err;
	err = types_grow(census);
	return err ? err : type_add(census, address, flags | FLAG_TYPE_SUBCLASS, 0);
}

/* To be released with census_close(), also after a failure; out stays the caller's. */
static int census_open(struct census *census, const struct python_runtime *runtime,
		       size_t types_max, uint64_t looks, struct heap_types *out)
{
	int err;

	*census = (struct census){.runtime = runtime,
				  .offsets = &runtime->offsets->heap,
				  .out = out,
				  .types_max = types_max,
				  .looks = looks,
				  .no_types = calloc(NO_TYPES, sizeof(*census->no_types))};
	if (!census->no_types)
		return -ENOMEM;
	data_find(census);
	err = root_add(census);
	return err < 0 ? err : 0;
}

static void census_close(struct census *census)
{
	free(census->no_types);
	free(census->slots);
}

int heap_types_read(const struct python_runtime *runtime, struct heap_types *out)
{
	struct heap_types types = {0};
	struct census census;
	int err;

	error_clear();
	err = census_open(&census, runtime, MAX_TYPES, UINT64_MAX, &types);
	if (!err)
		err = heap_read(runtime, block_visit, &census, &types.walk);
	if (!err)
		err = census.err;
	if (!err)
		err = types_finish(&census);
	census_close(&census);
	if (err) {
		heap_types_free(&types);
		return err;
	}
	*out = types;
	return 0;
}

void heap_types_free(struct heap_types *types)
{
	free(types->types);
	memset(types, 0, sizeof(*types));
}

struct heap_sizes {
	struct census census;
	struct heap_types types;
};

int heap_sizes_new(struct heap_sizes **out, const struct python_runtime *runtime)
{
	struct heap_sizes *sizes = calloc(1, sizeof(*sizes));
	int err;

	if (!sizes)
		return -ENOMEM;
	err = census_open(&sizes->census, runtime, MAX_SIZED_TYPES, MAX_LOOKS, &sizes->types);
	if (err) {
		heap_sizes_free(sizes);
		return err;
	}
	*out = sizes;
	return 0;
}

void heap_sizes_free(struct heap_sizes *sizes)
{
	if (!sizes)
		return;
	census_close(&sizes->census);
	heap_types_free(&sizes->types);
	free(sizes);
}

uint32_t heap_sizes_of(struct heap_sizes *sizes, const uint8_t *content, uint32_t bytes)
{
	uint32_t before = hooks_before(content, bytes);
	int type = object_find(&sizes->census, content + before, bytes - before, 0);
	const struct heap_type *found = type < 0 ? NULL : &sizes->types.types[type];

	if (!found || !found->instance_bytes)
		return 0;
	return found->instance_bytes + object_offset(&sizes->census, found->flags);
}
