/* SPDX-License-Identifier: Apache-2.0 */
/* Names as libiberty demangles those of real programs. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <stdlib.h>
#include <string.h>

#include "snapshot/frames/short_name.h"

static void shortened(const char *name, const char *expected)
{
	char *out = malloc(strlen(name) + 1); /* exactly, for the sanitizer */
	size_t bytes = short_name(name, out, NULL);

	if (strcmp(out, expected) != 0 || bytes != strlen(expected))
		fail_msg("%s\n  is %s\n not %s", name, out, expected);
	free(out);
}

static void test_c(void **state)
{
	static const char *const names[] = {
		"zmalloc",    "AllocSetAlloc",  "main",      "_start", "foo.isra.0",
		"foo.cold",   "_PyEval_Vector", "<unknown>", "",       "0x7f0012",
		"[vdso+0x1]", "<module>",       "<lambda>",  "f$x",    "<listcomp>",
	};
	(void)state;

	for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++)
		shortened(names[i], names[i]);
}

static void test_cxx(void **state)
{
	static const char *const names[][2] = {
		{"std::vector<int, std::allocator<int> >::push_back(int&&)",
		 "std::vector::push_back"},
		{"void sort<Order*>(Order*, Order*)", "sort"},
		{"std::vector<int, std::allocator<int> > const& shop::orders<int>(int)",
		 "shop::orders"},
		{"unsigned long shop::count<unsigned long>()", "shop::count"},
		{"shop::Cache<Key, Value<int> >::insert(Key const&) const", "shop::Cache::insert"},
		{"(anonymous namespace)::load(char const*)", "(anonymous namespace)::load"},
		{"void (anonymous namespace)::load<int>(int)", "(anonymous namespace)::load"},
		{"main::{lambda(int)#1}::operator()(int) const", "main::{lambda#1}::operator()"},
		{"run(int)::{lambda(auto:1)#2}::operator()<int>(int) const",
		 "run::{lambda#2}::operator()"},
		{"run(int) const::Local::get()", "run::Local::get"},
		{"operator new(unsigned long)", "operator new"},
		{"operator new[](unsigned long, std::nothrow_t const&)", "operator new[]"},
		{"Pool::operator new(unsigned long)", "Pool::operator new"},
		{"Text::operator unsigned long() const", "Text::operator unsigned long"},
		{"bool operator< <int>(Box<int> const&, Box<int> const&)", "operator<"},
		{"bool operator==(Key const&, Key const&)", "operator=="},
		{"std::ostream& operator<< <char>(std::ostream&, char)", "operator<<"},
		{"std::ostream& operator<<(std::ostream&, Key const&)", "operator<<"},
		{"Key::operator->() const", "Key::operator->"},
		{"Key::operator[](int)", "Key::operator[]"},
		{"text[abi:cxx11](int)", "text"},
		{"std::__cxx11::basic_string<char, std::char_traits<char>, std::allocator<char> >::"
		 "_M_create(unsigned long&, unsigned long)",
		 "std::__cxx11::basic_string::_M_create"},
		{"load(char const*) [clone .cold]", "load"},
		{"load(char const*) [clone .isra.0] [clone .part.1]", "load"},
		{"decltype(auto) std::__invoke<main::{lambda()#1}>(main::{lambda()#1}&&)",
		 "std::__invoke"},
		{"std::map<K, V, std::less<K>, A<(char)60> >::~map()", "std::map::~map"},
		{"non-virtual thunk to shop::View::draw()", "shop::View::draw"},
		{"virtual thunk to shop::View::draw()", "shop::View::draw"},
		{"f(void (*)(int))", "f"},
		/* cut by the demangler */
		{"std::vector<std::pair<std::basic_string<char, std::cha...", "std::vector..."},
	};
	(void)state;

	for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++)
		shortened(names[i][0], names[i][1]);
}

static void test_rust(void **state)
{
	static const char *const names[][2] = {
		{"alloc::vec::Vec<T,A>::push", "alloc::vec::Vec::push"},
		{"<alloc::vec::Vec<T,A> as core::iter::traits::collect::Extend<T>>::extend",
		 "<alloc::vec::Vec as core::iter::traits::collect::Extend>::extend"},
		{"<alloc::vec::Vec<u8>>::push", "<alloc::vec::Vec>::push"},
		{"<shop::Order as core::clone::Clone>::clone",
		 "<shop::Order as core::clone::Clone>::clone"},
		{"<&mut T as core::fmt::Write>::write_str",
		 "<&mut T as core::fmt::Write>::write_str"},
		{"<[u8] as alloc::slice::hack::ConvertVec>::to_vec::<alloc::alloc::Global>",
		 "<[u8] as alloc::slice::hack::ConvertVec>::to_vec"},
		{"<(A, B) as shop::Pair<A>>::first", "<(A, B) as shop::Pair>::first"},
		{"shop::main::{{closure}}", "shop::main::{{closure}}"},
		{"shop::main::{closure#0}::{closure#1}", "shop::main::{closure#0}::{closure#1}"},
		{"core::ops::function::FnOnce::call_once{{vtable.shim}}",
		 "core::ops::function::FnOnce::call_once{{vtable.shim}}"},
		{"<std::collections::hash::map::HashMap<u64, shop::Order>>::insert",
		 "<std::collections::hash::map::HashMap>::insert"},
		{"shop::load::h0123456789abcdef", "shop::load"},
		{"shop::collect::<alloc::vec::Vec<fn(u8) -> u8>>", "shop::collect"},
		{"<T as <U as shop::A>::B>::c", "<T as <U as shop::A>::B>::c"},
	};
	(void)state;

	for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++)
		shortened(names[i][0], names[i][1]);
}

/* Whatever the bytes, the result fits. */
static void test_any(void **state)
{
	static const char alphabet[] = "a:<>(){}[] -,.&*operatornew_\xc3";
	uint64_t random = 1;
	char name[65];
	(void)state;

	for (int i = 0; i < 200000; i++) {
		size_t length = 0;

		for (; length < (size_t)(i % 64); length++) {
			random = random * 6364136223846793005u + 1442695040888963407u;
			name[length] = alphabet[(random >> 33) % (sizeof(alphabet) - 1)];
		}
		name[length] = '\0';
		char *out = malloc(length + 1);
		assert_true(short_name(name, out, NULL) <= length);
		free(out);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_c),
		cmocka_unit_test(test_cxx),
		cmocka_unit_test(test_rust),
		cmocka_unit_test(test_any),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
