/* SPDX-License-Identifier: GPL-2.0 OR Apache-2.0 */
/*
 * The events of Python's allocators. A request that makes other requests (PyObject_Malloc of more
 * than 512 bytes calls the raw allocator; a realloc allocates, copies and frees) counts once, as
 * the outermost one (request.h).
 *
 * An allocation is reported when the request returns, since the address is known only then. A free
 * is reported before it is done. A realloc is reported in two steps, because its old address may
 * be handed to another thread before it returns.
 */
#include "block.h"
#include "fault.h"
#include "memory.h"
#include "process.h"
#include "python/heap.h"
#include "registers.h"
#include "request.h"
#include "usdt.h"

char LICENSE[] SEC("license") = "GPL";

/*
 * Offsets in struct pool_header, the same in every version. A pool's blocks are of one size class,
 * a multiple of 16 bytes.
 */
#define POOL_FREEBLOCK 8
#define POOL_SZIDX     36

static __always_inline __u64 pool_class_bytes(__u64 pool)
{
	__u32 index = 0;

	if (bpf_probe_read_user(&index, sizeof(index), (void *)(pool + POOL_SZIDX)))
		return 0;
	return ((__u64)index + 1) * 16;
}

/*
 * The pool's first free block. The page is resident, since the probed code has just read it or is
 * about to write it; 0 if it is not.
 */
static __always_inline __u64 pool_first_free(__u64 pool)
{
	return user_u64(pool + POOL_FREEBLOCK);
}

static __always_inline __u64 return_address(struct pt_regs *regs UNUSED, __u64 sp UNUSED)
{
	return RETURN_IS_PUSHED ? user_u64(sp) : REG_CALLER(regs);
}

/* Does the function that has this stack pointer at its entry return to the object allocator? */
static __always_inline int is_object_code(struct pt_regs *regs UNUSED,
					  const struct abi_target *target, __u64 sp)
{
	__u64 to;
	int found = 0;

	if (!target->object_code[0].bytes)
		return 0;
	to = return_address(regs, sp);
	for (int i = 0; i < ABI_OBJECT_CODES; i++)
		found |= to - target->object_code[i].start < target->object_code[i].bytes;
	return found;
}

/* A request for a record of tracemalloc's own: the block is in no line, and is not reported. */
#define API_RECORD 0xffu

/* Is that the return address of one of tracemalloc's calls for its records? */
static __always_inline int is_record(const struct thread_state *thread, __u64 to)
{
	to -= thread->target.record_base;
	for (int i = 0; i < ABI_RECORD_CALLS && to; i++)
		if (to == thread->target.record_calls[i])
			return 1;
	return 0;
}

__noinline int request_judge(struct thread_state *thread, __u64 to)
{
	if (!thread || (thread->python.api & EVENT_API_MASK) != EVENT_API_RAW ||
	    !is_record(thread, to))
		return 0;
	thread->python.api = API_RECORD;
	thread->python.old_address = 0;
	return 0;
}

/*
 * The free of a record is not reported, nor is that of the block in which a debugging hook has put
 * it (0: there is no hook).
 */
__noinline int record_free(struct thread_state *thread, __u64 to, __u64 hooked)
{
	if (!thread || !is_record(thread, to))
		return 0;
	thread->last_free = hooked;
	thread->last_hooked = hooked != 0;
	return 1;
}

/*
 * An allocation request begins. sp is the stack pointer at the entry of the function that will
 * return. 0: its return must be traced; 1: not.
 */
static __always_inline int request_begin(struct pt_regs *regs, void *context, __u64 sp)
{
	struct thread_state *thread = thread_in_layer(EVENT_LAYER_PYTHON);
	struct abi_target *target;
	__u64 cookie;

	if (!thread || request_is_nested(thread, &thread->python, sp))
		return 1;
	target = &thread->target;
	cookie = bpf_get_attach_cookie(context);
	thread->python.old_address = 0;
	thread->pool_bits = 0;
	switch (cookie & 0xff) {
	case ABI_OP_MALLOC:
		thread->python.bytes = argument(regs, cookie, 0);
		break;
	case ABI_OP_CALLOC:
		thread->python.bytes = argument(regs, cookie, 0) * argument(regs, cookie, 1);
		break;
	case ABI_OP_REALLOC:
		thread->python.old_address = argument(regs, cookie, 0);
		thread->python.bytes = argument(regs, cookie, 1);
		break;
	case ABI_OP_REFILL:
		thread->python.bytes = thread->refill_bytes;
		thread->refill_bytes = 0;
		thread->pool_bits = addend(cookie);
		break;
	case ABI_OP_NEW_POOL:
		thread->pool_bits = addend(cookie);
		thread->python.bytes = 1ull << (thread->pool_bits & 63);
		break;
	default:
		return 1;
	}
	thread->python.api = cookie >> 8 & 0xff;
	if (!thread->pool_bits && addend(cookie))
		thread->python.api |= EVENT_API_HOOKED;
	else if (thread->python.api == EVENT_API_RAW && is_object_code(regs, target, sp))
		thread->python.api = EVENT_API_LARGE;
	request_judge(thread, return_address(regs, sp));
	thread->last_free = 0;
	/* At a call instruction the return address is not on the stack yet. */
	if (sp == REG_SP(regs) && request_is_barred()) {
		if (thread->python.old_address)
			free_output(thread, EVENT_FREE, thread->python.old_address, 0,
				    thread->python.api);
		return 1;
	}
	request_start(&thread->python, sp, sp == REG_SP(regs), 0);
	/* The realloc of a block outside the sample is traced as an allocation. */
	if (thread->python.old_address &&
	    !free_output(thread, EVENT_REALLOC, thread->python.old_address, 0, thread->python.api))
		thread->python.old_address = 0;
	return 0;
}

static __always_inline int request_end(struct pt_regs *regs, __u64 address)
{
	struct thread_state *thread = thread_in_layer(EVENT_LAYER_PYTHON);
	__u32 rounded = 0;

	/* The return has popped the return address. */
	if (!thread || !thread->python.sp || REG_SP(regs) != thread->python.sp + RETURN_BYTES)
		return 0;
	thread->python.sp = 0;
	if (thread->python.api == API_RECORD)
		return 0;
	/*
	 * It returns a block of the pool, but not always the first one: a pool that had blocks of
	 * this class before returns the head of its free list.
	 */
	if (thread->python.api == EVENT_API_POOL && address)
		address = (address & ~(thread->python.bytes - 1)) + EVENT_POOL_HEADER_BYTES;
	if (thread->pool_bits && !thread->python.bytes && address) {
		thread->python.bytes =
			pool_class_bytes(address & ~((1ull << (thread->pool_bits & 63)) - 1));
		rounded = EVENT_API_ROUNDED;
	}
	thread->last_block = address;
	thread->last_bytes = thread->python.bytes;
	if (address)
		alloc_output(thread, thread->python.old_address ? EVENT_REALLOC_DONE : EVENT_ALLOC,
			     address, thread->python.bytes, 0, thread->python.api | rounded);
	else if (thread->python.old_address)
		realloc_fail_output(thread, thread->python.old_address, thread->python.api);
	return 0;
}

/* uprobe.session: entry and return in one program; a nested request sets no return probe. */
SEC("uprobe")
int request_session(struct pt_regs *regs)
{
	if (session_is_return(regs))
		return request_end(regs, REG_RESULT(regs));
	return request_begin(regs, regs, REG_SP(regs));
}

/* The same on kernels without sessions. */
SEC("uprobe")
int request_entry(struct pt_regs *regs)
{
	request_begin(regs, regs, REG_SP(regs));
	return 0;
}

SEC("uprobe")
int request_return(struct pt_regs *regs)
{
	return request_end(regs, REG_RESULT(regs));
}

/*
 * One free may pass several probed functions: a debugging hook frees the block that begins `before`
 * bytes earlier, and the object allocator passes a large block on to the raw allocator.
 */
static __always_inline void block_free(struct thread_state *thread, __u64 address, __u32 api,
				       __u32 before)
{
	if (!address)
		return;
	if (before) {
		/* The object hook calls the raw allocator's hook with the same block. */
		if (thread->last_hooked && address - before == thread->last_free)
			return;
		thread->last_free = address - before;
		thread->last_hooked = 1;
	} else {
		if (address == thread->last_free && (api == EVENT_API_RAW || thread->last_hooked)) {
			thread->last_hooked = 0;
			if (api == EVENT_API_RAW)
				thread->last_free = 0;
			return;
		}
		thread->last_free = api == EVENT_API_RAW ? 0 : address;
		thread->last_hooked = 0;
	}
	free_output(thread, EVENT_FREE, address, 0, api | (before ? EVENT_API_HOOKED : 0));
}

/* A pool hands out a block. address 0: the block could not be read; it is counted as lost. */
static __always_inline void pool_block_output(struct thread_state *thread, __u64 address,
					      __u64 bytes, __u32 api)
{
	thread->last_free = 0;
	thread->last_block = address;
	thread->last_bytes = bytes;
	if (address) {
		alloc_output(thread, EVENT_ALLOC, address, bytes, 0, api);
		return;
	}
	loss_add(LOSS_ALLOC, 1);
	last_allocator_forget();
}

/*
 * An inlined copy of pymalloc has found its pool. If the zero flag is set, the pool is empty, and
 * the size is kept for the refill function that is called next. Otherwise the block is the pool's
 * first free one, which has not been taken yet.
 */
static __always_inline void pool_use(struct pt_regs *regs, struct thread_state *thread,
				     __u64 cookie)
{
	__u64 pool = argument(regs, cookie, 0), address;
	__u64 bytes = argument(regs, cookie, 1) + addend(cookie);
	__u32 api = cookie >> 8 & 0xff;

	if (REG_IS_EQUAL(regs)) {
		thread->refill_bytes = bytes;
		/*
		 * A copy that makes pools itself also allocates arenas. Those are not requests of
		 * the program: they are nested in this one.
		 */
		if ((cookie >> 32 & 0xff) != ABI_REG_COUNT)
			request_start(&thread->python, REG_SP(regs), 0, 0);
		return;
	}
	address = pool_first_free(pool);
	if (!bytes) {
		bytes = pool_class_bytes(pool);
		api |= EVENT_API_ROUNDED;
	}
	pool_block_output(thread, address, bytes, api);
}

/*
 * An inlined copy of pymalloc takes a pool into use. A pool that had the same size class before
 * keeps its free list; any other pool hands out its first block.
 */
static __always_inline void pool_use_first(struct pt_regs *regs, struct thread_state *thread,
					   __u64 cookie)
{
	__u64 pool = argument(regs, cookie, 0), bytes = thread->refill_bytes;
	__u64 class_bytes = (bytes + EVENT_BLOCK_STEP - 1) & ~(EVENT_BLOCK_STEP - 1ull);
	__u64 address = pool + EVENT_POOL_HEADER_BYTES;

	if (thread->python.sp != REG_SP(regs))
		return;
	thread->python.sp = 0;
	if (!bytes)
		return;
	if (pool_class_bytes(pool) == class_bytes)
		address = pool_first_free(pool);
	thread->refill_bytes = 0;
	pool_block_output(thread, address, bytes, cookie >> 8 & 0xff);
}

/*
 * Does the realloc keep the block in place? It has compared the block's size with the requested
 * one, or the other way round (with an addend).
 */
static __always_inline int block_stays(const struct pt_regs *regs, __u64 cookie)
{
	return addend(cookie) ? !(REG_IS_BELOW(regs) | REG_IS_EQUAL(regs)) : REG_IS_BELOW(regs);
}

/*
 * Every object that begins to live passes here. CPython keeps dead objects of some types on free
 * lists and reuses them without calling its allocator. Their block is then charged to the new
 * stack, as tracemalloc does (_PyTraceMalloc_NewReference).
 */
static __always_inline void object_begin(struct pt_regs *regs, struct thread_state *thread,
					 __u64 cookie)
{
	__u64 object = argument(regs, cookie, 0) + addend(cookie);

	if (object - thread->last_block < thread->last_bytes)
		/* Only once: the next object that begins in this block comes from a free list. */
		thread->last_bytes = 0;
	else if (sample_has_object(&thread->target, object))
		alloc_output(thread, EVENT_REUSE, object, 0, 0, EVENT_API_OBJ);
}

static __always_inline void block_resize(struct pt_regs *regs, struct thread_state *thread,
					 __u64 cookie)
{
	__u64 block = argument(regs, cookie, 0);
	__u32 api = cookie >> 8 & 0xff;
	__u32 type = free_output(thread, EVENT_REALLOC, block, 0, api) ? EVENT_REALLOC_DONE
								       : EVENT_ALLOC;

	/* If an object begins in this block next, it was resized, as a str is: that is no reuse. */
	thread->last_block = block;
	thread->last_bytes = argument(regs, cookie, 1);
	alloc_output(thread, type, block, thread->last_bytes, 0, api);
}

/* Is the operation one of blocks in pymalloc's pools, or of objects? None is outside windows. */
static __always_inline int op_is_windowed(__u32 op)
{
	return op == ABI_OP_POOL || op == ABI_OP_REFILL || op == ABI_OP_FIRST_BLOCK ||
	       op == ABI_OP_RESIZE || op == ABI_OP_REUSE;
}

/*
 * All places without a return probe: frees, extension modules' reports of their own memory, objects
 * that begin to live, Task.set_name(), and inlined copies of the allocator, which have no function
 * to return from: a request begins at the call into libc and ends after it. They are one program,
 * so that the verifier looks at what they share only once.
 */
SEC("uprobe")
int python_site(struct pt_regs *regs)
{
	struct thread_state *thread = thread_in_layer(EVENT_LAYER_PYTHON);
	__u64 cookie, sp = REG_SP(regs);
	__u32 api;

	if (!thread)
		return 0;
	cookie = bpf_get_attach_cookie(regs);
	api = cookie >> 8 & 0xff;
	if (thread->target.paused && op_is_windowed(cookie & 0xff))
		return 0;
	switch (cookie & 0xff) {
	case ABI_OP_REUSE:
		object_begin(regs, thread, cookie);
		break;
	case ABI_OP_POOL:
		if (!request_is_nested(thread, &thread->python, sp))
			pool_use(regs, thread, cookie);
		break;
	case ABI_OP_FREE:
		if (!request_is_nested(thread, &thread->python, sp) &&
		    !(api == EVENT_API_RAW &&
		      record_free(thread, return_address(regs, sp),
				  addend(cookie) ? argument(regs, cookie, 0) - addend(cookie) : 0)))
			block_free(thread, argument(regs, cookie, 0), api, addend(cookie));
		break;
	case ABI_OP_POOL_FREE:
		if (!request_is_nested(thread, &thread->python, sp))
			block_free(thread, pool_first_free(argument(regs, cookie, 0)), api, 0);
		break;
	case ABI_OP_FIRST_BLOCK:
		pool_use_first(regs, thread, cookie);
		break;
	case ABI_OP_RESIZE:
		if (block_stays(regs, cookie) && !request_is_nested(thread, &thread->python, sp))
			block_resize(regs, thread, cookie);
		break;
	case ABI_OP_NEW_POOL:
		alloc_output(thread, EVENT_ALLOC,
			     argument(regs, cookie, 0) + EVENT_POOL_HEADER_BYTES,
			     1ull << (addend(cookie) & 63), 0, EVENT_API_POOL);
		break;
	case ABI_OP_END:
		request_end(regs, argument(regs, cookie, 0));
		break;
	case ABI_OP_TRACK:
		alloc_output(thread, EVENT_ALLOC, argument(regs, cookie, 1),
			     argument(regs, cookie, 2), (__u32)argument(regs, cookie, 0), api);
		break;
	case ABI_OP_UNTRACK:
		free_output(thread, EVENT_FREE, argument(regs, cookie, 1),
			    (__u32)argument(regs, cookie, 0), api);
		break;
	case ABI_OP_RENAME:
		if (label_is(ABI_LABEL_TASK))
			rename_note(thread, argument(regs, cookie, 1));
		break;
	default:
		/* The call will push the return address. */
		request_begin(regs, regs, sp - RETURN_BYTES);
	}
	return 0;
}

/*
 * Probes that do nothing: their cost is the lower bound that the others are compared with
 * (tools/bench/bare.c).
 */
SEC("uprobe")
int empty_session(void *context UNUSED)
{
	return 0;
}

SEC("uprobe")
int empty(void *context UNUSED)
{
	return 0;
}

/*
 * Which threads bar returns: of the process tgid, of all targets if that is 0. The answer is their
 * number, and the process of the last one in `found`.
 */
struct {
	__u32 tgid, count, found;
} barred;

SEC("iter/task")
int task_look(struct bpf_iter__task *context)
{
	struct task_struct *task = context->task;
	__u32 tgid = task ? task->tgid : 0;

	if (!task || !task_bars_returns(task))
		return 0;
	if (barred.tgid ? tgid != barred.tgid : !bpf_map_lookup_elem(&targets, &tgid))
		return 0;
	barred.count++;
	barred.found = tgid;
	return 0;
}

/*
 * The interpreter begins to shut down: after this, live blocks are being torn down. There are
 * several of these probes, on consecutive instructions. Each walks a piece of the heap; the last
 * one has an addend.
 */
SEC("uprobe")
int finalize(struct pt_regs *regs)
{
	struct abi_target *target = target_current();
	enum heap_result result;
	int is_last;

	if (!target || !(target->layers & 1u << EVENT_LAYER_PYTHON))
		return 0;
	is_last = addend(bpf_get_attach_cookie(regs)) != 0;
	result = heap_read(target, is_last);
	if (result == HEAP_ENDED || (is_last && result == HEAP_NOTHING))
		process_output(EVENT_FINALIZE, bpf_get_current_pid_tgid() >> 32, 0, 0, 0);
	return 0;
}
