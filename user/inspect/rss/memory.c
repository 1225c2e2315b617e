/* SPDX-License-Identifier: Apache-2.0 */
#include "inspect/rss/memory.h"

#include <dirent.h>
#include <elf.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "inspect/rss/account.h"
#include "inspect/rss/large.h"
#include "proc/freeze.h"
#include "runtime/malloc/mapped.h"
#include "runtime/malloc/reader.h"
#include "util/array.h"
#include "util/cleanup.h"
#include "util/clock.h"
#include "util/error.h"
#include "util/sorted.h"

struct memory_reading {
	struct process_info info;
	struct python_runtime runtime;
	int has_python;
	struct space *space; /* the runtime's, if there is one */
	struct glibc *glibc; /* NULL: none */
	struct allocators allocators;
	struct malloc_reader *reader; /* of what is not in a heap */
	/* why one of them cannot be read; "": it has none */
	char python_reason[MEMORY_REASON], malloc_reason[MEMORY_REASON];
	struct smaps_files files;
	struct memory_account account;
	struct memory_large large; /* large blocks of malloc */
	struct memory_report *report;
	struct memory_sparse *sparse; /* arenas of pymalloc with few live blocks, by address */
	size_t sparse_count, sparse_capacity;
};

/* An arena of pymalloc. */
struct memory_sparse {
	uint64_t address, live; /* live: bytes of its blocks in use */
};

static bool is_missing(int err)
{
	return err == -ENOTSUP || err == -ENOENT || err == -ENODATA || err == -ENOEXEC ||
	       err == -EAGAIN || err == -EFAULT || err == -ESTALE || err == -EINVAL;
}

/* A part that cannot be read is told, and the rest goes on without it: its memory is anonymous. */
static int part_end(int err, char reason[MEMORY_REASON])
{
	if (!is_missing(err))
		return err;
	if (err != -ENOENT)
		snprintf(reason, MEMORY_REASON, "%s", error_reason(err));
	return 0;
}

/*
 * Data that a file does not contain, since it is zero at first (.bss), is in anonymous memory
 * behind the file's maps. The file's program headers say how long it is; they are on the first page
 * of its lowest map. What is on no resident page stays unknown.
 */

#define HEADERS_MAX 64u

struct bss_image {
	uint64_t bias;
	uint32_t count;
	Elf64_Phdr headers[HEADERS_MAX];
};

static uint64_t page_up(uint64_t address)
{
	return (address + MEMORY_PAGE - 1) / MEMORY_PAGE * MEMORY_PAGE;
}

/* 0; -ENOENT: no ELF file begins there; -ESRCH; -EPERM. */
static int image_read(struct malloc_reader *reader, uint64_t start, struct bss_image *image)
{
	Elf64_Ehdr file;
	int err = reader_read(reader, start, &file, sizeof(file), 0);

	if (err)
		return err == -ESRCH || err == -EPERM ? err : -ENOENT;
	if (memcmp(file.e_ident, ELFMAG, SELFMAG) != 0 ||
	    file.e_phentsize != sizeof(image->headers[0]) || !file.e_phnum ||
	    file.e_phnum > HEADERS_MAX || file.e_phoff > MEMORY_PAGE)
		return -ENOENT;
	image->count = file.e_phnum;
	if (reader_read(reader, start + file.e_phoff, image->headers,
			image->count * sizeof(image->headers[0]), 0))
		return -ENOENT;
	for (uint32_t i = 0; i < image->count; i++)
		if (image->headers[i].p_type == PT_LOAD) {
			image->bias = start - image->headers[i].p_vaddr / MEMORY_PAGE * MEMORY_PAGE;
			return 0;
		}
	return -ENOENT;
}

/* Only anonymous memory counts: a lying header takes nothing from files. */
static void segment_take(struct memory_reading *reading, const struct bss_image *image,
			 const Elf64_Phdr *header)
{
	uint64_t start = page_up(image->bias + header->p_vaddr + header->p_filesz);
	uint64_t end = page_up(image->bias + header->p_vaddr + header->p_memsz);
	const struct memory_map *map = memory_map_at(&reading->account, start);
	struct memory_region region;

	if (header->p_type != PT_LOAD || header->p_memsz <= header->p_filesz || !map ||
	    map->source != MEMORY_ANONYMOUS || map->name[0] || map->start != start ||
	    end > map->end)
		return;
	if (!memory_region_open(&reading->account, start, end, &region))
		memory_region_take(&region, end, MEMORY_BSS, 1);
}

/* Takes the .bss of mapped files. 0, -errno. */
static int memory_bss_read(struct memory_reading *reading)
{
	struct memory_account *account = &reading->account;
	int err = 0;

	for (size_t i = 0; i < account->map_count && !err; i++) {
		const struct memory_map *map = &account->maps[i];
		struct bss_image image;

		if (map->source != MEMORY_FILE ||
		    (i && !strcmp(account->maps[i - 1].name, map->name)))
			continue;
		err = image_read(reading->reader, map->start, &image);
		for (uint32_t n = 0; !err && n < image.count; n++)
			segment_take(reading, &image, &image.headers[n]);
		err = err == -ENOENT ? 0 : err;
	}
	return err;
}

/*
 * glibc's heaps. What malloc_trim(0) would return (malloc/malloc.c, mtrim() and systrim()): it
 * joins the chunks of fastbins with their free neighbours; then of each free chunk the pages behind
 * its links; then of the main arena's top, if it ends at the break, all but MINSIZE, in pages.
 */

#define LARGE_BYTES 512u /* pymalloc has no larger blocks */
#define CHUNK_LINKS 48u  /* sizeof(struct malloc_chunk) */
#define MIN_SIZE    32u

struct malloc_reading {
	struct memory_reading *reading;
	struct memory_region region;   /* of the heap; account NULL: none */
	uint32_t heap;                 /* UINT32_MAX: none yet */
	uint64_t free_start, free_end; /* chunks that malloc_trim() would join */
	int err;
};

static const enum memory_kind kinds[GLIBC_KINDS] = {
	[GLIBC_USED] = MEMORY_USED,      [GLIBC_TCACHE] = MEMORY_TCACHE,
	[GLIBC_FAST] = MEMORY_FASTBINS,  [GLIBC_BIN] = MEMORY_BINS,
	[GLIBC_TOP] = MEMORY_TOP,        [GLIBC_OWN] = MEMORY_OWN,
	[GLIBC_UNKNOWN] = MEMORY_UNREAD,
};

static uint64_t page_down(uint64_t address)
{
	return address / MEMORY_PAGE * MEMORY_PAGE;
}

static void trim_add(struct malloc_reading *reader, uint64_t start, uint64_t end)
{
	if (start < end)
		reader->reading->report->trimmable +=
			memory_resident(&reader->reading->account, start, end);
}

static void free_end(struct malloc_reading *reader)
{
	trim_add(reader, page_up(reader->free_start + CHUNK_LINKS), page_down(reader->free_end));
	reader->free_start = reader->free_end = 0;
}

/* The main arena's top; heap: the one that it ends. Free chunks in front of it are joined. */
static void top_trim(struct malloc_reading *reader, const struct glibc_chunk *chunk)
{
	const struct glibc_heap *heap = &reader->reading->glibc->heaps[chunk->heap];
	uint64_t end = chunk->address + chunk->bytes, start = chunk->address;

	if (reader->free_end == start)
		start = reader->free_start;
	reader->free_start = reader->free_end = 0;
	const struct memory_map *map = memory_map_at(&reader->reading->account, end - 1);
	if (!heap->arena && map && page_up(end) == map->end && end - start > MIN_SIZE + 1)
		trim_add(reader, end - page_down(end - start - MIN_SIZE - 1), end);
}

static void trim_look(struct malloc_reading *reader, const struct glibc_chunk *chunk)
{
	if (chunk->kind == GLIBC_TOP) {
		top_trim(reader, chunk);
	} else if (chunk->kind != GLIBC_FAST && chunk->kind != GLIBC_BIN) {
		free_end(reader);
	} else {
		if (reader->free_end != chunk->address) {
			free_end(reader);
			reader->free_start = chunk->address;
		}
		reader->free_end = chunk->address + chunk->bytes;
	}
}

static void heap_begin(struct malloc_reading *reader, uint32_t number)
{
	const struct glibc_heap *heap = &reader->reading->glibc->heaps[number];

	free_end(reader);
	reader->heap = number;
	reader->region.account = NULL;
	if (memory_region_open(&reader->reading->account, heap->start, heap->end,
			       &reader->region) == -ENOMEM)
		reader->err = -ENOMEM;
}

static int chunk_take(const struct glibc_chunk *chunk, void *context)
{
	struct malloc_reading *reader = context;
	enum memory_kind kind = kinds[chunk->kind];
	uint32_t arena = reader->reading->glibc->heaps[chunk->heap].arena;

	if (chunk->heap != reader->heap)
		heap_begin(reader, chunk->heap);
	reader->reading->report->arenas[arena].bytes[chunk->kind] += chunk->bytes;
	if (kind == MEMORY_USED && chunk->bytes > LARGE_BYTES) {
		const struct memory_block *block =
			memory_large_find(&reader->reading->large, chunk->address + GLIBC_HEADER);
		if (block && block->python)
			kind = MEMORY_USED_PYTHON;
	}
	if (reader->region.account)
		memory_region_take(&reader->region, chunk->address + chunk->bytes, kind, 1);
	trim_look(reader, chunk);
	return reader->err;
}

static int chunk_list(const struct glibc_chunk *chunk, void *context)
{
	struct malloc_reading *reader = context;

	if (chunk->kind == GLIBC_USED && chunk->bytes > LARGE_BYTES)
		reader->err =
			memory_large_add(&reader->reading->large, chunk->address + GLIBC_HEADER,
					 chunk->bytes - GLIBC_HEADER, 0);
	return reader->err;
}

static int mapped_list(uint64_t start, uint64_t bytes, void *context)
{
	struct malloc_reading *reader = context;

	reader->err = memory_large_add(&reader->reading->large, start + GLIBC_HEADER,
				       bytes - GLIBC_HEADER, 1);
	return reader->err;
}

/* Heaps and what is taken already, by address: no mapped blocks are in them. */
static struct glibc_range *except_new(const struct memory_reading *reading, size_t *count)
{
	const struct glibc *glibc = reading->glibc;
	const struct memory_account *account = &reading->account;
	size_t heap = 0, region = 0, capacity = glibc->heap_count + account->region_count + 1;
	struct glibc_range *except = calloc(capacity, sizeof(*except));

	*count = 0;
	while (except && (heap < glibc->heap_count || region < account->region_count)) {
		int is_heap = region == account->region_count ||
			      (heap < glibc->heap_count &&
			       glibc->heaps[heap].start < account->regions[region].start);

		except[(*count)++] = is_heap ? (struct glibc_range){glibc->heaps[heap].start,
								    glibc->heaps[heap].end}
					     : (struct glibc_range){account->regions[region].start,
								    account->regions[region].end};
		heap += (size_t)is_heap;
		region += (size_t)!is_heap;
	}
	return except;
}

/* Lists the large blocks of malloc. 0, -errno. */
static int memory_malloc_list(struct memory_reading *reading, const struct process_maps *maps)
{
	struct malloc_reading reader = {.reading = reading};
	struct glibc_totals totals;
	size_t except_count;
	int err = glibc_look(reading->glibc, maps);

	if (!err)
		err = glibc_walk(reading->glibc, chunk_list, &reader, &totals) ?: reader.err;
	if (err)
		return err;
	_cleanup_free_ struct glibc_range *except = except_new(reading, &except_count);
	err = except ? glibc_mapped_walk(reading->glibc, maps, except, except_count, mapped_list,
					 &reader)
		     : -ENOMEM;
	return err ?: reader.err;
}

/*
 * Allocators that replace malloc. They are walked twice: which of the large blocks are Python's is
 * known once its heap is read, and for that the blocks must be known.
 */

struct allocator_reading {
	struct memory_reading *reading;
	size_t number;
};

/* Visits the blocks of a run that pymalloc does not have. */
static int run_list(const struct allocator_run *run, void *context)
{
	struct memory_reading *reading = context;
	int err = 0;

	if (run->kind != ALLOCATOR_USED || run->block_bytes <= LARGE_BYTES)
		return 0;
	for (uint64_t i = 0; i < run->count && !err; i++)
		err = memory_large_add(&reading->large, run->address + i * run->block_bytes,
				       run->block_bytes, 0);
	return err;
}

/* Lists the large blocks of allocators. 0, -errno. */
static int memory_allocators_list(struct memory_reading *reading, const struct process_maps *maps)
{
	int err = 0;

	for (size_t i = 0; i < reading->allocators.count && !err; i++) {
		struct allocator_totals totals;

		err = part_end(allocator_walk(&reading->allocators.items[i], maps, run_list,
					      reading, &totals),
			       reading->report->allocators_reason);
	}
	return err;
}

static int run_range_take(struct allocator_reading *walk, const struct allocator_run *run,
			  uint64_t first, uint64_t last, unsigned int kind)
{
	if (first == last)
		return 0;
	int err =
		memory_range_take(&walk->reading->account, run->address + first * run->block_bytes,
				  run->address + last * run->block_bytes,
				  MEMORY_ALLOCATOR(walk->number, kind), last - first);
	/* What overlaps something else is an inconsistency; what it has stays anonymous. */
	return err == -ENOMEM ? err : 0;
}

static int run_take(const struct allocator_run *run, void *context)
{
	struct allocator_reading *walk = context;
	const struct memory_large *large = &walk->reading->large;
	uint64_t first = 0;
	int err = 0;

	if (run->kind != ALLOCATOR_USED || run->block_bytes <= LARGE_BYTES || !large->count)
		return run_range_take(walk, run, 0, run->count, run->kind);
	for (uint64_t i = 0; i < run->count && !err; i++) {
		const struct memory_block *block =
			memory_large_find(large, run->address + i * run->block_bytes);

		if (!block || !block->python)
			continue;
		err = run_range_take(walk, run, first, i, ALLOCATOR_USED)
			      ?: run_range_take(walk, run, i, i + 1, MEMORY_ALLOCATOR_PYTHON);
		first = i + 1;
	}
	return err ?: run_range_take(walk, run, first, run->count, ALLOCATOR_USED);
}

/* Takes the heaps of allocators. 0, -errno. */
static int memory_allocators_read(struct memory_reading *reading, const struct process_maps *maps)
{
	struct memory_report *report = reading->report;
	int err = 0;

	report->allocators = calloc(reading->allocators.count + 1, sizeof(*report->allocators));
	if (!report->allocators)
		return -ENOMEM;
	for (size_t i = 0; i < reading->allocators.count && !err; i++) {
		const struct allocator *allocator = &reading->allocators.items[i];
		struct memory_allocator *out = &report->allocators[report->allocator_count++];
		struct allocator_reading walk = {reading, i};

		out->type = allocator->type;
		memcpy(out->version, allocator->version, sizeof(out->version));
		err = part_end(allocator_walk(allocator, maps, run_take, &walk, &out->totals),
			       report->allocators_reason);
	}
	return err;
}

static int mapped_take(struct memory_reading *reading, const struct memory_block *block)
{
	uint64_t start = block->address - GLIBC_HEADER, bytes = block->bytes + GLIBC_HEADER;
	struct memory_region region;
	int err = memory_region_open(&reading->account, start, start + bytes, &region);

	/* What looks like a block in an arena of Python is none. */
	if (err)
		return err == -ENOMEM ? err : 0;
	memory_region_take(&region, start + bytes,
			   block->python ? MEMORY_MAPPED_PYTHON : MEMORY_MAPPED, 1);
	reading->report->mapped_count++;
	reading->report->mapped_bytes += bytes;
	return 0;
}

/* Takes the heaps of malloc, and its mapped blocks. 0, -errno. */
static int memory_malloc_read(struct memory_reading *reading)
{
	struct malloc_reading reader = {.reading = reading, .heap = UINT32_MAX};
	struct memory_report *report = reading->report;
	const struct glibc *glibc = reading->glibc;

	report->arenas = calloc(glibc->arena_count, sizeof(*report->arenas));
	if (!report->arenas)
		return -ENOMEM;
	report->arena_count = glibc->arena_count;
	for (size_t i = 0; i < glibc->arena_count; i++)
		report->arenas[i] = (struct memory_arena){.address = glibc->arenas[i].address,
							  .system = glibc->arenas[i].system_bytes};
	report->glibc_minor = glibc->minor;
	report->mmaps = glibc->mmaps;
	int err = glibc_walk(reading->glibc, chunk_take, &reader, &report->chunks) ?: reader.err;
	free_end(&reader);
	for (size_t i = 0; i < reading->large.count && !err; i++)
		if (reading->large.blocks[i].mapped)
			err = mapped_take(reading, &reading->large.blocks[i]);
	return err;
}

/*
 * pymalloc's arenas. Every byte of an arena is in a pool in use (its header, its live and its free
 * blocks, what is left at its end), or in a free pool.
 */

struct python_reader {
	struct memory_reading *reading;
	struct memory_region region; /* of the arena; account NULL: none */
	uint64_t arena, arena_bytes;
	uint64_t live; /* bytes of the arena's blocks in use */
	int has_pages; /* the arena is a segment of mimalloc's */
	int skip, err;
};

#define SPARSE_SHARE 4u /* an arena is sparse if at most a quarter of it is in use */

static void sparse_add(struct python_reader *reader)
{
	struct memory_reading *reading = reader->reading;
	int err = ARRAY_GROW(reading->sparse, reading->sparse_capacity, reading->sparse_count);

	if (err)
		reader->err = err;
	else
		reading->sparse[reading->sparse_count++] =
			(struct memory_sparse){reader->arena, reader->live};
}

static void arena_end(struct python_reader *reader)
{
	if (reader->region.account) {
		memory_region_take(&reader->region, reader->region.end, MEMORY_PY_FREE_POOLS, 0);
		/* mimalloc gives back each page without blocks. */
		if (!reader->has_pages && reader->live <= reader->arena_bytes / SPARSE_SHARE)
			sparse_add(reader);
	}
	reader->region.account = NULL;
	reader->live = 0;
}

static void arena_begin(struct python_reader *reader, const struct heap_pool *pool)
{
	arena_end(reader);
	reader->arena = pool->arena;
	reader->arena_bytes = pool->arena_bytes;
	reader->has_pages = pool->arena_head != 0;
	int err = memory_region_open(&reader->reading->account, pool->arena,
				     pool->arena + pool->arena_bytes, &reader->region);
	/* An arena that overlaps another is an inconsistency; what it has stays "other". */
	reader->skip = err != 0;
	if (err == -ENOMEM)
		reader->err = err;
	if (!err && pool->arena_head)
		memory_region_take(&reader->region, pool->arena + pool->arena_head,
				   MEMORY_PY_HEADERS, 0);
}

static enum memory_kind block_kind(const struct heap_pool *pool, uint32_t block)
{
	if (block >= pool->count || pool->state[block] == HEAP_BLOCK_FREE)
		return MEMORY_PY_PINNED;
	return pool->state[block] == HEAP_BLOCK_LIVE ? MEMORY_PY_LIVE : MEMORY_PY_WAITING;
}

/* Takes blocks in runs of the same state. */
static void blocks_take(struct python_reader *reader, const struct heap_pool *pool)
{
	uint32_t capacity = (uint32_t)((pool->end - pool->address) / pool->block_bytes), i = 0;
	struct memory_region *region = &reader->region;

	while (i < capacity) {
		enum memory_kind kind = block_kind(pool, i);
		uint32_t first = i;

		while (i < capacity && block_kind(pool, i) == kind)
			i++;
		reader->live += kind == MEMORY_PY_PINNED ? 0 : (i - first) * pool->block_bytes;
		memory_region_take(region, pool->address + (uint64_t)i * pool->block_bytes, kind,
				   i - first);
	}
	memory_region_take(region, pool->end, MEMORY_PY_HEADERS, 0);
}

static int blocks_search(struct python_reader *reader, const struct heap_pool *pool)
{
	struct memory_large *large = &reader->reading->large;
	int err = 0;

	for (uint32_t i = 0; i < pool->count && !err && large->count; i++)
		if (heap_pool_live(pool, i))
			err = memory_large_search(large, pool->content + i * pool->block_bytes,
						  pool->content_bytes < pool->block_bytes
							  ? pool->content_bytes
							  : pool->block_bytes);
	return err;
}

static int pool_visit(const struct heap_pool *pool, void *context)
{
	struct python_reader *reader = context;

	if (pool->arena != reader->arena || (!reader->region.account && !reader->skip))
		arena_begin(reader, pool);
	if (reader->skip || reader->err)
		return reader->err;
	memory_region_take(&reader->region, pool->start, MEMORY_PY_FREE_POOLS, 0);
	if (!pool->block_bytes) {
		memory_region_take(&reader->region, pool->end, MEMORY_PY_UNREAD, 1);
		return 0;
	}
	memory_region_take(&reader->region, pool->address, MEMORY_PY_HEADERS, 1);
	blocks_take(reader, pool);
	reader->err = blocks_search(reader, pool);
	return reader->err;
}

/* Takes the arenas of pymalloc; marks the large blocks that live blocks refer to. 0, -errno. */
static int memory_python_read(struct memory_reading *reading)
{
	struct python_reader reader = {.reading = reading};
	int err = heap_read_pools(&reading->runtime, pool_visit, &reader, &reading->report->heap);

	arena_end(&reader);
	if (!err)
		err = reader.err;
	if (!err && reading->large.count)
		err = memory_large_follow(&reading->large, reading->reader);
	for (size_t i = 0; i < reading->large.count; i++)
		reading->report->large_blocks += reading->large.blocks[i].python;
	return err;
}

/* Whether a block is in a sparse arena. */
static bool is_sparse(uint64_t address, void *context)
{
	const struct memory_reading *reading = context;
	uint64_t bytes = reading->runtime.offsets->heap.arena_bytes;
	size_t above = SORTED_ABOVE(reading->sparse, reading->sparse_count, address, address);

	return above && address - reading->sparse[above - 1].address < bytes;
}

/* Reads the types of the objects in sparse arenas, after memory_python_read(). 0, -errno. */
static int memory_pins_read(struct memory_reading *reading)
{
	struct memory_pins *pins = &reading->report->pins;

	if (!reading->sparse_count)
		return 0;
	SORT_BY(reading->sparse, reading->sparse_count, address);
	pins->arenas = reading->sparse_count;
	pins->bytes = pins->arenas * reading->runtime.offsets->heap.arena_bytes;
	return heap_types_read_some(&reading->runtime, is_sparse, reading, &pins->types);
}

/*
 * The kernel does not say which maps are stacks of threads. A sleeping thread's stack pointer is in
 * its "syscall" file. glibc puts struct pthread, the thread's descriptor, at the upper end of the
 * stack: it begins with a pointer to itself, has another one two words later, and somewhere behind
 * them the stack's address and size. That of musl has links to the descriptors before and behind it
 * there. Stacks of threads that run are recognised by a descriptor near the end of a map.
 */

#define DESCRIPTOR_ALIGNMENT 64u
#define MUSL_PREVIOUS        16u
#define MUSL_NEXT            24u
#define DESCRIPTOR_BYTES     4096u       /* in which the stack's address and size are */
#define SEARCH_MAX           (64u << 20) /* above a stack pointer */
#define TAIL_BYTES           16384u      /* at the end of a map */
#define STACK_MIN            16384u      /* PTHREAD_STACK_MIN */
#define GUARD_MAX            (16u << 20) /* below the stack, counted with it */

struct stacks_read {
	struct memory_reading *reading;
	int err;
};

/* Transient errors of reading leave the stack unknown. */
static bool is_fatal(int err)
{
	return err && err != -EFAULT && err != -ENODATA;
}

/* Whether these words at an address begin a descriptor: {itself, …, itself or, of musl, links}. */
static bool is_descriptor(struct stacks_read *stacks, uint64_t at, const uint64_t words[4])
{
	uint64_t next, previous;

	if (words[0] != at)
		return false;
	if (words[2] == at)
		return at % DESCRIPTOR_ALIGNMENT == 0;
	return !reader_u64(stacks->reading->reader, words[2] + MUSL_NEXT, &next) && next == at &&
	       !reader_u64(stacks->reading->reader, words[3] + MUSL_PREVIOUS, &previous) &&
	       previous == at;
}

/* The first descriptor in [start, end); 0: none. */
static uint64_t descriptor_find(struct stacks_read *stacks, uint64_t start, uint64_t end)
{
	uint8_t page[MEMORY_PAGE];

	for (uint64_t at = start / MEMORY_PAGE * MEMORY_PAGE; at < end; at += MEMORY_PAGE) {
		int err = reader_read(stacks->reading->reader, at, page, sizeof(page), 0);

		if (is_fatal(err))
			stacks->err = err;
		for (uint64_t i = 0, words[4]; !err && i + sizeof(words) <= MEMORY_PAGE; i += 8) {
			memcpy(words, page + i, sizeof(words));
			if (is_descriptor(stacks, at + i, words))
				return at + i;
		}
		if (stacks->err)
			break;
	}
	return 0;
}

/* Takes the stack that a descriptor in this map names. Returns whether there is one. */
static int descriptor_take(struct stacks_read *stacks, const struct memory_map *map,
			   uint64_t descriptor)
{
	uint64_t words[DESCRIPTOR_BYTES / 8];
	size_t bytes = 0;
	struct memory_region region;

	/* Behind the stack may be the guard of another one, in the same map. */
	while (bytes < sizeof(words)) {
		size_t page = MEMORY_PAGE - (descriptor + bytes) % MEMORY_PAGE;
		size_t piece = page < sizeof(words) - bytes ? page : sizeof(words) - bytes;

		if (reader_read(stacks->reading->reader, descriptor + bytes,
				(uint8_t *)words + bytes, piece, 0))
			break;
		bytes += piece;
	}
	for (size_t i = 0; i + 1 < bytes / 8; i++) {
		uint64_t start = words[i], size = words[i + 1];

		if (start % MEMORY_PAGE || size % MEMORY_PAGE || size < STACK_MIN ||
		    start + GUARD_MAX < map->start || start >= descriptor ||
		    size > map->end - start || start + size <= descriptor)
			continue;
		if (start < map->start)
			start = map->start; /* the guard is a map of its own */
		size = words[i] + size - start;
		if (memory_region_open(&stacks->reading->account, start, start + size, &region))
			return 1;
		memory_region_take(&region, start + size, MEMORY_STACKS, 1);
		return 1;
	}
	return 0;
}

/* A stack without a descriptor that we know: the rest of its map. */
static void map_take(struct stacks_read *stacks, const struct memory_map *map)
{
	struct memory_region region;

	if (!memory_region_open(&stacks->reading->account, map->start, map->end, &region))
		memory_region_take(&region, map->end, MEMORY_STACKS, 1);
}

static void pointer_look(struct stacks_read *stacks, uint64_t pointer)
{
	const struct memory_map *map = memory_map_at(&stacks->reading->account, pointer);

	if (!map || map->source != MEMORY_ANONYMOUS)
		return;
	uint64_t end = map->end - pointer < SEARCH_MAX ? map->end : pointer + SEARCH_MAX;
	uint64_t descriptor = descriptor_find(stacks, pointer, end);
	if (!descriptor || !descriptor_take(stacks, map, descriptor))
		map_take(stacks, map);
}

/* "NUMBER ARGUMENTS… STACK-POINTER INSTRUCTION", or "running". */
static uint64_t pointer_read(int tasks, const char *tid)
{
	char path[300], text[256], *last;

	snprintf(path, sizeof(path), "%s/syscall", tid);
	int fd = openat(tasks, path, O_RDONLY | O_CLOEXEC);
	if (fd < 0)
		return 0;
	ssize_t got = read(fd, text, sizeof(text) - 1);
	close(fd);
	text[got > 0 ? got : 0] = '\0';
	last = strrchr(text, ' ');
	if (!last)
		return 0;
	*last = '\0';
	last = strrchr(text, ' ');
	return last ? strtoull(last + 1, NULL, 16) : 0;
}

static void sleeping_look(struct stacks_read *stacks)
{
	char path[48];

	snprintf(path, sizeof(path), "/proc/%d/task", (int)stacks->reading->info.pid);
	_cleanup_(closedirp) DIR *tasks = opendir(path);
	for (struct dirent *entry; tasks && !stacks->err && (entry = readdir(tasks));) {
		if (entry->d_name[0] == '.' || atoi(entry->d_name) == stacks->reading->info.pid)
			continue;
		uint64_t pointer = pointer_read(dirfd(tasks), entry->d_name);
		if (pointer)
			pointer_look(stacks, pointer);
	}
}

static void tails_look(struct stacks_read *stacks)
{
	struct memory_account *account = &stacks->reading->account;

	for (size_t i = 0; i < account->map_count && !stacks->err; i++) {
		const struct memory_map *map = &account->maps[i];

		if (map->source != MEMORY_ANONYMOUS || !map->rss || !map->writable)
			continue;
		uint64_t start =
			map->end - map->start > TAIL_BYTES ? map->end - TAIL_BYTES : map->start;
		uint64_t descriptor = descriptor_find(stacks, start, map->end);
		if (descriptor)
			descriptor_take(stacks, map, descriptor);
	}
}

/* Takes the stacks of threads. 0, -errno. */
static int memory_stacks_read(struct memory_reading *reading)
{
	struct stacks_read stacks = {.reading = reading};

	if (reading->info.threads < 2)
		return 0;
	sleeping_look(&stacks);
	if (!stacks.err)
		tails_look(&stacks);
	return stacks.err;
}

static int python_find(struct memory_reading *reading, int swap_in)
{
	struct process_info info;
	int err = python_process_find(reading->info.pid, NULL, swap_in, &info, &reading->runtime);

	reading->has_python = !err;
	if (!err)
		reading->space = space_share(reading->runtime.space);
	return part_end(err, reading->python_reason);
}

static int malloc_find(struct memory_reading *reading)
{
	struct process_maps maps;
	int err = process_maps_read(reading->info.pid, &maps);

	if (err)
		return err;
	err = part_end(glibc_open(&reading->glibc, reading->space, &maps), reading->malloc_reason)
		      ?: allocators_open(&reading->allocators, reading->space, &maps);
	process_maps_free(&maps);
	return err;
}

int memory_open(struct memory_reading **out, pid_t pid, int swap_in)
{
	struct memory_reading *reading = calloc(1, sizeof(*reading));

	if (!reading)
		return -ENOMEM;
	reading->files.pagemap = reading->files.kpageflags = -1;
	error_clear();
	int err = process_info_read(pid, &reading->info)
		  ?: process_info_check(&reading->info)
		  ?: smaps_open(&reading->files, pid)
		  ?: python_find(reading, swap_in);
	if (!err && !reading->space)
		err = space_open(&reading->space, pid);
	if (!err)
		space_swap_in(reading->space, swap_in);
	err = err ?: malloc_find(reading) ?: reader_new(&reading->reader, reading->space);
	if (err) {
		memory_close(reading);
		return err;
	}
	*out = reading;
	return 0;
}

void memory_close(struct memory_reading *reading)
{
	if (!reading)
		return;
	if (reading->has_python)
		python_runtime_close(&reading->runtime);
	glibc_close(reading->glibc);
	allocators_close(&reading->allocators);
	reader_free(reading->reader);
	space_close(reading->space);
	smaps_close(&reading->files);
	memory_account_free(&reading->account);
	memory_large_free(&reading->large);
	free(reading->sparse);
	free(reading);
}

/* The first mapped library that is known to replace malloc. */
static void allocator_find(const struct memory_account *account, char name[MEMORY_ALLOCATOR_NAME])
{
	static const char *const known[] = {"libjemalloc", "libmimalloc", "libtcmalloc", "ld-musl"};

	for (size_t i = 0; i < account->map_count; i++) {
		const char *file = strrchr(account->maps[i].name, '/');

		for (size_t n = 0; file && n < ARRAY_SIZE(known); n++)
			if (!strncmp(file + 1, known[n], strlen(known[n]))) {
				snprintf(name, MEMORY_ALLOCATOR_NAME, "%s", file + 1);
				return;
			}
	}
}

static int parts_read(struct memory_reading *reading)
{
	struct memory_report *report = reading->report;
	struct process_maps maps;
	int malloc_missing = 1;
	int err = process_maps_read(reading->info.pid, &maps);

	if (err)
		return err;
	err = memory_bss_read(reading) ?: memory_stacks_read(reading);
	if (!err && reading->glibc) {
		err = memory_malloc_list(reading, &maps);
		malloc_missing = err != 0;
		err = part_end(err, report->malloc_reason);
	}
	if (!err && reading->has_python)
		err = memory_allocators_list(reading, &maps);
	err = err ?: memory_large_sort(&reading->large);
	if (!err && reading->has_python) {
		report->python_version = reading->runtime.version_hex;
		err = part_end(space_error(reading->space, memory_python_read(reading)
								   ?: memory_pins_read(reading)),
			       report->python_reason);
	}
	report->bytes_swapped = space_missed(reading->space).swapped;
	if (!err && !malloc_missing)
		err = memory_malloc_read(reading);
	err = err ?: memory_allocators_read(reading, &maps);
	process_maps_free(&maps);
	return err;
}

/* What an earlier report was made of. */
static void reading_clear(struct memory_reading *reading)
{
	memory_account_free(&reading->account);
	memory_large_free(&reading->large);
	reader_clear(reading->reader);
	reading->sparse_count = 0;
}

int memory_read_report(struct memory_reading *reading, int freeze, struct memory_report *out)
{
	struct memory_report report = {.info = reading->info};
	uint64_t began = clock_ns(CLOCK_MONOTONIC);
	struct freeze *frozen = NULL;
	int err = freeze ? freeze_begin(&frozen, reading->info.pid) : 0;

	if (err)
		return err;
	reading_clear(reading);
	reading->report = &report;
	memcpy(report.python_reason, reading->python_reason, MEMORY_REASON);
	memcpy(report.malloc_reason, reading->malloc_reason, MEMORY_REASON);
	memcpy(report.allocators_reason, reading->allocators.reason, MEMORY_REASON);
	error_clear();
	err = smaps_read(&reading->files, &reading->account, &report.totals) ?: parts_read(reading);
	report.frozen_ns = freeze_end(frozen);
	if (!err) {
		const struct memory_allocators allocators = {reading->allocators.items,
							     reading->allocators.count,
							     report.unread_allocator};

		if (!reading->allocators.count)
			allocator_find(&reading->account, report.unread_allocator);
		err = memory_tree_build(&report.root, &reading->account, &report.totals,
					report.trimmable, &allocators);
	}
	report.elapsed_ns = clock_ns(CLOCK_MONOTONIC) - began;
	reading->report = NULL;
	if (err) {
		memory_report_free(&report);
		return err;
	}
	*out = report;
	return 0;
}

void memory_report_free(struct memory_report *report)
{
	memory_node_free(&report->root);
	free(report->arenas);
	free(report->allocators);
	heap_types_free(&report->pins.types);
	*report = (struct memory_report){0};
}
