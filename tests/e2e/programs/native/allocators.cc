/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Asks whatever allocator it has for blocks, by every function of that, and says what it keeps:
 * {"kept": [bytes, blocks]}. Its operator new fails now and then, and is caught; mimalloc's,
 * compiled as C, would abort ("nofail").
 */
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <dlfcn.h>
#include <malloc.h>
#include <new>

struct alignas(64) wide {
	char bytes[64];
};

static void *volatile kept[200000]; /* volatile, or the compiler drops what nobody reads */
static size_t count, bytes;

static void keep(void *block, size_t size)
{
	if (!block)
		abort();
	kept[count++] = block;
	bytes += size;
}

static void deeper(int depth, size_t size)
{
	volatile char frame[256];

	frame[0] = (char)depth;
	if (depth)
		deeper(depth - 1, size);
	else
		keep(::operator new(size), size);
	frame[1] = frame[0];
}

template <typename function> static function *find(const char *name)
{
	return reinterpret_cast<function *>(dlsym(RTLD_DEFAULT, name));
}

static void c(size_t i)
{
	void *block;

	keep(malloc(i), i);
	keep(calloc(3, i), 3 * i);
	keep(realloc(malloc(i), 2 * i + 5), 2 * i + 5);
	keep(realloc(malloc(9 * i + 1), i), i);
	keep(reallocarray(malloc(1), 3, i), 3 * i);
	if (posix_memalign(&block, 64, i))
		abort();
	keep(block, i);
	if (posix_memalign(&block, 3, i) == 0)
		abort();
	keep(aligned_alloc(32, 32 * i), 32 * i);
	keep(memalign(128, i), i);
	keep(valloc(i), i);
	free(malloc(i));
	free(calloc(i, 2));
	free(nullptr);
}

static void cxx(size_t i, bool fails)
{
	keep(::operator new(i), i);
	keep(::operator new[](i), i);
	keep(::operator new(i, std::nothrow), i);
	keep(::operator new[](i, std::nothrow), i);
	keep(new wide, sizeof(wide));
	keep(::operator new[](i, std::align_val_t(64), std::nothrow), i);
	::operator delete(::operator new(i), i);
	::operator delete[](::operator new[](i));
	::operator delete(::operator new(i, std::align_val_t(64)), i, std::align_val_t(64));
	delete new wide;
	if (!fails)
		return;
	try {
		keep(::operator new(SIZE_MAX / 4), 0);
	} catch (const std::bad_alloc &) {
		deeper(3, i);
	}
	deeper(20, i);
	if (::operator new(SIZE_MAX / 4, std::nothrow))
		abort();
}

static void jemalloc(size_t i)
{
	static auto *mallocx = find<void *(size_t, int)>("mallocx");
	static auto *rallocx = find<void *(void *, size_t, int)>("rallocx");
	static auto *xallocx = find<size_t(void *, size_t, size_t, int)>("xallocx");
	static auto *dallocx = find<void(void *, int)>("dallocx");
	static auto *sdallocx = find<void(void *, size_t, int)>("sdallocx");
	void *block;

	if (!mallocx)
		return;
	keep(mallocx(i, 0), i);
	keep(rallocx(mallocx(i, 0), 3 * i, 0), 3 * i);
	block = mallocx(i, 0);
	keep(block,
	     /* what was asked for, if that could be had */
	     xallocx(block, i + 1, 0, 0) > i ? i + 1 : i);
	dallocx(mallocx(i, 0), 0);
	sdallocx(mallocx(i, 0), i, 0);
}

static void mimalloc(size_t i)
{
	static auto *backing = find<void *()>("mi_heap_get_backing");

	if (!backing)
		return;
	void *heap = backing();

	keep(find<void *(size_t)>("mi_malloc")(i), i);
	keep(find<void *(size_t)>("mi_zalloc")(i), i);
	keep(find<void *(size_t)>("mi_malloc_small")(i % 1000), i % 1000);
	keep(find<void *(size_t, size_t)>("mi_mallocn")(2, i), 2 * i);
	keep(find<void *(void *, size_t, size_t)>("mi_reallocn")(nullptr, 2, i), 2 * i);
	keep(find<void *(void *, size_t, size_t)>("mi_recalloc")(malloc(3), 2, i), 2 * i);
	keep(find<void *(void *, size_t)>("mi_rezalloc")(calloc(1, 3), i), i);
	keep(find<void *(size_t, size_t)>("mi_malloc_aligned")(i, 64), i);
	keep(find<void *(size_t, size_t, size_t)>("mi_calloc_aligned")(2, i, 64), 2 * i);
	keep(find<void *(void *, size_t, size_t)>("mi_realloc_aligned")(malloc(1), i, 64), i);
	keep(find<void *(size_t, size_t)>("mi_new_n")(2, i), 2 * i);
	keep(find<void *(void *, size_t)>("mi_new_realloc")(malloc(1), i), i);
	keep(find<void *(void *, size_t)>("mi_heap_malloc")(heap, i), i);
	keep(find<void *(void *, size_t, size_t)>("mi_heap_calloc")(heap, 2, i), 2 * i);
	keep(find<void *(void *, void *, size_t)>("mi_heap_realloc")(heap, malloc(1), i), i);
	keep(find<void *(void *, void *, size_t, size_t)>("mi_heap_recalloc")(heap, malloc(1), 2,
									      i),
	     2 * i);
	keep(find<void *(void *, size_t, size_t)>("mi_heap_malloc_aligned")(heap, i, 64), i);
	find<void(void *, size_t)>("mi_free_size")(malloc(i), i);
	find<void(void *)>("mi_free")(malloc(i));
}

static void tcmalloc(size_t i)
{
	static auto *make = find<void *(size_t)>("tc_new");

	if (!make)
		return;
	keep(make(i), i);
	keep(find<void *(size_t)>("tc_malloc_skip_new_handler")(i), i);
	find<void(void *, size_t)>("tc_delete_sized")(make(i), i);
}

int main(int argc, char **argv)
{
	bool fails = argc < 2 || !strstr(argv[1], "nofail");
	char line[64];

	setvbuf(stdout, nullptr, _IONBF, 0); /* no block of stdio's */
	setvbuf(stdin, nullptr, _IONBF, 0);
	/* What dlsym() does not find costs it blocks of its own: before anybody looks. */
	jemalloc(1);
	mimalloc(1);
	tcmalloc(1);
	count = bytes = 0;
	puts("ready");
	if (!fgets(line, sizeof(line), stdin))
		return 1;
	for (size_t i = 1; i < 6000; i += 13) {
		c(i);
		cxx(i, fails && i % 5 == 0);
		jemalloc(i);
		mimalloc(i);
		tcmalloc(i);
	}
	printf("{\"kept\": [%zu, %zu]}\n", bytes, count);
	return !fgets(line, sizeof(line), stdin);
}
