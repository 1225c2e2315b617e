/* SPDX-License-Identifier: Apache-2.0 */
/* The jitdump that is written, as our own reader reads it. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "object/perfmap/jitdump_out.h"
#include "util/array.h"
#include "util/buffer.h"

#define ABSENT 0x1000u /* nothing is mapped there */

static const unsigned char code_bytes[] = {0x48, 0x83, 0xec, 0x08, 0xff, 0xd1, 0xc3};

struct world {
	char folder[32], path[64];
	struct jitdump_out *out;
	struct space *space; /* our own memory */
	struct buffer file;
};

static int world_make(void **state)
{
	struct world *world = calloc(1, sizeof(*world));

	strcpy(world->folder, "/tmp/jitdump-out-XXXXXX");
	assert_non_null(mkdtemp(world->folder));
	snprintf(world->path, sizeof(world->path), "%s/jit-%d.dump", world->folder, getpid());
	assert_int_equal(jitdump_out_new(&world->out, world->folder, OUTFILE_OWN), 0);
	assert_string_equal(world->out->path, world->path);
	assert_int_equal(space_open(&world->space, getpid()), 0);
	*state = world;
	return 0;
}

static int world_free(void **state)
{
	struct world *world = *state;

	jitdump_out_free(world->out);
	space_close(world->space);
	buffer_free(&world->file);
	unlink(world->path);
	assert_int_equal(rmdir(world->folder), 0);
	free(world);
	return 0;
}

static void add(struct world *world, uint64_t address, uint64_t bytes, const char *name)
{
	jitdump_out_add(world->out, 77, world->space,
			&(struct jitdump_code){.address = address,
					       .bytes = bytes,
					       .time_ns = 5,
					       .name = name,
					       .name_bytes = strlen(name)});
}

static void file_read(struct world *world)
{
	FILE *file = fopen(world->path, "rb");
	unsigned char piece[256];
	size_t bytes;

	assert_non_null(file);
	world->file.size = 0;
	while ((bytes = fread(piece, 1, sizeof(piece), file)))
		assert_int_equal(buffer_append(&world->file, piece, bytes), 0);
	fclose(file);
}

struct expected {
	const char *name;
	uint64_t address, bytes;
};

static int code_take(void *context, const struct jitdump_code *code)
{
	const struct expected **next = context;

	assert_int_equal(code->name_bytes, strlen((*next)->name));
	assert_memory_equal(code->name, (*next)->name, code->name_bytes);
	assert_int_equal(code->address, (*next)->address);
	assert_int_equal(code->bytes, (*next)->bytes);
	assert_int_equal(code->time_ns, 4); /* before a record of the process's own */
	(*next)++;
	return 0;
}

static void test_our_reader(void **state)
{
	struct world *world = *state;
	const uint64_t address = (uintptr_t)code_bytes;
	const struct expected expected[] = {{"py::f", address, sizeof(code_bytes)},
					    {"\\x1b[31mred", address + 1, 2},
					    {"gone", ABSENT, 16}};

	add(world, address, sizeof(code_bytes), "py::f");
	add(world, address + 1, 2, "\x1b[31mred");
	add(world, ABSENT, 16, "gone");
	file_read(world);
	for (size_t piece = 1; piece < world->file.size; piece += 13) {
		struct jitdump *jitdump = calloc(1, sizeof(*jitdump));
		const struct expected *next = expected;

		for (size_t at = 0; at < world->file.size; at += piece) {
			size_t rest = world->file.size - at;

			assert_int_equal(jitdump_read(jitdump, world->file.data + at,
						      rest < piece ? rest : piece, code_take,
						      &next),
					 0);
		}
		assert_ptr_equal(next, expected + ARRAY_SIZE(expected));
		assert_int_equal(jitdump->pid, getpid());
		assert_int_equal(jitdump->refused + jitdump->torn + jitdump->cut, 0);
		free(jitdump);
	}
	assert_non_null(memmem(world->file.data, world->file.size, code_bytes, sizeof(code_bytes)));
	assert_int_equal(world->out->unread, 1);
}

static void test_limits(void **state)
{
	struct world *world = *state;
	struct buffer none = {0};

	add(world, ABSENT, JITDUMP_CODE_MAX + 1, "too large");
	add(world, ABSENT, UINT64_MAX, "larger");
	assert_int_equal(world->out->records, 0);
	add(world, ABSENT, JITDUMP_CODE_MAX, "large");
	assert_int_equal(world->out->records, 1);
	world->out->bytes = JITDUMP_FILE_MAX;
	add(world, ABSENT, 1, "one more");
	assert_int_equal(world->out->records, 1);
	assert_int_equal(world->out->left_out, 3);
	assert_int_equal(
		jitdump_load_put(
			&none, 1, 0,
			&(struct jitdump_code){.name = "f", .name_bytes = 1, .bytes = UINT32_MAX}),
		-E2BIG);
	buffer_free(&none);
}

static void test_mapped_and_removed(void **state)
{
	struct world *world = *state;
	char line[256], last[96];
	FILE *maps = fopen("/proc/self/maps", "r");
	int found = 0;

	snprintf(last, sizeof(last), " %s\n", world->path);
	while (fgets(line, sizeof(line), maps))
		found += strstr(line, last) && strstr(line, " r-xp ");
	fclose(maps);
	assert_int_equal(found, 1);
	/* It has no function. */
	assert_int_equal(access(world->path, F_OK), 0);
	jitdump_out_free(world->out);
	world->out = NULL;
	assert_int_equal(access(world->path, F_OK), -1);
	/* One of an earlier process with our id is replaced. */
	assert_int_equal(jitdump_out_new(&world->out, world->folder, OUTFILE_OWN), 0);
	add(world, ABSENT, 1, "earlier");
	jitdump_out_free(world->out);
	assert_int_equal(jitdump_out_new(&world->out, world->folder, OUTFILE_OWN), 0);
	file_read(world);
	assert_int_equal(world->file.size, world->out->bytes);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(test_our_reader, world_make, world_free),
		cmocka_unit_test_setup_teardown(test_limits, world_make, world_free),
		cmocka_unit_test_setup_teardown(test_mapped_and_removed, world_make, world_free),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
