/* SPDX-License-Identifier: Apache-2.0 */
/* The pool that the documents' --alloc names. */
#include <stdlib.h>

void *pool_get(void *pool, size_t bytes);
void pool_put(void *pool, void *block);

void *pool_get(void *pool, size_t bytes)
{
	(void)pool;
	return malloc(bytes);
}

void pool_put(void *pool, void *block)
{
	(void)pool;
	free(block);
}
