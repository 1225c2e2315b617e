/* SPDX-License-Identifier: Apache-2.0 */
/*
 * An extension module for CPython 3.14 without the GIL that does not say that it can do without:
 * its import switches the GIL on. The package has no headers, so the structures are written out.
 */
#include <stdint.h>

struct object {
	uintptr_t thread;
	uint16_t flags;
	uint8_t mutex, gc_bits;
	uint32_t local_count;
	int64_t shared_count;
	void *type;
};

static struct {
	struct object head;
	void *init;
	int64_t index;
	void *copy;
	const char *name, *doc;
	int64_t size;
	void *methods, *slots, *traverse, *clear, *free;
} module = {.head = {.local_count = UINT32_MAX}, .name = "gil_on", .size = -1};

void *PyModule_Create2(void *definition, int api);

void *PyInit_gil_on(void)
{
	return PyModule_Create2(&module, 1013);
}
