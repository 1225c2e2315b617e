/* SPDX-License-Identifier: GPL-2.0 OR Apache-2.0 */
/*
 * The allocator's events. A request that is made of others (PyObject_Malloc of more than 512 bytes
 * asks the raw allocator; a realloc allocates, copies and frees) counts once: as the outermost one.
 *
 * A block is reported when it is known (at the return of the request), a free before it is done,
 * and a realloc in two steps, because its old address may be another thread's before it returns.
 */
#include "heap.h"
#include "python_stack.h"
#include "registers.h"
#include "sample.h"

char LICENSE[] SEC("license") = "GPL";

/*
 * Tail-called helpers of one request share its stack pointer; more than this many and the return
 * was lost.
 */
#define MAX_NESTED_EQUAL 4

#define EFLAGS_CARRY 0x01
#define EFLAGS_ZERO  0x40

/*
 * Of a session: is this the return? The kernel names the address of the probe at both ends, and at
 * the return the program counter is the caller's. (bpf_session_is_return() would tell, too, but has
 * another prototype from 7.0 on.)
 */
static __always_inline int session_is_return(struct pt_regs *regs)
{
	return bpf_get_func_ip(regs) != regs->rip;
}

/* Deeper in the stack than this no allocator asks another. */
#define NESTED_BYTES_MAX (64u << 10)
/*
 * Of the kernel's, 2 to 20 seconds: no request takes as long, and if one does, what it asks for
 * counts by itself.
 */
#define REQUEST_TICKS_MAX 2048u

enum request_state { REQUEST_GOES_ON, REQUEST_LEFT, REQUEST_THREW };

static __always_inline __u64 trampoline_find(struct thread_state *thread)
{
	struct task_struct *task = (void *)bpf_get_current_task_btf();
	struct xol_area *area = NULL;

	if (thread->trampoline || !bpf_core_field_exists(area->vaddr) ||
	    !bpf_core_field_exists(task->mm->uprobes_state))
		return thread->trampoline;
	area = BPF_CORE_READ(task, mm, uprobes_state.xol_area);
	if (area)
		thread->trampoline = BPF_CORE_READ(area, vaddr);
	return thread->trampoline;
}

/*
 * Is the request in progress, of which one with this stack pointer may be a part, still in
 * progress? One whose return never comes (a longjmp, another stack) shows by what lies above it or
 * far below it, by its age, and by its return address, which what is deeper in the stack now has
 * overwritten.
 */
__noinline int request_state(struct thread_state *thread, struct request *request, __u64 sp)
{
	__u64 address;

	if (!thread || !request)
		return REQUEST_LEFT;
	address = request->by_return ? trampoline_find(thread) : request->caller;
	if (address && user_u64(request->sp) != address)
		return request->throws ? REQUEST_THREW : REQUEST_LEFT;
	if (sp > request->sp || request->sp - sp > NESTED_BYTES_MAX ||
	    (__u32)bpf_jiffies64() - request->tick > REQUEST_TICKS_MAX)
		return REQUEST_LEFT;
	return REQUEST_GOES_ON;
}

/*
 * Does a request with this stack pointer belong to one in progress? One that was left is given up,
 * and counted.
 */
static __always_inline int request_is_nested(struct thread_state *thread, struct request *request,
					     __u64 sp)
{
	int state;

	if (!request->sp)
		return 0;
	state = request_state(thread, request, sp);
	if (state == REQUEST_GOES_ON &&
	    (sp < request->sp || request->nested_equal++ < MAX_NESTED_EQUAL))
		return 1;
	request->sp = 0;
	if (state != REQUEST_THREW)
		loss_add(LOSS_RETURN, 1);
	return 0;
}

/* by_return: it has a return probe; caller: where not, its return address, 0: not known. */
static __always_inline void request_start(struct request *request, __u64 sp, int by_return,
					  __u64 caller)
{
	request->nested_equal = 0;
	request->by_return = by_return;
	request->caller = caller;
	request->throws = 0;
	request->tick = (__u32)bpf_jiffies64();
	request->sp = sp;
}

static __always_inline void end_output(struct thread_state *thread, __u32 type, __u64 address,
				       __u32 domain, __u32 api)
{
	struct event_free *record = block_reserve(thread, sizeof(*record));

	if (!record) {
		loss_add(type == EVENT_FREE ? LOSS_FREE : LOSS_REALLOC, 1);
		return;
	}
	header_fill_block(thread, &record->header, type, sizeof(*record));
	record->address = address;
	record->domain = domain;
	record->api = api;
	bpf_ringbuf_submit(record, RING_FLAGS);
}

/*
 * EVENT_FREE or EVENT_REALLOC. Returns 0 where nobody wants to know: the block was none of the
 * sample.
 */
__noinline int free_output(struct thread_state *thread, __u32 type, __u64 address, __u32 domain,
			   __u32 api)
{
	if (!thread || !sample_end(&thread->target, address, domain, api))
		return 0;
	end_output(thread, type, address, domain, api);
	return 1;
}

__noinline int realloc_fail_output(struct thread_state *thread, __u64 address, __u32 api)
{
	if (!thread)
		return 0;
	sample_add(&thread->target, address, 0, api);
	end_output(thread, EVENT_REALLOC_FAIL, address, 0, api);
	return 0;
}

/*
 * Is thread->block, of a process of which a sample is taken, in the sample? If not, another that
 * was may have lain there.
 */
__noinline int block_sample(struct thread_state *thread)
{
	const struct block *block;

	if (!thread)
		return 0;
	block = &thread->block;
	if (!sample_draw(thread, block->bytes)) {
		free_output(thread, EVENT_FREE, block->address, block->domain, block->api);
		return 0;
	}
	sample_add(&thread->target, block->address, block->domain, block->api);
	return 1;
}

static __always_inline int block_is_wanted(struct thread_state *thread)
{
	return !sample_is_taken(&thread->target) || block_sample(thread);
}

/* A record that there is no room for is counted. */
static __always_inline void block_output(struct thread_state *thread)
{
	struct event_alloc *record = block_reserve(thread, sizeof(*record));
	const struct block *block = &thread->block;

	if (!record) {
		loss_add(block->type == EVENT_ALLOC   ? LOSS_ALLOC
			 : block->type == EVENT_REUSE ? LOSS_REUSE
						      : LOSS_REALLOC,
			 1);
		loss_add(LOSS_ALLOC_BYTES, block->bytes);
		return;
	}
	header_fill_block(thread, &record->header, block->type, sizeof(*record));
	record->address = block->address;
	record->bytes = block->bytes;
	record->stack_id = block->stack_id;
	record->domain = block->domain;
	record->api = block->api;
	bpf_ringbuf_submit(record, RING_FLAGS);
}

/* Reports thread->block, one of Python's: all of it but its stack is known. */
__noinline int block_trace(struct thread_state *thread)
{
	__u32 face;

	if (!thread)
		return 0;
	face = thread->block.api & EVENT_API_MASK;
	if (thread->block.type != EVENT_REUSE) {
		birth_note(thread->block.address, thread->block.bytes);
		if (!block_is_wanted(thread))
			return 0;
	}
	thread->block.stack_id = stack_id_current(
		thread, face == EVENT_API_MEM || face == EVENT_API_OBJ || face == EVENT_API_POOL);
	block_output(thread);
	return 0;
}

static __always_inline void alloc_output(struct thread_state *thread, __u32 type, __u64 address,
					 __u64 bytes, __u32 domain, __u32 api)
{
	thread->block = (struct block){
		.type = type, .address = address, .bytes = bytes, .domain = domain, .api = api};
	block_trace(thread);
}

#include "memory.h"

static __always_inline __s64 addend(__u64 cookie)
{
	return (__s16)(cookie >> 40);
}

/*
 * struct pool_header, the same in every version; a pool's blocks are of one size class, multiples
 * of 16 bytes.
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
 * The page is resident: the code that is probed has just read or is about to write it. 0 should it
 * not be.
 */
static __always_inline __u64 pool_first_free(__u64 pool)
{
	return user_u64(pool + POOL_FREEBLOCK);
}

/* Does what was called with that stack pointer at its entry return to the object allocator? */
static __always_inline int is_object_code(const struct abi_target *target, __u64 sp)
{
	__u64 to;
	int found = 0;

	if (!target->object_code[0].bytes)
		return 0;
	to = user_u64(sp);
	for (int i = 0; i < ABI_OBJECT_CODES; i++)
		found |= to - target->object_code[i].start < target->object_code[i].bytes;
	return found;
}

/*
 * An allocation request starts, with the stack pointer sp at the entry of the function that will
 * return. 0: its return is wanted; 1: it is not.
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
	else if (thread->python.api == EVENT_API_RAW && is_object_code(target, sp))
		thread->python.api = EVENT_API_LARGE;
	thread->last_free = 0;
	/* Of a call that is about to be made the return address is not on the stack yet. */
	request_start(&thread->python, sp, sp == regs->rsp, 0);
	/* Of a block that is not in the sample it is an allocation like any other. */
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
	if (!thread || !thread->python.sp || regs->rsp != thread->python.sp + 8)
		return 0;
	thread->python.sp = 0;
	/*
	 * What it returns is a block of the pool: any of them if that had blocks of this class
	 * before.
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

/* uprobe.session: entry and return in one program; a nested request plants no return probe. */
SEC("uprobe")
int request_session(struct pt_regs *regs)
{
	if (session_is_return(regs))
		return request_end(regs, regs->rax);
	return request_begin(regs, regs, regs->rsp);
}

/* The same on kernels without sessions. */
SEC("uprobe")
int request_entry(struct pt_regs *regs)
{
	request_begin(regs, regs, regs->rsp);
	return 0;
}

SEC("uprobe")
int request_return(struct pt_regs *regs)
{
	return request_end(regs, regs->rax);
}

/*
 * One free may pass several of these: a debugging hook frees the block that begins before bytes
 * earlier, and the object allocator passes a large block on to the raw one.
 */
static __always_inline void block_free(struct thread_state *thread, __u64 address, __u32 api,
				       __u32 before)
{
	if (!address)
		return;
	if (before) {
		/* The hook of the objects calls that of the raw blocks, with the same block. */
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

/* A pool gives a block. address 0: which one is not known. */
static __always_inline void block_give(struct thread_state *thread, __u64 address, __u64 bytes,
				       __u32 api)
{
	thread->last_free = 0;
	thread->last_block = address;
	thread->last_bytes = bytes;
	if (!address)
		loss_add(LOSS_ALLOC, 1);
	else
		alloc_output(thread, EVENT_ALLOC, address, bytes, 0, api);
}

/*
 * An inlined copy of pymalloc finds its pool. The zero flag tells whether it is empty: then the
 * size is kept for the function that is about to be called; else the block is known before it is
 * taken.
 */
static __always_inline void pool_use(struct pt_regs *regs, struct thread_state *thread,
				     __u64 cookie)
{
	__u64 pool = argument(regs, cookie, 0), address;
	__u64 bytes = argument(regs, cookie, 1) + addend(cookie);
	__u32 api = cookie >> 8 & 0xff;

	if (regs->eflags & EFLAGS_ZERO) {
		thread->refill_bytes = bytes;
		/*
		 * What a copy that makes pools itself asks for meanwhile, for its arenas, is no
		 * request of the program's.
		 */
		if ((cookie >> 32 & 0xff) != ABI_REG_COUNT)
			request_start(&thread->python, regs->rsp, 0, 0);
		return;
	}
	address = pool_first_free(pool);
	if (!bytes) {
		bytes = pool_class_bytes(pool);
		api |= EVENT_API_ROUNDED;
	}
	block_give(thread, address, bytes, api);
}

/*
 * A pool that has served the same class before goes on with its free list, another one begins anew.
 */
static __always_inline void pool_use_first(struct pt_regs *regs, struct thread_state *thread,
					   __u64 cookie)
{
	__u64 pool = argument(regs, cookie, 0), bytes = thread->refill_bytes;
	__u64 class_bytes = (bytes + EVENT_BLOCK_STEP - 1) & ~(EVENT_BLOCK_STEP - 1ull);
	__u64 address = pool + EVENT_POOL_HEADER_BYTES;

	if (thread->python.sp != regs->rsp)
		return;
	thread->python.sp = 0;
	if (!bytes)
		return;
	if (pool_class_bytes(pool) == class_bytes)
		address = pool_first_free(pool);
	thread->refill_bytes = 0;
	block_give(thread, address, bytes, cookie >> 8 & 0xff);
}

/* A realloc has compared the size with what was asked for, or the other way round. */
static __always_inline int block_stays(const struct pt_regs *regs, __u64 cookie)
{
	return addend(cookie) ? !(regs->eflags & (EFLAGS_CARRY | EFLAGS_ZERO))
			      : !!(regs->eflags & EFLAGS_CARRY);
}

/*
 * In inlined copies of the allocator there is no function to return from: a request begins at the
 * call into libc and ends behind it.
 */
SEC("uprobe")
int inline_site(struct pt_regs *regs)
{
	struct thread_state *thread = thread_in_layer(EVENT_LAYER_PYTHON);
	__u64 cookie;

	if (!thread)
		return 0;
	cookie = bpf_get_attach_cookie(regs);
	switch (cookie & 0xff) {
	case ABI_OP_POOL:
		if (!request_is_nested(thread, &thread->python, regs->rsp))
			pool_use(regs, thread, cookie);
		break;
	case ABI_OP_FIRST_BLOCK:
		pool_use_first(regs, thread, cookie);
		break;
	case ABI_OP_RESIZE:
		if (block_stays(regs, cookie) &&
		    !request_is_nested(thread, &thread->python, regs->rsp)) {
			__u64 block = argument(regs, cookie, 0);
			__u32 api = cookie >> 8 & 0xff;

			__u32 type = free_output(thread, EVENT_REALLOC, block, 0, api)
					     ? EVENT_REALLOC_DONE
					     : EVENT_ALLOC;

			/*
			 * An object that begins in there next was resized, as a str is: its block
			 * is this one.
			 */
			thread->last_block = block;
			thread->last_bytes = argument(regs, cookie, 1);
			alloc_output(thread, type, block, thread->last_bytes, 0, api);
		}
		break;
	case ABI_OP_NEW_POOL:
		alloc_output(thread, EVENT_ALLOC,
			     argument(regs, cookie, 0) + EVENT_POOL_HEADER_BYTES,
			     1ull << (addend(cookie) & 63), 0, EVENT_API_POOL);
		break;
	case ABI_OP_END:
		request_end(regs, argument(regs, cookie, 0));
		break;
	default:
		/* The call will push the return address. */
		request_begin(regs, regs, regs->rsp - 8);
	}
	return 0;
}

/* What needs no return: frees, and what extension modules report of their own memory. */
SEC("uprobe")
int request_once(struct pt_regs *regs)
{
	struct thread_state *thread = thread_in_layer(EVENT_LAYER_PYTHON);
	__u64 cookie, sp = regs->rsp;
	__u32 api;

	if (!thread)
		return 0;
	cookie = bpf_get_attach_cookie(regs);
	api = cookie >> 8 & 0xff;
	switch (cookie & 0xff) {
	case ABI_OP_FREE:
		if (!request_is_nested(thread, &thread->python, sp))
			block_free(thread, argument(regs, cookie, 0), api, addend(cookie));
		break;
	case ABI_OP_POOL_FREE:
		if (!request_is_nested(thread, &thread->python, sp))
			block_free(thread, pool_first_free(argument(regs, cookie, 0)), api, 0);
		break;
	case ABI_OP_TRACK:
		alloc_output(thread, EVENT_ALLOC, argument(regs, cookie, 1),
			     argument(regs, cookie, 2), (__u32)argument(regs, cookie, 0), api);
		break;
	case ABI_OP_UNTRACK:
		free_output(thread, EVENT_FREE, argument(regs, cookie, 1),
			    (__u32)argument(regs, cookie, 0), api);
		break;
	}
	return 0;
}

/*
 * What a probe costs that does nothing: the limit that the others are measured against
 * (tools/bare.c).
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
 * Every object that begins to live passes here. CPython keeps dead objects of some types on free
 * lists and takes them again without asking its allocator: their block has a new owner, as
 * tracemalloc has it too (_PyTraceMalloc_NewReference).
 */
SEC("uprobe")
int object_begin(struct pt_regs *regs)
{
	struct thread_state *thread = thread_in_layer(EVENT_LAYER_PYTHON);
	__u64 cookie, object;

	if (!thread)
		return 0;
	cookie = bpf_get_attach_cookie(regs);
	object = argument(regs, cookie, 0) + addend(cookie);
	if (object - thread->last_block < thread->last_bytes)
		/* Once: what begins in there again was on a free list meanwhile. */
		thread->last_bytes = 0;
	else if (sample_has_object(&thread->target, object))
		alloc_output(thread, EVENT_REUSE, object, 0, 0, EVENT_API_OBJ);
	return 0;
}

/*
 * The interpreter begins to shut down: what is live from here on is being torn down. There are
 * several of these probes, one instruction after the other, which read the heap piece by piece; the
 * last one has an addend.
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

#include "process.h"
