/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Records in, maps out: the documented behaviour of PyUnstable_*, fork, exec, GDB's images and
 * jitdumps.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <elf.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "abi/events.h"
#include "abi/target.h"
#include "object/perfmap/jit_elf.h"
#include "object/perfmap/process.h"

#define PARENT 100u
#define CHILD  101u

struct image {
	Elf64_Ehdr header;
	Elf64_Shdr sections[5]; /* none, text, symbols, names, section names */
	Elf64_Sym symbols[4];
	char names[32];
};

/*
 * A relocatable image, as LLVM's JITs register it: sections have their addresses, and symbol values
 * are relative to their section.
 */
static struct image image_make(void)
{
	struct image image = {
		.header = {.e_ident = {ELFMAG0, ELFMAG1, ELFMAG2, ELFMAG3, ELFCLASS64, ELFDATA2LSB,
				       EV_CURRENT},
			   .e_type = ET_REL,
			   .e_machine = EM_X86_64,
			   .e_version = EV_CURRENT,
			   .e_shoff = offsetof(struct image, sections),
			   .e_ehsize = sizeof(Elf64_Ehdr),
			   .e_shentsize = sizeof(Elf64_Shdr),
			   .e_shnum = 5,
			   .e_shstrndx = 4},
		.names = "\0first\0second\0data",
	};

	image.sections[1] =
		(Elf64_Shdr){.sh_type = SHT_PROGBITS, .sh_addr = 0x5000, .sh_size = 0x100};
	image.sections[2] = (Elf64_Shdr){.sh_type = SHT_SYMTAB,
					 .sh_offset = offsetof(struct image, symbols),
					 .sh_size = sizeof(image.symbols),
					 .sh_link = 3,
					 .sh_entsize = sizeof(Elf64_Sym)};
	image.sections[3] = image.sections[4] =
		(Elf64_Shdr){.sh_type = SHT_STRTAB,
			     .sh_offset = offsetof(struct image, names),
			     .sh_size = sizeof(image.names)};
	image.symbols[1] = (Elf64_Sym){
		.st_name = 1, .st_info = STT_FUNC, .st_shndx = 1, .st_value = 0x10, .st_size = 16};
	image.symbols[2] = (Elf64_Sym){
		.st_name = 7, .st_info = STT_FUNC, .st_shndx = 1, .st_value = 0x20, .st_size = 32};
	image.symbols[3] = (Elf64_Sym){.st_name = 14,
				       .st_info = STT_OBJECT,
				       .st_shndx = 1,
				       .st_value = 0x40,
				       .st_size = 8};
	return image;
}

struct world {
	struct perfmaps *maps;
	struct perfmap_process *parent;
	struct image image;
	int copies;
};

static int world_image(void *context, struct perfmap_process *process, uint64_t address,
		       uint64_t bytes, struct buffer *out)
{
	struct world *world = context;
	(void)process;

	return address == 0x1000 ? buffer_append(out, &world->image, bytes) : -EFAULT;
}

static int world_name(void *context, struct perfmap_process *process, uint64_t address,
		      struct buffer *name)
{
	(void)context;
	(void)process;
	return address == 0x2000 ? buffer_append(name, "late", 4) : -EFAULT;
}

static int world_copy(void *context, struct perfmap_process *process, const char *name,
		      size_t bytes)
{
	struct world *world = context;
	static const char expected[] = "/tmp/perf-100.map";

	assert_int_equal(bytes, strlen(expected));
	assert_memory_equal(name, expected, bytes);
	world->copies++;
	return perfmap_table_copy(process->table, world->parent->table);
}

static void world_make(struct world *world)
{
	struct perfmaps_hooks hooks = {.name_read = world_name,
				       .image_read = world_image,
				       .file_copy = world_copy,
				       .context = world};

	memset(world, 0, sizeof(*world));
	world->image = image_make();
	assert_int_equal(perfmaps_new(&world->maps, &hooks), 0);
	assert_int_equal(perfmaps_add(world->maps, PARENT, &world->parent), 0);
}

static void text_feed(struct world *world, uint32_t type, uint32_t tgid, uint64_t address,
		      uint64_t bytes, const char *name, uint32_t flags)
{
	struct {
		struct event_map_text text;
		char name[64];
	} record = {.text = {.header = {.type = type, .tgid = tgid, .time_ns = 5},
			     .address = address,
			     .bytes = bytes,
			     .name_address = 0x2000,
			     .name_bytes = strlen(name),
			     .flags = flags}};

	record.text.header.size = sizeof(record.text) + strlen(name);
	strcpy((char *)record.text.name, name);
	assert_int_equal(perfmaps_feed(world->maps, &record, sizeof(record)), 0);
}

static void call_feed(struct world *world, uint32_t tgid, uint32_t function, int value)
{
	struct event_map_call record = {
		.header = {.type = EVENT_MAP_CALL, .size = sizeof(record), .tgid = tgid},
		.function = function,
		.value = value};

	assert_int_equal(perfmaps_feed(world->maps, &record, sizeof(record)), 0);
}

static void process_feed(struct world *world, uint32_t type, uint32_t tgid, uint32_t other)
{
	struct event_process record = {
		.header = {.type = type, .size = sizeof(record), .tgid = tgid}, .other = other};

	assert_int_equal(perfmaps_feed(world->maps, &record, sizeof(record)), 0);
}

static void jit_feed(struct world *world, uint32_t tgid, uint32_t action, uint64_t image,
		     uint64_t bytes)
{
	struct event_map_jit record = {
		.header = {.type = EVENT_MAP_JIT, .size = sizeof(record), .tgid = tgid},
		.action = action,
		.entry = 0x9000,
		.image = image,
		.image_bytes = bytes};

	assert_int_equal(perfmaps_feed(world->maps, &record, sizeof(record)), 0);
}

static const char *name_at(const struct perfmap_process *process, uint64_t address)
{
	const struct perfmap_entry *entry = perfmap_table_find(process->table, address);

	return entry ? perfmap_table_name(process->table, entry) : NULL;
}

static void test_state(void **state)
{
	struct world world;
	(void)state;

	world_make(&world);
	assert_int_equal(world.parent->file, PERFMAP_FILE_UNKNOWN);
	call_feed(&world, PARENT, ABI_OP_MAP_INIT, -1);
	assert_int_equal(world.parent->file, PERFMAP_FILE_CLOSED);
	call_feed(&world, PARENT, ABI_OP_MAP_INIT, -2);
	assert_int_equal(world.parent->init_failures, 2);
	assert_int_equal(world.parent->init_result, -2);
	call_feed(&world, PARENT, ABI_OP_MAP_INIT, 0);
	assert_int_equal(world.parent->file, PERFMAP_FILE_OPEN);
	text_feed(&world, EVENT_MAP_WRITE, PARENT, 0x100, 16, "py::f:/a.py", EVENT_MAP_MAPPED);
	text_feed(&world, EVENT_MAP_WRITE, PARENT, 0x200, 0, "empty", 0);
	text_feed(&world, EVENT_MAP_WRITE, PARENT, 0x300, 1, "", EVENT_MAP_MISSED);
	text_feed(&world, EVENT_MAP_WRITE, 999, 0x400, 1, "somebody else's", 0);
	assert_int_equal(world.parent->writes, 3);
	assert_int_equal(world.parent->refused, 1);
	assert_int_equal(perfmap_table_find(world.parent->table, 0x100)->time_ns, 5);
	assert_true(perfmap_table_find(world.parent->table, 0x100)->mapped);
	assert_string_equal(name_at(world.parent, 0x300), "late");
	call_feed(&world, PARENT, ABI_OP_MAP_FINI, 0);
	assert_int_equal(world.parent->file, PERFMAP_FILE_CLOSED);
	/* a closed map keeps its names */
	assert_string_equal(name_at(world.parent, 0x10f), "py::f:/a.py");
	process_feed(&world, EVENT_EXIT, PARENT, 0);
	text_feed(&world, EVENT_MAP_WRITE, PARENT, 0x100, 16, "too late", 0);
	assert_string_equal(name_at(world.parent, 0x100), "py::f:/a.py");
	perfmaps_free(world.maps);
}

static void test_fork(void **state)
{
	struct perfmap_process *child;
	struct world world;
	(void)state;

	for (int persist = 0; persist < 2; persist++) {
		world_make(&world);
		text_feed(&world, EVENT_MAP_WRITE, PARENT, 0x100, 16, "parent's", 0);
		jit_feed(&world, PARENT, 1, 0x1000, sizeof(world.image));
		call_feed(&world, PARENT, ABI_OP_MAP_PERSIST, persist);
		process_feed(&world, EVENT_FORK, PARENT, CHILD);
		child = perfmaps_find(world.maps, CHILD);
		assert_non_null(child);
		/* They are in memory, which every child inherits. */
		assert_string_equal(name_at(child, 0x100), "parent's");
		assert_string_equal(name_at(child, 0x5010), "first");
		text_feed(&world, EVENT_MAP_WRITE, CHILD, 0x100, 16, "child's", 0);
		assert_string_equal(name_at(world.parent, 0x100), "parent's");
		jit_feed(&world, CHILD, 2, 0x1000, sizeof(world.image));
		assert_null(name_at(child, 0x5010));
		assert_string_equal(name_at(world.parent, 0x5010), "first");
		process_feed(&world, EVENT_EXEC, CHILD, 0);
		assert_int_equal(perfmap_table_count(child->table), 0);
		perfmaps_free(world.maps);
	}
}

/* A child that copies its parent's map file. */
static void test_copy(void **state)
{
	struct world world;
	(void)state;

	world_make(&world);
	text_feed(&world, EVENT_MAP_WRITE, PARENT, 0x100, 16, "parent's", 0);
	process_feed(&world, EVENT_FORK, PARENT, CHILD);
	perfmap_table_clear(perfmaps_find(world.maps, CHILD)->table);
	text_feed(&world, EVENT_MAP_COPY, CHILD, 0, 0, "/tmp/perf-100.map", 0);
	assert_int_equal(world.copies, 1);
	assert_string_equal(name_at(perfmaps_find(world.maps, CHILD), 0x100), "parent's");
	perfmaps_free(world.maps);
}

static void test_images(void **state)
{
	struct world world;
	(void)state;

	world_make(&world);
	jit_feed(&world, PARENT, 1, 0x1000, sizeof(world.image));
	assert_string_equal(name_at(world.parent, 0x5010), "first");
	assert_string_equal(name_at(world.parent, 0x503f), "second");
	assert_null(name_at(world.parent, 0x5040)); /* no function there */
	jit_feed(&world, PARENT, 2, 0x1000, sizeof(world.image));
	assert_int_equal(perfmap_table_count(world.parent->table), 0);
	assert_int_equal(world.parent->image_count, 0);
	jit_feed(&world, PARENT, 1, 0x1001, 64); /* no image there */
	jit_feed(&world, PARENT, 1, 0x1000, 1ull << 40);
	jit_feed(&world, PARENT, 1, 0x1000, 10);
	assert_int_equal(world.parent->images_unreadable, 3);
	perfmaps_free(world.maps);
}

static int entry_refuse(void *context, uint64_t start, uint64_t size, const char *name,
			size_t name_bytes)
{
	(void)context;
	(void)start;
	(void)size;
	(void)name;
	(void)name_bytes;
	fail();
	return 0;
}

static void test_lying_images(void **state)
{
	struct image image = image_make();
	(void)state;

	image.sections[2].sh_offset = 1ull << 60;
	assert_int_not_equal(jit_elf_read(&image, sizeof(image), entry_refuse, NULL), 0);
	image = image_make();
	image.sections[3].sh_type = SHT_PROGBITS;
	assert_int_not_equal(jit_elf_read(&image, sizeof(image), entry_refuse, NULL), 0);
	image = image_make();
	image.header.e_shnum = 60000;
	assert_int_not_equal(jit_elf_read(&image, sizeof(image), entry_refuse, NULL), 0);
	image = image_make();
	for (int i = 1; i < 4; i++) {
		image.symbols[i].st_name = 1u << 30;
		image.symbols[i].st_shndx = 40000;
	}
	assert_int_equal(jit_elf_read(&image, sizeof(image), entry_refuse, NULL), 0);
	assert_int_not_equal(jit_elf_read(&image, 10, entry_refuse, NULL), 0);
}

static void test_malformed(void **state)
{
	struct event_map_text text = {
		.header = {.type = EVENT_MAP_WRITE, .size = sizeof(text), .tgid = PARENT},
		.name_bytes = 1};
	struct event_header header = {.type = 77, .size = sizeof(header), .tgid = PARENT};
	struct world world;
	(void)state;

	world_make(&world);
	assert_int_equal(perfmaps_feed(world.maps, &text, sizeof(text)), -EPROTO);
	assert_int_equal(perfmaps_feed(world.maps, &text, 8), -EPROTO);
	assert_int_equal(perfmaps_feed(world.maps, &header, sizeof(header)), -EPROTO);
	text.name_bytes = 0;
	text.header.size = 4000;
	assert_int_equal(perfmaps_feed(world.maps, &text, sizeof(text)), -EPROTO);
	perfmaps_free(world.maps);
}

/* A jitdump as CPython's perf_map_jit writes it: UNWINDING_INFO, LOAD; then a MOVE. */
static size_t jitdump_make(unsigned char *out)
{
	const uint32_t header[10] = {0x4a695444, 1, 40, 62, 0, 100};
	const struct {
		uint32_t id, size;
		uint64_t time, unwinding, eh_frame, mapped;
	} unwinding = {4, 40, 1, 0, 0, 0};
	const struct {
		uint32_t id, size;
		uint64_t time;
		uint32_t pid, tid;
		uint64_t vma, address, bytes, index;
		char name[8];
		unsigned char code[16];
	} load = {0, 80, 2, 100, 100, 0x7000, 0x7000, 16, 0, "py::fun", {0}};
	const struct {
		uint32_t id, size;
		uint64_t time;
		uint32_t pid, tid;
		uint64_t vma, old, new, bytes, index;
	} move = {1, 64, 3, 100, 100, 0x8000, 0x7000, 0x8000, 16, 0};
	size_t at = 0;

	memcpy(out, header, sizeof(header));
	memcpy(out + (at += sizeof(header)), &unwinding, 40);
	memcpy(out + (at += 40), &load, 80);
	memcpy(out + (at += 80), &move, 64);
	return at + 64;
}

static int code_take(void *context, const struct jitdump_code *code)
{
	return perfmap_process_jitdump(context, code);
}

static void test_jitdump(void **state)
{
	unsigned char data[512];
	size_t bytes = jitdump_make(data), load_end = bytes - 64;
	(void)state;

	for (size_t piece = 1; piece < bytes; piece += 13) {
		struct jitdump *jitdump = calloc(1, sizeof(*jitdump));
		struct world world;

		world_make(&world);
		for (size_t at = 0; at < bytes; at += piece) {
			assert_int_equal(jitdump_read(jitdump, data + at,
						      bytes - at < piece ? bytes - at : piece,
						      code_take, world.parent),
					 0);
			if (at + piece >= load_end && at + piece < bytes)
				assert_string_equal(name_at(world.parent, 0x700f), "py::fun");
		}
		assert_int_equal(jitdump->records, 2);
		assert_int_equal(jitdump->refused, 0);
		assert_null(name_at(world.parent, 0x7000));
		assert_string_equal(name_at(world.parent, 0x800f), "py::fun");
		perfmaps_free(world.maps);
		free(jitdump);
	}
}

/*
 * A CPython keeps records in a buffer, and a forked child writes them once more. They are of the
 * children that were forked after them, and never replace what is newer.
 */
static void test_jitdump_read_after_fork(void **state)
{
	struct event_process record = {
		.header = {.type = EVENT_FORK, .size = sizeof(record), .tgid = PARENT}};
	struct jitdump_code code = {
		.address = 0x100, .bytes = 16, .name = "old", .name_bytes = 3, .time_ns = 20};
	struct perfmap_process *children[3];
	struct world world;
	(void)state;

	world_make(&world);
	for (int i = 0; i < 3; i++) {
		record.other = CHILD + i;
		record.header.time_ns = i ? 30 : 10;
		assert_int_equal(perfmaps_feed(world.maps, &record, sizeof(record)), 0);
		children[i] = perfmaps_find(world.maps, CHILD + i);
	}
	process_feed(&world, EVENT_EXEC, CHILD + 2, 0);
	assert_int_equal(perfmap_process_jitdump(world.parent, &code), 0);
	assert_string_equal(name_at(world.parent, 0x100), "old");
	assert_null(name_at(children[0], 0x100)); /* forked before */
	assert_string_equal(name_at(children[1], 0x100), "old");
	assert_null(name_at(children[2], 0x100)); /* it runs another program */
	code.name = "new";
	code.time_ns = 40;
	assert_int_equal(perfmap_process_jitdump(children[1], &code), 0);
	assert_string_equal(name_at(world.parent, 0x100), "old");
	code.name = "old";
	code.time_ns = 20;
	assert_int_equal(perfmap_process_jitdump(world.parent, &code), 0);
	assert_int_equal(perfmap_process_jitdump(children[1], &code), 0);
	assert_string_equal(name_at(children[1], 0x100), "new");
	perfmaps_free(world.maps);
}

static void test_bad_jitdump(void **state)
{
	struct jitdump *jitdump = calloc(1, sizeof(*jitdump));
	unsigned char data[512];
	size_t bytes = jitdump_make(data);
	struct world world;
	(void)state;

	world_make(&world);
	data[0] ^= 1;
	assert_int_equal(jitdump_read(jitdump, data, bytes, code_take, world.parent), -EPROTO);
	memset(jitdump, 0, sizeof(*jitdump));
	data[0] ^= 1;
	data[44] = 3; /* a record shorter than its own header */
	assert_int_equal(jitdump_read(jitdump, data, bytes, code_take, world.parent), 0);
	assert_int_equal(jitdump->torn, 1);
	assert_int_equal(perfmap_table_count(world.parent->table), 1); /* the next one */
	assert_int_equal(perfmap_table_cut(world.parent->table, 0, UINT64_MAX), 0);
	memset(jitdump, 0, sizeof(*jitdump));
	data[44] = 40;
	memset(data + 136, 'x', 8); /* an unterminated name at the end of a record */
	data[84] = 64;
	assert_int_equal(jitdump_read(jitdump, data, 144, code_take, world.parent), 0);
	assert_int_equal(jitdump->torn, 1);
	assert_int_equal(jitdump->lost, 1);
	assert_int_equal(perfmap_table_count(world.parent->table), 0);
	perfmaps_free(world.maps);
	free(jitdump);
}

/*
 * Where a process forks with records in its buffer, the child and then the process itself write
 * them: the second time the file goes on within a record, wherever the buffer began.
 */
static void test_jitdump_written_twice(void **state)
{
	enum { RECORDS = 40, END = 160 };
	const uint64_t address = 0x9000;
	unsigned char one[512], data[512];
	(void)state;

	jitdump_make(one);
	for (size_t cut = RECORDS; cut <= END; cut++) {
		for (size_t piece = 1; piece < sizeof(data); piece = piece * 3 + 1) {
			struct jitdump *jitdump = calloc(1, sizeof(*jitdump));
			size_t end = END + END - cut;
			struct world world;

			world_make(&world);
			memcpy(data, one, END);
			memcpy(data + END, one + cut, END - cut);
			/* Another function, after the fork. */
			memcpy(data + end, one + END - 80, 80);
			memcpy(data + end + 32, &address, sizeof(address));
			memcpy(data + end + 56, "py::two", 8);
			end += 80;
			for (size_t at = 0; at < end; at += piece)
				assert_int_equal(jitdump_read(jitdump, data + at,
							      end - at < piece ? end - at : piece,
							      code_take, world.parent),
						 0);
			assert_string_equal(name_at(world.parent, 0x7000), "py::fun");
			assert_string_equal(name_at(world.parent, 0x9000), "py::two");
			assert_int_equal(perfmap_table_count(world.parent->table), 2);
			assert_int_equal(jitdump->refused, 0);
			assert_int_equal(jitdump->lost, 0);
			perfmaps_free(world.maps);
			free(jitdump);
		}
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_state),
		cmocka_unit_test(test_fork),
		cmocka_unit_test(test_copy),
		cmocka_unit_test(test_images),
		cmocka_unit_test(test_lying_images),
		cmocka_unit_test(test_malformed),
		cmocka_unit_test(test_jitdump),
		cmocka_unit_test(test_bad_jitdump),
		cmocka_unit_test(test_jitdump_written_twice),
		cmocka_unit_test(test_jitdump_read_after_fork),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
