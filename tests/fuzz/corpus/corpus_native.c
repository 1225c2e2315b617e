/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A library with allocators of every kind that the planner distinguishes: the initial corpus of
 * make fuzz.
 */
typedef unsigned long size;

void *malloc(size bytes);
void *calloc(size count, size bytes);
void __cxa_throw(void);
void *_Znwm(size bytes);
void *_Znam(size bytes);
void free(void *block);
void _ZdlPv(void *block);

static char heap[1 << 12];

void *malloc(size bytes)
{
	static size used;
	size at = used;

	used += bytes;
	return used < sizeof(heap) ? heap + at : 0;
}

void *_Znwm(size bytes)
{
	void *block = calloc(1, bytes);

	if (!block)
		__cxa_throw();
	return block;
}

void *_Znam(size bytes)
{
	if (bytes > sizeof(heap))
		__cxa_throw();
	return heap + bytes;
}

void _ZdlPv(void *block)
{
	free(block);
}
