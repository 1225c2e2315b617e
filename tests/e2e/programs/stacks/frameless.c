// SPDX-License-Identifier: Apache-2.0
/*
 * A thread that calls Python's API, and through it malloc, without a Python frame. Its own
 * functions are called allocate(), enter() and begin().
 */
#include <pthread.h>
#include <stddef.h>

int PyGILState_Ensure(void);
void PyGILState_Release(int state);
void *PyByteArray_FromStringAndSize(const char *text, ptrdiff_t bytes);

static __attribute__((noinline)) int allocate(ptrdiff_t bytes)
{
	return !PyByteArray_FromStringAndSize(NULL, bytes);
}

static __attribute__((noinline)) int enter(ptrdiff_t bytes)
{
	int state = PyGILState_Ensure();
	int err = allocate(bytes);

	PyGILState_Release(state);
	return err;
}

static void *begin(void *bytes)
{
	return (void *)(long)enter(*(ptrdiff_t *)bytes);
}

/* The block is leaked. 0: it was allocated. */
int in_thread(ptrdiff_t bytes)
{
	void *result = (void *)1;
	pthread_t thread;

	if (pthread_create(&thread, NULL, begin, &bytes) || pthread_join(thread, &result))
		return 1;
	return result != NULL;
}
