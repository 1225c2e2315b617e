/* SPDX-License-Identifier: Apache-2.0 */
/* Names of real programs: which functions are a program's own. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <stdlib.h>
#include <string.h>

#include "snapshot/frames/library.h"

#define COUNT(array) (sizeof(array) / sizeof((array)[0]))

static int is_library(const char *name)
{
	char *out = malloc(strlen(name) + 1);
	enum short_name_form form;
	int answer;

	short_name(name, out, &form);
	answer = library_function(out, form) != LIBRARY_NOT;
	free(out);
	return answer;
}

static void test_library_functions(void **state)
{
	static const char *const names[] = {
		"zmalloc",
		"ztrymalloc_usable_internal",
		"zmalloc.part.0",
		"AllocSetAlloc",
		"AllocSetAllocFromNewBlock",
		"MemoryContextAllocZeroAligned",
		"palloc0",
		"pg_malloc_extended",
		"ngx_palloc",
		"ngx_palloc_large",
		"ngx_alloc",
		"ngx_create_pool",
		"g_malloc0",
		"g_strdup_vprintf",
		"sqlite3MemMalloc",
		"sqlite3DbMallocRawNN",
		"xmalloc",
		"xrealloc.cold",
		"_obstack_newchunk",
		"CRYPTO_zalloc",
		"PyMem_RawMalloc",
		"_PyMem_RawCalloc",
		"PyType_GenericAlloc",
		"__rust_alloc",
		"_rjem_malloc",
		"je_malloc_default",
		"malloc@@GLIBC_2.2.5",
		"operator new(unsigned long)",
		"operator new[](unsigned long, std::nothrow_t const&)",
		"Zone::operator new(unsigned long)",
		"std::vector<int, std::allocator<int> >::push_back(int&&)",
		"void std::vector<int, std::allocator<int> >::_M_realloc_insert<int const&>"
		"(__gnu_cxx::__normal_iterator<int*, std::vector<int, std::allocator<int> > >, "
		"int const&)",
		"__gnu_cxx::new_allocator<shop::Order>::allocate(unsigned long, void const*)",
		"std::__1::basic_string<char>::__init(char const*, unsigned long)",
		"alloc::raw_vec::RawVec<T,A>::grow_one",
		"alloc::vec::Vec<T,A>::push",
		"<alloc::vec::Vec<T,A> as core::clone::Clone>::clone",
		"<alloc::vec::Vec<shop::Order>>::push",
		"<T as alloc::slice::hack::ConvertVec>::to_vec",
		"<[u8] as alloc::slice::hack::ConvertVec>::to_vec::<alloc::alloc::Global>",
		"hashbrown::raw::RawTable<T,A>::reserve_rehash",
		"std::collections::hash::map::HashMap<K,V,S>::insert",
		"__rustc::__rust_alloc",
		"_start",
		"__libc_start_main@@GLIBC_2.34",
	};
	(void)state;

	for (size_t i = 0; i < COUNT(names); i++)
		if (!is_library(names[i]))
			fail_msg("%s is a library's", names[i]);
}

static void test_own_functions(void **state)
{
	static const char *const names[] = {
		"main",
		"createObject",
		"dictAdd",
		"sdsnewlen",
		"mallocator",
		"zmq_init",
		"clone_order",
		"ExecInitNode",
		"alloc_order",
		"list_append",
		"<unknown>",
		"",
		"shop::load(std::string const&)",
		"std::vector<int, std::allocator<int> > shop::orders<int>(int)",
		"shop::Pool<std::string>::take()",
		"core::init(int)", /* C++ */
		"alloc::Arena::grow(unsigned long)",
		"stdext::grow(int)",
		"main::{lambda(int)#1}::operator()(int) const",
		"shop::main",
		"<shop::Order as core::clone::Clone>::clone",
		"<shop::Order as alloc::string::ToString>::to_string",
		"shop::main::{{closure}}",
		"corelib::alloc",
	};
	(void)state;

	for (size_t i = 0; i < COUNT(names); i++)
		if (is_library(names[i]))
			fail_msg("%s is a program's own", names[i]);
}

static void test_files(void **state)
{
	static const struct {
		const char *name;
		int is_library;
	} cases[] = {
		{"/usr/lib/x86_64-linux-gnu/libc.so.6", 1},
		{"/lib/libc.musl-x86_64.so.1", 1},
		{"/lib64/ld-linux-x86-64.so.2", 1},
		{"/usr/lib/x86_64-linux-gnu/libstdc++.so.6.0.30", 1},
		{"libc.so.6", 1},
		{"/usr/include/c++/12/bits/new_allocator.h", 1},
		{"/rustc/897e37553bba/library/alloc/src/vec/mod.rs", 1},
		{"/usr/lib/rustlib/src/rust/library/alloc/src/raw_vec.rs", 1},
		{"./malloc/malloc.c", 1},
		{"../sysdeps/nptl/libc_start_call_main.h", 1},
		{"../nss/getXXbyYY.c", 1},
		{"/usr/lib/x86_64-linux-gnu/libcrypto.so.3", 0},
		{"/usr/lib/x86_64-linux-gnu/libcurl.so.4", 0},
		{"/usr/bin/redis-check-rdb", 0},
		{"./src/object.c", 0},
		{"malloc/malloc.c", 0},
		{"/srv/malloc/pool.c", 0},
		{"/home/web/shop/c++/order.cc", 0},
		{"/usr/include/boost/vector.hpp", 0},
		{"<unknown>", 0},
		{"", 0},
	};
	(void)state;

	for (size_t i = 0; i < COUNT(cases); i++)
		if (library_has_file(cases[i].name) != cases[i].is_library)
			fail_msg("%s", cases[i].name);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_library_functions),
		cmocka_unit_test(test_own_functions),
		cmocka_unit_test(test_files),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
