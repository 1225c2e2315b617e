/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Real interpreters, each spinning in a known line: from the runtime to the thread state, its
 * frame, its code object and the line, along every offset that BPF uses.
 */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/ptrace.h>

#include <cmocka.h>

#include "base/buffer.h"
#include "base/error.h"
#include "process/memory.h"
#include "python/code.h"
#include "python/lines.h"
#include "python/runtime.h"
#include "python/tstate.h"
#include "pythons.h"
#include "ranges.h"

#define SPIN      "tests/unit/data/python/spin.py"
#define SPACE     7
#define MAX_WAITS 5000 /* of a millisecond */
#define MAX_STEPS 1000 /* system calls before libpython is mapped */

static int spin_start(struct python_child *child, char *path, char *environment, uint64_t *ident)
{
	char line[64];

	if (access(SPIN, R_OK)) {
		printf("%s is not to be found from here\n", SPIN);
		return -1;
	}
	if (python_start(child, (char *[]){path, "-S", SPIN, NULL}, environment))
		return -1;
	if (!fgets(line, sizeof(line), child->out))
		return -1;
	*ident = strtoull(line, NULL, 10);
	return 0;
}

static uint64_t word(const struct python_runtime *runtime, uint64_t address)
{
	uint64_t value = 0;

	assert_int_equal(memory_read_u64(runtime->pid, address, &value), 0);
	return value;
}

/* The thread list's thread state of the thread. */
static uint64_t tstate_match(const struct python_runtime *runtime, uint64_t ident)
{
	const struct abi_offsets *offsets = &runtime->target.offsets;
	uint64_t interp =
		word(runtime, runtime->target.runtime + offsets->runtime_interpreters_head);
	uint64_t tstate;

	assert_int_not_equal(interp, 0);
	for (tstate = word(runtime, interp + offsets->interp_threads_head); tstate;
	     tstate = word(runtime, tstate + offsets->tstate_next))
		if (word(runtime, tstate + offsets->tstate_thread_id) == ident)
			return tstate;
	return 0;
}

/* What BPF does; ident is the fs base of the thread. */
static uint64_t tstate_current(const struct python_runtime *runtime, uint64_t ident)
{
	const struct abi_target *target = &runtime->target;
	uint64_t block;

	switch (target->tstate_source) {
	case ABI_TSTATE_SLOT:
		return word(runtime, (uint64_t)target->tstate_address);
	case ABI_TSTATE_TLS:
		return word(runtime, ident + (uint64_t)target->tstate_address);
	case ABI_TSTATE_DTV:
		block = word(runtime, word(runtime, ident + 8) + 16 * target->tls_module);
		return word(runtime, block + (uint64_t)target->tstate_address);
	}
	return 0;
}

static uint64_t frame_top(const struct python_runtime *runtime, uint64_t tstate)
{
	const struct abi_offsets *offsets = &runtime->target.offsets;

	if (offsets->tstate_cframe == ABI_NONE)
		return word(runtime, tstate + offsets->tstate_frame);
	return word(runtime,
		    word(runtime, tstate + offsets->tstate_cframe) + offsets->cframe_current_frame);
}

static int lasti_of(const struct python_runtime *runtime, uint64_t frame, uint64_t code)
{
	const struct abi_offsets *offsets = &runtime->target.offsets;
	uint64_t instr = word(runtime, frame + offsets->frame_instr);

	if (offsets->frame_lasti_scale)
		return (int32_t)instr * offsets->frame_lasti_scale;
	return (int)(instr - (code + offsets->code_bytecode));
}

static void check_text(const uint8_t *data, unsigned int kind, unsigned int bytes,
		       const uint16_t *text)
{
	unsigned int i;

	assert_true(kind == 1 || kind == 2);
	for (i = 0; text[i]; i++)
		assert_int_equal(kind == 1 ? data[i] : data[2 * i] | data[2 * i + 1] << 8, text[i]);
	assert_int_equal(bytes, kind * i);
}

/* The records of a code object, put together again. */
static void check_code(const struct python_runtime *runtime, uint64_t address, uint64_t frame)
{
	const struct event_header header = {.tgid = 42, .tid = 43, .time_ns = 44};
	struct abi_target target = runtime->target;
	const struct event_code_lines *lines;
	const struct event_code *event;
	struct buffer out = {0};
	uint64_t id;
	int line = 0;

	target.space = SPACE;
	/* Whatever BPF could not read is not in the id that it gave. */
	assert_int_equal(code_id(runtime->pid, &target, address, EVENT_MISS_LINES, &id), 0);
	assert_int_equal(code_read(runtime->pid, &target, address, id, &header, &out), 0);
	out.size = 0;
	assert_int_equal(code_id(runtime->pid, &target, address, 0, &id), 0);
	assert_int_equal(code_read(runtime->pid, &target, address, 12345, &header, &out), -ESTALE);
	assert_int_equal(out.size, 0);
	assert_int_equal(code_read(runtime->pid, &target, address, id, &header, &out), 0);

	event = (const void *)out.data;
	assert_int_equal(event->header.type, EVENT_CODE);
	assert_int_equal(event->header.tgid, 42);
	assert_int_equal(event->header.tid, 43);
	assert_int_equal(event->header.time_ns, 44);
	assert_int_equal(event->header.size % 8, 0);
	assert_int_equal(event->missing, 0);
	assert_int_equal(event->address, address);
	assert_int_equal(event->first_line, 3);
	check_text(event->data, event->filename_kind, event->filename_bytes, u"snow\u2603.py");
	check_text(event->data + event->filename_bytes, event->qualname_kind, event->qualname_bytes,
		   runtime->offsets->version < 0x030b ? u"spin" : u"C.spin");

	lines = (const void *)(out.data + event->header.size);
	assert_int_equal(lines->header.type, EVENT_CODE_LINES);
	assert_int_equal(lines->code_id, event->code_id);
	assert_int_equal(lines->offset, 0);
	assert_int_equal(lines->bytes, event->lines_bytes);
	assert_int_equal(out.size, event->header.size + lines->header.size);
	/* Its words about itself may still be on their way out, from line 5. */
	for (int i = 0; i < MAX_WAITS && (line < 6 || line > 7); i++) {
		const struct lines_table table = {.format = runtime->offsets->lines,
						  .first_line = (int)event->first_line,
						  .data = lines->data,
						  .bytes = lines->bytes};

		line = lines_find(&table, lasti_of(runtime, frame, address));
		usleep(i ? 1000 : 0);
	}
	assert_uint_in_range(line, 6, 7);
	buffer_free(&out);
}

static void check_spinning(const struct python_runtime *runtime, uint64_t ident)
{
	const struct abi_offsets *offsets = &runtime->target.offsets;
	uint64_t tstate = tstate_match(runtime, ident), frame, code;
	int depth = 1;

	assert_int_not_equal(tstate, 0);
	if (runtime->target.tstate_source != ABI_TSTATE_MATCH) {
		/* Between its words about itself and the loop the child is without the GIL. */
		for (int i = 0; i < MAX_WAITS && tstate_current(runtime, ident) == 0; i++)
			usleep(1000);
		assert_int_equal(tstate_current(runtime, ident), tstate);
	}
	frame = frame_top(runtime, tstate);
	code = word(runtime, frame + offsets->frame_code);
	assert_int_equal(word(runtime, code + offsets->object_type), runtime->target.code_type);
	check_code(runtime, code, frame);

	/* Below it: C's caller, spin.py's exec(); then nothing. */
	for (frame = word(runtime, frame + offsets->frame_previous); frame && depth < 10; depth++)
		frame = word(runtime, frame + offsets->frame_previous);
	assert_true(frame == 0 && depth >= 3);
}

static void check_version(unsigned int minor)
{
	struct python_runtime runtime;
	struct python_child child = {0};
	char path[PATH_MAX];
	uint64_t ident;
	int err;

	if (!python_path(minor, path))
		skip();
	if (spin_start(&child, path, NULL, &ident))
		skip();
	err = python_runtime_find(child.pid, NULL, &runtime);
	if (err)
		printf("%s: %s\n", path, error_reason(err));
	assert_int_equal(err, 0);
	assert_int_equal(runtime.pid, child.pid);
	assert_int_equal(runtime.offsets->version, 0x0300 | minor);
	/* 3.13+: its own offsets agree */
	assert_ptr_equal(runtime.offsets, offsets_for(0x0300 | minor, 0));
	assert_int_equal(runtime.version_hex >> 16, 0x0300 | minor);
	assert_int_equal((runtime.version_hex & 0xffff) != 0, minor >= 11);
	printf("3.%u: source %u, address %lld, module %u, %s\n", minor,
	       runtime.target.tstate_source, (long long)runtime.target.tstate_address,
	       runtime.target.tls_module, runtime.static_exe ? "executable" : "library");
	if (minor <= 11)
		assert_int_equal(runtime.target.tstate_source, ABI_TSTATE_SLOT);
	else
		assert_int_equal(runtime.target.tstate_source,
				 runtime.static_exe ? ABI_TSTATE_TLS : ABI_TSTATE_DTV);
	check_spinning(&runtime, ident);
	python_runtime_close(&runtime);
	python_stop(&child);
}

VERSION_TESTS(check_version)

/* The distribution's interpreter: one stripped executable, as a rule. */
static void test_system(void **state)
{
	struct python_runtime runtime;
	struct python_child child = {0};
	char path[PATH_MAX];
	uint64_t ident;
	int tested = 0;

	(void)state;
	for (unsigned int minor = 8; minor <= 14; minor++) {
		snprintf(path, sizeof(path), "/usr/bin/python3.%u", minor);
		if (access(path, X_OK) || spin_start(&child, path, NULL, &ident))
			continue;
		assert_int_equal(python_runtime_find(child.pid, NULL, &runtime), 0);
		assert_int_equal(runtime.offsets->version, 0x0300 | minor);
		check_spinning(&runtime, ident);
		python_runtime_close(&runtime);
		python_stop(&child);
		tested++;
	}
	if (!tested)
		skip();
}

/* A stripped libpython has no symbol of the thread-local variable: the machine code must say it. */
static void check_stripped(unsigned int minor)
{
	char path[PATH_MAX], copy[PATH_MAX], command[3 * PATH_MAX], preload[PATH_MAX + 16];
	char directory[] = "/tmp/test_runtime.XXXXXX";
	struct python_runtime runtime;
	struct python_child child = {0};
	uint64_t ident;
	int status;

	if (!python_path(minor, path))
		skip();
	assert_non_null(mkdtemp(directory));
	snprintf(copy, sizeof(copy), "%s/libpython3.%u.so.1.0", directory, minor);
	snprintf(command, sizeof(command),
		 "strip -o %s \"$(dirname %s)\"/../lib/libpython3.%u.so.1.0 2>/dev/null", copy,
		 path, minor);
	status = system(command);
	if (status == 0) {
		snprintf(preload, sizeof(preload), "LD_PRELOAD=%s", copy);
		assert_int_equal(spin_start(&child, path, preload, &ident), 0);
		assert_int_equal(python_runtime_find(child.pid, NULL, &runtime), 0);
		assert_string_equal(elf_file_path(runtime.file), copy);
		assert_int_equal(runtime.target.tstate_source, ABI_TSTATE_DTV);
		check_spinning(&runtime, ident);
		python_runtime_close(&runtime);
		python_stop(&child);
		unlink(copy);
	}
	rmdir(directory);
	if (status) {
		printf("no shared library of it, or no strip, on this machine\n");
		skip();
	}
}

static void test_stripped_312(void **state)
{
	(void)state;
	check_stripped(12);
}

static void test_stripped_313(void **state)
{
	(void)state;
	check_stripped(13);
}

/*
 * An interpreter that is one executable, with and without symbols: linked here from the static
 * library.
 */
static void check_static(unsigned int minor)
{
	char path[PATH_MAX], command[4 * PATH_MAX], program[64], home[PATH_MAX + 16];
	char directory[] = "/tmp/test_runtime.XXXXXX";
	struct python_runtime runtime;
	struct python_child child = {0};
	uint64_t ident;
	int status;

	if (!python_path(minor, path))
		skip();
	assert_non_null(mkdtemp(directory));
	snprintf(program, sizeof(program), "%s/python", directory);
	*strrchr(path, '/') = 0; /* …/bin */
	snprintf(home, sizeof(home), "PYTHONHOME=%s/..", path);
	snprintf(command, sizeof(command),
		 "echo 'int Py_BytesMain(int, char **); int main(int n, char **a) { return "
		 "Py_BytesMain(n, a); }' |"
		 " cc -x c - -x none -o %s %s/../lib/python3.%u/config-*/libpython3.%u.a -rdynamic "
		 "-lm -ldl"
		 " -lpthread -lutil 2>/dev/null",
		 program, path, minor, minor);
	status = system(command);
	for (int stripped = 0; stripped < 2 && status == 0; stripped++) {
		assert_int_equal(spin_start(&child, program, home, &ident), 0);
		assert_int_equal(python_runtime_find(child.pid, NULL, &runtime), 0);
		assert_int_equal(elf_file_has_symtab(runtime.file), !stripped);
		assert_true(runtime.static_exe);
		assert_int_equal(runtime.target.tstate_source, ABI_TSTATE_TLS);
		check_spinning(&runtime, ident);
		python_runtime_close(&runtime);
		python_stop(&child);
		snprintf(command, sizeof(command), "strip %s", program);
		if (!stripped)
			status = system(command);
	}
	unlink(program);
	rmdir(directory);
	if (status) {
		printf("no static library of it, or no compiler, on this machine\n");
		skip();
	}
}

static void test_static_312(void **state)
{
	(void)state;
	check_static(12);
}

static void test_static_313(void **state)
{
	(void)state;
	check_static(13);
}

static int has_libpython(pid_t pid)
{
	struct process_maps maps;
	int found = 0;

	assert_int_equal(process_maps_read(pid, &maps), 0);
	for (size_t i = 0; i < maps.count; i++)
		found |= maps.entries[i].executable && strstr(maps.entries[i].path, "libpython");
	process_maps_free(&maps);
	return found;
}

/*
 * Stopped as soon as libpython is mapped: nothing is relocated, the thread state's place cannot be
 * known.
 */
static void check_early(unsigned int minor, unsigned int source)
{
	struct python_runtime runtime;
	char path[PATH_MAX];
	int status, found = 0;
	pid_t pid;

	if (!python_path(minor, path))
		skip();
	pid = fork();
	if (pid == 0) {
		ptrace(PTRACE_TRACEME, 0, 0, 0);
		execl(path, path, "-c", "", NULL);
		_exit(127);
	}
	waitpid(pid, &status, 0);
	if (!WIFSTOPPED(status)) {
		printf("no ptrace here\n");
		skip();
	}
	for (int i = 0; i < MAX_STEPS && !found && WIFSTOPPED(status); i++) {
		ptrace(PTRACE_SYSCALL, pid, 0, 0);
		waitpid(pid, &status, 0);
		found = WIFSTOPPED(status) && has_libpython(pid);
	}
	if (found) {
		assert_int_equal(python_runtime_find(pid, NULL, &runtime), 0);
		assert_int_equal(runtime.offsets->version, 0x0300 | minor);
		assert_int_equal(runtime.target.tstate_source, source);
		python_runtime_close(&runtime);
	}
	kill(pid, SIGKILL);
	waitpid(pid, &status, 0);
	if (!found) {
		printf("%s does not map a libpython\n", path);
		skip();
	}
}

static void test_early_310(void **state)
{
	(void)state;
	check_early(10, ABI_TSTATE_SLOT);
}

static void test_early_313(void **state)
{
	(void)state;
	check_early(13, ABI_TSTATE_MATCH);
}

/*
 * A version that is not in the table is refused by name; a process without Python is not mistaken
 * for one.
 */
static void test_refused(void **state)
{
	struct python_runtime runtime;
	struct python_child child = {0};
	char path[PATH_MAX];

	(void)state;
	assert_int_equal(python_runtime_find(getpid(), NULL, &runtime), -ENOENT);
	assert_int_equal(python_runtime_find(0x7ffffff0, NULL, &runtime), -ESRCH);

	if (!python_path(7, path))
		skip();
	assert_int_equal(
		python_start(&child,
			     (char *[]){path, "-c",
					"import os, time; os.write(1, b'\\n'); time.sleep(99)",
					NULL},
			     NULL),
		0);
	assert_int_equal(getc(child.out), '\n');
	assert_int_equal(python_runtime_find(child.pid, NULL, &runtime), -ENOTSUP);
	assert_non_null(strstr(error_reason(-ENOTSUP), "3.7"));
	assert_non_null(strstr(error_reason(-ENOTSUP), "3.15"));
	python_stop(&child);
}

static void decode(const char *code, size_t bytes, int64_t offset, int64_t slot, int indirect)
{
	struct tstate_access access;

	assert_int_equal(tstate_decode((const uint8_t *)code, bytes, &access), 0);
	assert_int_equal(access.offset, offset);
	assert_int_equal(access.slot, slot);
	assert_int_equal(access.indirect, indirect);
	for (size_t cut = 0; cut < bytes; cut++)
		assert_int_equal(tstate_decode((const uint8_t *)code, cut, &access), -ENOENT);
}

#define DECODE(code, ...) decode(code, sizeof(code) - 1, __VA_ARGS__)

/* What gcc and clang make of "return variable;", by TLS model. */
static void test_decode(void **state)
{
	struct tstate_access access;

	(void)state;
	/* local executable: mov %fs:-8,%rax */
	DECODE("\x64\x48\x8b\x04\x25\xf8\xff\xff\xff\xc3", -8, 0, 0);
	DECODE("\xf3\x0f\x1e\xfa\x64\x48\x8b\x04\x25\xe0\xff\xff\xff\xc3", -32, 0, 0);
	/* initial executable, relaxed: mov $-16,%rax; mov %fs:(%rax),%rax */
	DECODE("\x48\xc7\xc0\xf0\xff\xff\xff\x64\x48\x8b\x00\xc3", -16, 0, 0);
	/* local dynamic, relaxed: mov %fs:0,%rax; mov -8(%rax),%rax */
	DECODE("\x66\x66\x66\x64\x48\x8b\x04\x25\0\0\0\0\x48\x8b\x80\xf8\xff\xff\xff\xc3", -8, 0,
	       0);
	/* general dynamic, relaxed: mov %fs:0,%rax; lea -8(%rax),%rax; mov (%rax),%rax */
	DECODE("\x48\x83\xec\x08\x64\x48\x8b\x04\x25\0\0\0\0\x48\x8d\x80\xf8\xff\xff\xff\x48\x8b"
	       "\x00\x48\x83\xc4\x08\xc3",
	       -8, 0, 0);
	/* general dynamic */
	DECODE("\x48\x83\xec\x08\x66\x48\x8d\x3d\xf4\xc9\x26\x00\x66\x66\x48\xe8\xdc\x10\xe3"
	       "\xff\x48\x8b\x00\x48\x83\xc4\x08\xc3",
	       0, 12 + 0x26c9f4, 1);
	/* local dynamic */
	DECODE("\x50\x48\x8d\x3d\xf4\xc9\x26\x00\xe8\xdc\x10\xe3\xff\x48\x8b\x80\x18\0\0\0\x59\xc3",
	       24, 8 + 0x26c9f4, 0);
	/* another function: mov %fs:-8,%rax; mov (%rax),%rax; ret */
	assert_int_equal(
		tstate_decode(
			(const uint8_t *)"\x64\x48\x8b\x04\x25\xf8\xff\xff\xff\x48\x8b\x00\xc3", 13,
			&access),
		-ENOENT);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_decode),       cmocka_unit_test(test_38),
		cmocka_unit_test(test_39),           cmocka_unit_test(test_310),
		cmocka_unit_test(test_311),          cmocka_unit_test(test_312),
		cmocka_unit_test(test_313),          cmocka_unit_test(test_314),
		cmocka_unit_test(test_315),          cmocka_unit_test(test_system),
		cmocka_unit_test(test_stripped_312), cmocka_unit_test(test_stripped_313),
		cmocka_unit_test(test_static_312),   cmocka_unit_test(test_static_313),
		cmocka_unit_test(test_early_310),    cmocka_unit_test(test_early_313),
		cmocka_unit_test(test_refused),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
