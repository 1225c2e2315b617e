/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Real heaps, compared with sys.getallocatedblocks() to the block; then forged ones, built in this
 * process: everything that a hostile or changing heap may hold.
 */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/error.h"
#include "python/heap.h"
#include "pythons.h"

#define SCRIPT "tests/unit/data/python/heap.py"

struct seen {
	uint64_t known, blocks, bytes;
	uint32_t known_bytes;
	uint64_t known_size; /* ob_size of the object there */
	uint64_t stop_after;
};

static int see(uint64_t address, uint32_t bytes, const uint8_t *content, void *context)
{
	struct seen *seen = context;

	seen->blocks++;
	seen->bytes += bytes;
	if (address == seen->known) {
		seen->known_bytes = bytes;
		memcpy(&seen->known_size, content + 16, sizeof(seen->known_size));
	}
	return seen->blocks == seen->stop_after;
}

/*
 * Reads the heap of such an interpreter. needs_symbols: stripped, it may only say that it cannot.
 */
static void check_heap_of(char *path, char *argument, char *environment, int needs_symbols)
{
	struct heap_reading reading;
	struct python_runtime runtime;
	struct python_child child = {0};
	struct seen seen = {0};
	int64_t figures[3];
	int err;

	if (access(SCRIPT, R_OK)) {
		printf("%s is not to be found from here\n", SCRIPT);
		skip();
	}
	assert_int_equal(
		python_start(&child, (char *[]){path, SCRIPT, argument, NULL}, environment), 0);
	assert_int_equal(fread(figures, sizeof(figures), 1, child.out), 1);
	python_wait_paused(&child);
	assert_int_equal(python_runtime_find(child.pid, NULL, &runtime), 0);
	seen.known = (uint64_t)figures[1];
	err = heap_read(&runtime, see, &seen, &reading);
	if (err == -ENOTSUP && needs_symbols && !elf_file_has_symtab(runtime.file)) {
		printf("%s\n", error_reason(err));
	} else {
		assert_int_equal(err, 0);
		assert_int_equal(reading.pools_unreadable, 0);
		assert_int_equal(reading.blocks + reading.raw_blocks, figures[0]);
		assert_true(reading.blocks > 20000 && reading.raw_blocks > 10000);
		assert_true(reading.arenas > 0 && reading.pools > reading.arenas);
		assert_int_equal(seen.blocks, reading.blocks);
		assert_int_equal(seen.bytes, reading.bytes);
		assert_int_equal(seen.known_bytes, (figures[2] + 15) / 16 * 16);
		assert_int_equal(seen.known_size, 100);

		seen = (struct seen){.stop_after = 1000};
		assert_int_equal(heap_read(&runtime, see, &seen, &reading), 0);
		assert_int_equal(seen.blocks, 1000);
	}
	python_runtime_close(&runtime);
	python_stop(&child);
}

static void check_heap(unsigned int minor, char *argument)
{
	char path[PATH_MAX];

	if (!python_path(minor, path))
		skip();
	check_heap_of(path, argument, NULL, minor == 8);
}

static void check_version(unsigned int minor)
{
	check_heap(minor, NULL);
}

VERSION_TESTS(check_version)

/* A heap of its own for each interpreter. */
static void test_subinterpreter_312(void **state)
{
	(void)state;
	check_heap(12, "subinterpreter");
}

static void test_subinterpreter_313(void **state)
{
	(void)state;
	check_heap(13, "subinterpreter");
}

/* Debian's is stripped: only the code of _Py_GetAllocatedBlocks() tells. */
static void test_distribution_311(void **state)
{
	char *path = "/usr/bin/python3.11";

	(void)state;
	if (access(path, X_OK)) {
		printf("no %s on this machine\n", path);
		skip();
	}
	check_heap_of(path, NULL, NULL, 0);
}

static void start_idle(char *path, char *environment, struct python_child *child,
		       struct python_runtime *runtime)
{
	char *program = "import os, signal\nos.write(1, b'\\n')\nsignal.pause()";

	assert_int_equal(python_start(child, (char *[]){path, "-c", program, NULL}, environment),
			 0);
	assert_int_equal(getc(child->out), '\n');
	assert_int_equal(python_runtime_find(child->pid, NULL, runtime), 0);
}

/*
 * A copy of the interpreter's library without symbols, made in directory. 1; 0: there is no such
 * thing.
 */
static int strip_library(char *path, const char *directory, char *copy, size_t size)
{
	struct python_child child = {0};
	struct python_runtime runtime;
	char command[512];
	int made;

	start_idle(path, NULL, &child, &runtime);
	snprintf(copy, size, "%s/%s", directory, elf_file_soname(runtime.file));
	snprintf(command, sizeof(command), "strip -o '%s' /proc/%d/fd/%d", copy, (int)getpid(),
		 elf_file_fd(runtime.file));
	made = !runtime.static_exe && system(command) == 0;
	python_runtime_close(&runtime);
	python_stop(&child);
	return made;
}

/* The library without its symbols, which LD_LIBRARY_PATH puts before the other. */
static void check_stripped(unsigned int minor, int supported)
{
	char path[PATH_MAX], directory[] = "/tmp/test_heap.XXXXXX", copy[128], environment[128];
	struct python_child child = {0};
	struct python_runtime runtime;
	struct heap_reading reading;
	int made;

	if (!python_path(minor, path))
		skip();
	assert_non_null(mkdtemp(directory));
	snprintf(environment, sizeof(environment), "LD_LIBRARY_PATH=%s", directory);
	made = strip_library(path, directory, copy, sizeof(copy));
	if (made) {
		start_idle(path, environment, &child, &runtime);
		assert_false(elf_file_has_symtab(runtime.file));
		assert_int_equal(heap_read(&runtime, NULL, NULL, &reading),
				 supported ? 0 : -ENOTSUP);
		if (!supported)
			assert_non_null(
				strstr(error_reason(-ENOTSUP), "install its debug symbols"));
		python_runtime_close(&runtime);
		python_stop(&child);
	}
	if (made && supported)
		check_heap_of(path, NULL, environment, 0);
	unlink(copy);
	rmdir(directory);
	if (!made) {
		printf("no library of python3.%u, or no strip, on this machine\n", minor);
		skip();
	}
}

static void test_stripped_38(void **state)
{
	(void)state;
	check_stripped(8, 0);
}

static void test_stripped_310(void **state)
{
	(void)state;
	check_stripped(10, 1);
}

/* While the heap changes under the reader it still gets to an end, with nearly every pool. */
static void test_changing(void **state)
{
	char *program = "import os\nos.write(1, b'\\n')\nkept = [None] * 50000\nn = 0\n"
			"while True:\n kept[n % 50000] = [n, str(n), bytes(n % 500)]; n += 7919";
	struct heap_reading reading;
	struct python_runtime runtime;
	struct python_child child = {0};
	char path[PATH_MAX];

	(void)state;
	if (!python_path(13, path))
		skip();
	assert_int_equal(python_start(&child, (char *[]){path, "-c", program, NULL}, NULL), 0);
	assert_int_equal(getc(child.out), '\n');
	assert_int_equal(python_runtime_find(child.pid, NULL, &runtime), 0);
	for (int i = 0; i < 50; i++) {
		assert_int_equal(heap_read(&runtime, NULL, NULL, &reading), 0);
		assert_true(reading.blocks > 0);
		assert_true(reading.pools_unreadable < reading.pools);
	}
	python_runtime_close(&runtime);
	python_stop(&child);
}

static void test_not_pymalloc(void **state)
{
	struct heap_reading reading;
	struct python_runtime runtime;
	struct python_child child = {0};
	char path[PATH_MAX];

	(void)state;
	if (!python_path(12, path))
		skip();
	start_idle(path, "PYTHONMALLOC=malloc", &child, &runtime);
	assert_int_equal(heap_read(&runtime, NULL, NULL, &reading), -ENODATA);
	assert_non_null(strstr(error_reason(-ENODATA), "PYTHONMALLOC"));
	python_runtime_close(&runtime);
	python_stop(&child);
}

/* A heap laid out as 3.13's in this process: one interpreter, one arena, pool 0 in use. */
struct forgery {
	struct python_runtime runtime;
	uint8_t *cpython; /* _PyRuntime */
	uint8_t *interp, *obmalloc, *objects, *arena, *pool;
	const struct heap_offsets *heap;
};

#define BLOCK  64u
#define CARVED 10u

static void put64(uint8_t *at, uint64_t value)
{
	memcpy(at, &value, sizeof(value));
}

static void put32(uint8_t *at, uint32_t value)
{
	memcpy(at, &value, sizeof(value));
}

static uint64_t address_of(const void *at)
{
	return (uint64_t)(uintptr_t)at;
}

static uint8_t *block_at(const struct forgery *forgery, unsigned int number)
{
	return forgery->pool + forgery->heap->pool_header_size + (size_t)number * BLOCK;
}

static void free_list(const struct forgery *forgery, const unsigned int *numbers,
		      unsigned int count)
{
	uint8_t *link = forgery->pool + forgery->heap->pool_freeblock;

	for (unsigned int i = 0; i < count; i++) {
		put64(link, address_of(block_at(forgery, numbers[i])));
		link = block_at(forgery, numbers[i]);
	}
	put64(link, 0);
	put32(forgery->pool + forgery->heap->pool_count, CARVED - count);
}

static int forge(void **state)
{
	struct forgery *forgery = calloc(1, sizeof(*forgery));
	const struct python_offsets *offsets = offsets_for(0x030d, 0);
	const struct heap_offsets *heap = &offsets->heap;

	forgery->heap = heap;
	forgery->runtime.pid = getpid();
	forgery->runtime.offsets = offsets;
	forgery->cpython = calloc(1, 4096);
	forgery->interp = calloc(1, 65536);
	forgery->obmalloc = calloc(1, 8192);
	forgery->objects = calloc(4, heap->arena_object_size);
	forgery->arena = aligned_alloc(heap->pool_bytes, heap->arena_bytes);
	memset(forgery->arena, 0, heap->arena_bytes);
	forgery->pool = forgery->arena;
	forgery->runtime.target.runtime = address_of(forgery->cpython);
	put64(forgery->cpython + offsets->abi.runtime_interpreters_head,
	      address_of(forgery->interp));
	put64(forgery->interp + heap->interp_obmalloc, address_of(forgery->obmalloc));
	put64(forgery->interp + offsets->abi.interp_threads_head, address_of(forgery->interp));
	/* pools.used[]: no class has a pool that is not full. */
	for (uint32_t at = 0; at < heap->mgmt_arenas; at += 8)
		put64(forgery->obmalloc + at, address_of(forgery->obmalloc) + at / 16 * 16 - 16);
	put64(forgery->obmalloc + heap->mgmt_arenas, address_of(forgery->objects));
	put32(forgery->obmalloc + heap->mgmt_maxarenas, 4);
	put64(forgery->obmalloc + heap->mgmt_raw_blocks, 5);
	put64(forgery->objects + heap->arena_address, address_of(forgery->arena));
	put64(forgery->objects + heap->arena_pool_address,
	      address_of(forgery->arena) + 2 * heap->pool_bytes);
	put32(forgery->pool + heap->pool_szidx, BLOCK / 16 - 1);
	put32(forgery->pool + heap->pool_nextoffset, heap->pool_header_size + CARVED * BLOCK);
	put32(forgery->pool + heap->pool_maxnextoffset, heap->pool_bytes - BLOCK);
	free_list(forgery, (unsigned int[]){3, 9, 0}, 3);
	*state = forgery;
	return 0;
}

static int unforge(void **state)
{
	struct forgery *forgery = *state;

	free(forgery->cpython);
	free(forgery->interp);
	free(forgery->obmalloc);
	free(forgery->objects);
	free(forgery->arena);
	free(forgery);
	return 0;
}

/* Reads the forgery and compares; unreadable pools hold no block. */
static void expect(const struct forgery *forgery, uint64_t blocks, uint64_t unreadable)
{
	struct heap_reading reading;
	struct seen seen = {0};

	assert_int_equal(heap_read(&forgery->runtime, see, &seen, &reading), 0);
	assert_int_equal(reading.blocks, blocks);
	assert_int_equal(reading.bytes, blocks * BLOCK);
	assert_int_equal(seen.blocks, blocks);
	assert_int_equal(reading.pools_unreadable, unreadable);
	assert_int_equal(reading.raw_blocks, 5);
}

static void test_forged(void **state)
{
	struct forgery *forgery = *state;
	struct heap_reading reading;
	struct seen seen = {.known = address_of(block_at(forgery, 4))};

	expect(forgery, 7, 0);
	assert_int_equal(heap_read(&forgery->runtime, see, &seen, &reading), 0);
	assert_int_equal(seen.known_bytes, BLOCK);
	assert_int_equal(reading.arenas, 1);
	assert_int_equal(reading.pools, 1);
	seen = (struct seen){.known = address_of(block_at(forgery, 9))}; /* it is free */
	assert_int_equal(heap_read(&forgery->runtime, see, &seen, &reading), 0);
	assert_int_equal(seen.known_bytes, 0);
}

static void test_forged_lists(void **state)
{
	struct forgery *forgery = *state;

	put64(block_at(forgery, 0), address_of(block_at(forgery, 3))); /* a cycle */
	expect(forgery, 0, 1);
	put64(block_at(forgery, 0), address_of(block_at(forgery, 0)));
	expect(forgery, 0, 1);
	put64(block_at(forgery, 0), address_of(block_at(forgery, 2)) + 8); /* between two blocks */
	expect(forgery, 0, 1);
	put64(block_at(forgery, 0), address_of(block_at(forgery, CARVED))); /* never handed out */
	expect(forgery, 0, 1);
	put64(block_at(forgery, 0), address_of(forgery->pool)); /* the header */
	expect(forgery, 0, 1);
	put64(block_at(forgery, 0), UINT64_MAX);
	expect(forgery, 0, 1);
	put64(block_at(forgery, 0), 0);
	expect(forgery, 7, 0);
}

static void test_forged_headers(void **state)
{
	struct forgery *forgery = *state;
	uint8_t *pool = forgery->pool;
	const struct heap_offsets *heap = forgery->heap;

	put32(pool + heap->pool_count, 8); /* one more than there are */
	expect(forgery, 0, 1);
	put32(pool + heap->pool_count, UINT32_MAX);
	expect(forgery, 0, 1);
	put32(pool + heap->pool_count, 7);
	put32(pool + heap->pool_szidx, 32); /* beyond 512 bytes */
	expect(forgery, 0, 1);
	put32(pool + heap->pool_szidx, UINT32_MAX); /* size 0 */
	expect(forgery, 0, 1);
	put32(pool + heap->pool_szidx, BLOCK / 16 - 1);
	put32(pool + heap->pool_nextoffset, heap->pool_bytes + 16);
	expect(forgery, 0, 1);
	put32(pool + heap->pool_nextoffset, 0);
	expect(forgery, 0, 1);
	put32(pool + heap->pool_nextoffset, heap->pool_header_size + CARVED * BLOCK);
	put32(pool + heap->pool_maxnextoffset, 0);
	expect(forgery, 0, 1);
}

static uint64_t arenas_lost(const struct forgery *forgery)
{
	struct heap_reading reading;

	assert_int_equal(heap_read(&forgery->runtime, NULL, NULL, &reading), 0);
	return reading.arenas_lost;
}

static void test_forged_arenas(void **state)
{
	struct forgery *forgery = *state;
	const struct heap_offsets *heap = forgery->heap;
	uint8_t *second = forgery->objects + heap->arena_object_size;
	struct heap_reading reading;

	/*
	 * An arena that is not mapped beside a good one: its pools are counted, nothing else
	 * happens.
	 */
	put64(second + heap->arena_address, 1 << 20);
	put64(second + heap->arena_pool_address, (1 << 20) + 3 * heap->pool_bytes);
	expect(forgery, 7, 3);
	assert_int_equal(arenas_lost(forgery), 0);
	put64(second + heap->arena_pool_address, UINT64_MAX); /* absurd: all of its pools */
	expect(forgery, 7, heap->arena_bytes / heap->pool_bytes);
	put64(second + heap->arena_address, UINT64_MAX - 7);
	expect(forgery, 7, heap->arena_bytes / heap->pool_bytes);
	assert_int_equal(arenas_lost(forgery), 1); /* what lies there is not to be taken for dead */
	put64(forgery->objects + heap->arena_address, 12345); /* nothing but absurd ones */
	assert_int_equal(heap_read(&forgery->runtime, NULL, NULL, &reading), -ENOTSUP);
	put32(forgery->obmalloc + heap->mgmt_maxarenas, UINT32_MAX);
	assert_int_equal(heap_read(&forgery->runtime, NULL, NULL, &reading), -ENOTSUP);
	put32(forgery->obmalloc + heap->mgmt_maxarenas, 4);
	put64(forgery->obmalloc + heap->mgmt_arenas, 4096); /* not mapped */
	assert_int_equal(heap_read(&forgery->runtime, NULL, NULL, &reading), -EFAULT);
	put64(forgery->obmalloc + heap->mgmt_arenas, 0);
	assert_int_equal(heap_read(&forgery->runtime, NULL, NULL, &reading), -ENOTSUP);
}

static void test_forged_interpreters(void **state)
{
	struct forgery *forgery = *state;
	const struct python_offsets *offsets = forgery->runtime.offsets;
	struct heap_reading reading;

	uint8_t *second = calloc(1, 65536);

	/* Two interpreters that share one heap, which counts once. */
	memcpy(second, forgery->interp, 65536);
	put64(forgery->interp + offsets->abi.interp_next, address_of(second));
	expect(forgery, 7, 0);
	/* A list without an end. */
	put64(second + offsets->abi.interp_next, address_of(second));
	assert_int_equal(heap_read(&forgery->runtime, NULL, NULL, &reading), -ENOTSUP);
	free(second);
	put64(forgery->cpython + offsets->abi.runtime_interpreters_head, 4096);
	assert_int_equal(heap_read(&forgery->runtime, NULL, NULL, &reading), -EFAULT);
}

#define FORGED(test) cmocka_unit_test_setup_teardown(test, forge, unforge)

int main(void)
{
	const struct CMUnitTest tests[] = {
		FORGED(test_forged),
		FORGED(test_forged_lists),
		FORGED(test_forged_headers),
		FORGED(test_forged_arenas),
		FORGED(test_forged_interpreters),
		cmocka_unit_test(test_38),
		cmocka_unit_test(test_39),
		cmocka_unit_test(test_310),
		cmocka_unit_test(test_311),
		cmocka_unit_test(test_312),
		cmocka_unit_test(test_313),
		cmocka_unit_test(test_314),
		cmocka_unit_test(test_315),
		cmocka_unit_test(test_distribution_311),
		cmocka_unit_test(test_stripped_38),
		cmocka_unit_test(test_stripped_310),
		cmocka_unit_test(test_subinterpreter_312),
		cmocka_unit_test(test_subinterpreter_313),
		cmocka_unit_test(test_changing),
		cmocka_unit_test(test_not_pymalloc),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
