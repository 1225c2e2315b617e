/* SPDX-License-Identifier: Apache-2.0 */
/* The runtime of real interpreters: its thread states, frames and code objects. */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "python_spin.h"
#include "pythons.h"
#include "runtime/cpython/code.h"
#include "runtime/cpython/lines.h"
#include "runtime/cpython/runtime.h"
#include "runtime/cpython/tstate.h"
#include "util/error.h"

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
	/* 3.13+: its own offsets match */
	assert_ptr_equal(runtime.offsets, offsets_for(0x0300 | minor, BUILD_RELEASE));
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

/* The distribution's interpreter: usually one stripped executable. */
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

/*
 * A version that is not in the table is refused by name; a process without Python is not mistaken
 * for an interpreter.
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

/* The code that gcc and clang generate for "return variable;", by TLS model. */
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
		cmocka_unit_test(test_decode),  cmocka_unit_test(test_38),
		cmocka_unit_test(test_39),      cmocka_unit_test(test_310),
		cmocka_unit_test(test_311),     cmocka_unit_test(test_312),
		cmocka_unit_test(test_313),     cmocka_unit_test(test_314),
		cmocka_unit_test(test_315),     cmocka_unit_test(test_system),
		cmocka_unit_test(test_refused),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
