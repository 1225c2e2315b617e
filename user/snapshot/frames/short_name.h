/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Short names of C++ and Rust functions: without template and generic arguments, parameters, return
 * types, and what compilers append ("[abi:cxx11]", "[clone .cold]", Rust's hashes).
 *
 *	std::vector<int, std::allocator<int> >::push_back(int&&)  ->  std::vector::push_back
 *	void sort<Order*>(Order*, Order*)                         ->  sort
 *	<alloc::vec::Vec<T,A> as core::clone::Clone>::clone       ->  <alloc::vec::Vec as
 *	                                                              core::clone::Clone>::clone
 *
 * Names of C functions are not changed, nor is a name that is not understood.
 */
#pragma once

#include <stddef.h>

/* What the form of a name tells about its language. */
enum short_name_form {
	NAME_PLAIN, /* nothing: C, or a name without parameters */
	/* it has a list of them, as names of C++ have and those of Rust do not */
	NAME_PARAMETERS,
};

/*
 * Writes the short name of a demangled one into out, which holds at least strlen(name) + 1 bytes.
 * *form may be NULL. Takes time in proportion to the name. Returns the length.
 */
size_t short_name(const char *name, char *out, enum short_name_form *form);
