/* SPDX-License-Identifier: Apache-2.0 */
#include "snapshot/frames/library.h"

#include <string.h>

#define COUNT(array) (sizeof(array) / sizeof((array)[0]))

/* Wrappers of allocators: names, those with a final '*' of all functions that begin so. */
static const char *const allocators[] = {
	/* C */
	"malloc",
	"calloc",
	"realloc",
	"reallocarray",
	"memalign",
	"aligned_alloc",
	"posix_memalign",
	"valloc",
	"pvalloc",
	"__libc_malloc",
	"__libc_calloc",
	"__libc_realloc",
	"__libc_memalign",
	"strdup",
	"strndup",
	"__strdup",
	"__strndup",
	"wcsdup",
	"asprintf",
	"vasprintf",
	"__asprintf",
	"__vasprintf",
	"__asprintf_chk",
	"__vasprintf_chk",
	"_obstack_*",
	/* what many programs call theirs */
	"zmalloc*",
	"zcalloc*",
	"zrealloc*",
	"zstrdup",
	"ztrymalloc*",
	"ztrycalloc*",
	"ztryrealloc*",
	"valkey_malloc*",
	"valkey_calloc*",
	"valkey_realloc*",
	"xmalloc*",
	"xcalloc*",
	"xrealloc*",
	"xzalloc",
	"xnmalloc",
	"xnrealloc",
	"x2realloc",
	"x2nrealloc",
	"xpalloc",
	"xmemdup*",
	"xstrdup*",
	"xstrndup*",
	"xasprintf",
	"xvasprintf",
	"xcharalloc",
	"ximalloc",
	"xireallocarray",
	"do_xmalloc",
	"emalloc",
	"ecalloc",
	"erealloc",
	"_emalloc*",
	"_ecalloc*",
	"_erealloc*",
	"_estrdup*",
	"_safe_emalloc*",
	"__zend_malloc",
	"safe_malloc",
	"safe_calloc",
	"safe_realloc",
	"checked_malloc",
	"mem_malloc",
	"mem_calloc",
	"mem_realloc",
	"my_malloc",
	"my_realloc",
	"my_strdup",
	"ggc_internal_*",
	"ggc_realloc",
	/* allocators' own */
	"je_*alloc*",
	"_rjem_*",
	"mallocx",
	"rallocx",
	"tc_malloc*",
	"tc_calloc",
	"tc_realloc",
	"tc_memalign",
	"tc_new*",
	"mi_malloc*",
	"mi_calloc*",
	"mi_realloc*",
	"mi_zalloc*",
	"mi_heap_*",
	"mi_new*",
	"mi_strdup",
	"mi_strndup",
	"_mi_*",
	/* PostgreSQL */
	"palloc*",
	"repalloc*",
	"pstrdup",
	"pnstrdup",
	"psprintf",
	"pg_malloc*",
	"pg_realloc*",
	"pg_strdup",
	"MemoryContextAlloc*",
	"MemoryContextRealloc*",
	"MemoryContextStrdup",
	"MemoryContextCreate",
	"AllocSet*",
	"Generation*Alloc*",
	"GenerationContextCreate",
	"SlabAlloc*",
	"SlabContextCreate",
	"BumpAlloc*",
	"BumpContextCreate",
	"AlignedAlloc*",
	/* nginx, APR */
	"ngx_alloc",
	"ngx_calloc",
	"ngx_memalign",
	"ngx_palloc*",
	"ngx_pcalloc",
	"ngx_pnalloc",
	"ngx_pmemalign",
	"ngx_pstrdup",
	"ngx_create_pool",
	"ngx_slab_*alloc*",
	"apr_palloc*",
	"apr_pcalloc*",
	"apr_pmemdup",
	"apr_pstrdup",
	"apr_pstrndup",
	"apr_psprintf",
	"apr_pvsprintf",
	"apr_allocator_alloc",
	"allocator_alloc",
	"apr_pool_create*",
	/* GLib, talloc, SQLite, OpenSSL, libxml2, curl, Qt, LLVM */
	"g_malloc*",
	"g_try_malloc*",
	"g_realloc*",
	"g_try_realloc*",
	"g_strdup*",
	"g_strndup",
	"g_memdup*",
	"g_slice_alloc*",
	"g_slice_copy",
	"g_aligned_alloc*",
	"talloc_*",
	"_talloc_*",
	"sqlite3Malloc*",
	"sqlite3Realloc",
	"sqlite3_malloc*",
	"sqlite3_realloc*",
	"sqlite3MemMalloc",
	"sqlite3MemRealloc",
	"sqlite3DbMalloc*",
	"sqlite3DbRealloc*",
	"sqlite3DbStrDup",
	"sqlite3DbStrNDup",
	"sqlite3DbSpanDup",
	"mallocWithAlarm",
	"dbMallocRawFinish",
	"dbReallocFinish",
	"CRYPTO_malloc*",
	"CRYPTO_zalloc",
	"CRYPTO_calloc",
	"CRYPTO_realloc*",
	"CRYPTO_clear_realloc*",
	"CRYPTO_aligned_alloc*",
	"CRYPTO_strdup",
	"CRYPTO_strndup",
	"CRYPTO_memdup",
	"CRYPTO_secure_malloc",
	"CRYPTO_secure_zalloc",
	"xmlMem*alloc*",
	"xmlMemoryStrdup",
	"xmlStrdup",
	"xmlStrndup",
	"curl_dbg_*alloc",
	"curl_dbg_strdup",
	"QArrayData::allocate*",
	"QArrayData::reallocate*",
	"QListData::realloc*",
	"QListData::detach*",
	"llvm::allocate_buffer",
	"llvm::safe_*alloc",
	"llvm::SmallVectorBase::*",
	"llvm::BumpPtrAllocatorImpl::*",
	/* V8, node */
	"v8::base::Malloc",
	"v8::base::Realloc",
	"v8::base::Calloc",
	"v8::base::AlignedAlloc",
	"v8::internal::AllocWithRetry",
	"v8::internal::AlignedAllocWithRetry",
	"v8::internal::AllocAtLeastWithRetry",
	"v8::internal::NewArray",
	"node::Malloc",
	"node::Calloc",
	"node::Realloc",
	"node::UncheckedMalloc",
	"node::UncheckedCalloc",
	"node::UncheckedRealloc",
	"uv__malloc",
	"uv__calloc",
	"uv__realloc*",
	"uv__strdup",
	/* CPython */
	"PyMem_*",
	"_PyMem_*",
	"PyObject_Malloc",
	"PyObject_Calloc",
	"PyObject_Realloc",
	"_PyObject_Malloc",
	"_PyObject_Calloc",
	"_PyObject_Realloc",
	"_PyObject_Arena*",
	"pymalloc_*alloc",
	"allocate_from_new_pool",
	"new_arena",
	"arena_map_*",
	"_PyObject_GC_*",
	"gc_alloc",
	"PyType_GenericAlloc",
	"_PyType_AllocNoTrack",
	"_PyObject_New",
	"_PyObject_NewVar",
	"operator new*",
	"__cxa_allocate_*",
	"__rust_*alloc*",
	"__rustc::*",
	"__rg_*",
	"__rdl_*",
};

/* The insides of standard libraries; what calls main, and a thread's first function. */
static const char *const insides[] = {
	"__gnu_cxx::*",
	"__cxxabiv1::*",
	"std::*",
	"_start",
	"_dl_start_user",
	"__libc_start_main*",
	"__libc_start_call_main",
	"start_thread",
	"clone",
	"clone3",
	"__clone",
	"__clone3",
};

/* Rust's own crates. In C++, namespaces of these names are a program's. */
static const char *const crates[] = {"alloc::", "core::", "std::", "hashbrown::"};

/* Parts of paths, matched anywhere. */
static const char *const directories[] = {
	"/include/c++/",
	"/rustc/",
	"/rustlib/src/rust/library/",
	"/registry/src/hashbrown-",
};

/*
 * Sources of glibc as its debug information names them, relative to a directory that is not
 * recorded.
 */
static const char *const sources[] = {
	"elf/",    "malloc/", "nptl/",   "csu/",    "sysdeps/",      "libio/",
	"stdlib/", "string/", "wcsmbs/", "iconv/",  "intl/",         "dirent/",
	"dlfcn/",  "locale/", "nss/",    "resolv/", "stdio-common/",
};

/* Files of programs, by the beginning of their names; what follows is a version or a suffix. */
static const char *const files[] = {
	"libc.so",      "libc-2.",        "libc.musl-",    "ld-linux",       "ld-2.",
	"ld-musl-",     "libpthread.so",  "libpthread-2.", "libstdc++.so",   "libc++.so",
	"libc++abi.so", "libjemalloc.so", "libtcmalloc",   "libmimalloc.so",
};

static int begins_with(const char *text, const char *prefix)
{
	return !strncmp(text, prefix, strlen(prefix));
}

/* Does the name match? bytes: its length without what compilers append (".part.0"). '*': any. */
static int name_matches(const char *pattern, const char *name, size_t bytes)
{
	const char *star = strchr(pattern, '*');
	size_t head = star ? (size_t)(star - pattern) : strlen(pattern), middle;

	if (bytes < head || memcmp(name, pattern, head) != 0)
		return 0;
	if (!star)
		return bytes == head;
	middle = strcspn(star + 1, "*");
	if (!middle)
		return 1;
	if (!star[1 + middle]) /* it ends the name */
		return bytes >= head + middle && !memcmp(name + bytes - middle, star + 1, middle);
	return memmem(name + head, bytes - head, star + 1, middle) != NULL;
}

static bool is_of_crate(const char *path)
{
	for (size_t i = 0; i < COUNT(crates); i++)
		if (begins_with(path, crates[i]))
			return 1;
	return 0;
}

/* "<Type as Trait>::function": the type decides, or the trait if the type has no path. */
static bool is_rust(const char *name)
{
	const char *type, *trait, *path;

	if (name[0] != '<')
		return is_of_crate(name);
	type = name + 1 + strspn(name + 1, "<&[(*");
	if (begins_with(type, "mut ") || begins_with(type, "dyn "))
		type += 4;
	trait = strstr(name, " as ");
	path = strstr(name, "::");
	if (!trait || (path && path < trait))
		return is_of_crate(type);
	return is_of_crate(trait + strlen(" as "));
}

static int any_matches(const char *const *patterns, size_t count, const char *name)
{
	size_t bytes = strcspn(name, "@");
	const char *dot = memchr(name, '.', bytes);

	if (dot && dot != name)
		bytes = (size_t)(dot - name);
	for (size_t i = 0; i < count; i++)
		if (name_matches(patterns[i], name, bytes))
			return 1;
	return 0;
}

enum library_part library_function(const char *name, enum short_name_form form)
{
	if (any_matches(allocators, COUNT(allocators), name))
		return LIBRARY_ALLOCATOR;
	if (form == NAME_PARAMETERS && strstr(name, "::operator new"))
		return LIBRARY_ALLOCATOR;
	if (any_matches(insides, COUNT(insides), name))
		return LIBRARY_INSIDE;
	return form == NAME_PLAIN && is_rust(name) ? LIBRARY_INSIDE : LIBRARY_NOT;
}

static bool is_of_glibc(const char *file)
{
	const char *path = file + strspn(file, ".");

	if (path == file || *path != '/')
		return 0;
	for (size_t i = 0; i < COUNT(sources); i++)
		if (begins_with(path + 1, sources[i]))
			return 1;
	return 0;
}

bool library_has_file(const char *file)
{
	const char *name = strrchr(file, '/');

	for (size_t i = 0; i < COUNT(directories); i++)
		if (strstr(file, directories[i]))
			return 1;
	if (is_of_glibc(file))
		return 1;
	name = name ? name + 1 : file;
	for (size_t i = 0; i < COUNT(files); i++)
		if (begins_with(name, files[i]))
			return 1;
	return 0;
}
