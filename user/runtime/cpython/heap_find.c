/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>

#include "proc/memory.h"
#include "runtime/cpython/heap.h"
#include "runtime/cpython/heap_place.h"
#include "util/error.h"

#define TRIAL_POOLS 64u /* pools that are read to test a heap */

/* Readable and unreadable pools among the first pools of a heap. */
struct layout_trial {
	uint32_t good, bad;
};

static int pool_try(const struct heap_pool *pool, void *context)
{
	struct layout_trial *trial = context;

	trial->good += pool->block_bytes != 0;
	trial->bad += !pool->block_bytes;
	return trial->good + trial->bad >= TRIAL_POOLS;
}

int heap_find(const struct python_runtime *runtime)
{
	struct abi_heap described;
	struct heap_walk walk;
	struct layout_trial trial = {0};
	uint64_t interpreters = 0;
	int err = runtime_read_u64(
		runtime, runtime->target.runtime + runtime->offsets->abi.runtime_interpreters_head,
		&interpreters);

	/* -EFAULT: its library is not loaded yet. */
	if (err == -EFAULT || (!err && !interpreters))
		return runtime->offsets->build == BUILD_FREE_THREADED
			       ? 0
			       : heap_describe(runtime, &described);
	if (!err)
		err = heap_read_pools(runtime, pool_try, &trial, &walk);
	if (!err && trial.bad > trial.good)
		return error_set(-ENOTSUP,
				 "the memory where its heap's pools should be holds no pools");
	if (err == -EFAULT)
		return error_set(-ENOTSUP, "the memory where its heap should be cannot be read");
	return err == -EAGAIN || err == -ENODATA ? 0 : err;
}
