/* SPDX-License-Identifier: GPL-2.0 OR Apache-2.0 */
/*
 * malloc and its kin: a layer below Python's allocators, with requests and a table of its own. The
 * rules are theirs: what one request asks of others counts once (operator new asks malloc, calloc
 * may jump to it), as the outermost one's.
 *
 * A request's stack is walked at its return, when the caller's registers are back but for the
 * result: the return address is the caller, and the frame pointer is that of the caller's frame, if
 * it keeps one, or of the next one outwards that does. Code without frame pointers uses that
 * register for anything: so a frame counts only if it lies above the one before, within the size of
 * a stack, and if what it holds follows a call instruction. Where Python runs, native frames end at
 * the interpreter's own, and the thread's Python frames go on.
 */
#ifndef TRACER_BPF_NATIVE_H
#define TRACER_BPF_NATIVE_H

#include "python_stack.h"
#include "registers.h"

#define OUTER_BYTES_MAX 512          /* of stack, between operator new and what it calls */
#define STACK_BYTES_MAX (8ull << 20) /* between two frames */
#define MAIN_BASE_BYTES 1024         /* libc's own frames below main's */
/* a thread's stack begins below its thread-local variables, which end at the fs base */
#define THREAD_BASE_BYTES 8192

/* Does a call end at this address? E8 rel32, or FF /2 in its forms of 2, 3, 4, 6 and 7 bytes. */
static __always_inline int follows_call(struct thread_state *thread, __u64 address)
{
	__u64 *known = &thread->returns[(address ^ address >> 6) & (KNOWN_RETURNS - 1)];
	__u8 code[8];

	if (!address)
		return 0;

	if (*known == address)
		return 1;
	if (bpf_probe_read_user(code, sizeof(code), (void *)(address - sizeof(code))))
		return 0;
	if (code[3] != 0xe8 && !(code[6] == 0xff && (code[7] & 0x38) == 0x10) &&
	    !(code[5] == 0xff && (code[6] & 0x38) == 0x10) &&
	    !(code[4] == 0xff && (code[5] & 0x38) == 0x10) &&
	    !(code[2] == 0xff && (code[3] & 0x38) == 0x10) &&
	    !(code[1] == 0xff && (code[2] & 0x38) == 0x10))
		return 0;
	*known = address;
	return 1;
}

/*
 * From the frame that comes next to the one after it. 0, and the caller; -1: there is no such
 * frame.
 */
__noinline int native_step(struct thread_state *thread)
{
	__u64 pair[2]; /* the next frame pointer, the return address */
	struct native_walk *walk;

	if (!thread)
		return -1;
	walk = &thread->native_walk;
	if (walk->frame & 7 || walk->frame <= walk->below ||
	    walk->frame - walk->below > STACK_BYTES_MAX ||
	    bpf_probe_read_user(pair, sizeof(pair), (void *)walk->frame) ||
	    !follows_call(thread, pair[1]))
		return -1;
	walk->below = walk->frame;
	walk->frame = pair[0];
	walk->caller = pair[1];
	return 0;
}

/*
 * Has a walk that goes no further come to the end of the stack? The ABI has the outermost frame
 * pointer be 0; below main and a thread's first function lie those of libc, which need not keep to
 * it.
 */
static __always_inline int walk_is_complete(const struct native_walk *walk)
{
	struct task_struct *task = (void *)bpf_get_current_task_btf();

	return !walk->frame ||
	       BPF_CORE_READ(task, mm, start_stack) - walk->below < MAIN_BASE_BYTES ||
	       task->thread.fsbase - walk->below < THREAD_BASE_BYTES;
}

static __always_inline void native_frame_append(struct thread_state *thread, __u64 address)
{
	__u32 slot = thread->stack.nframe & (EVENT_MAX_FRAMES - 1);

	thread->frames[slot].code_id = address;
	thread->frames[slot].lasti = 0;
	thread->frames[slot].kind = EVENT_FRAME_NATIVE;
	thread->stack.stack_id = hash_word(thread->stack.stack_id, address);
	thread->stack.nframe++;
}

static __always_inline int in_interpreter(const struct abi_target *target, __u64 address)
{
	return address - target->interpreter_start <
	       target->interpreter_end - target->interpreter_start;
}

struct native_frames_count {
	struct thread_state *thread;
	__u32 count;
	__u32 cut; /* EVENT_STACK_CUT or 0 */
};

static __noinline long native_frames_count_step(__u32 turn UNUSED, void *context)
{
	struct native_frames_count *frames = context;
	struct native_walk *walk = &frames->thread->native_walk;

	if (native_step(frames->thread)) {
		frames->cut = walk_is_complete(walk) ? 0 : EVENT_STACK_CUT;
		return 1;
	}
	if (in_interpreter(&frames->thread->target, walk->caller))
		return 1;
	frames->count++;
	return 0;
}

/*
 * Frames beyond the limit, for the reader's total; counted at first sight only. | EVENT_STACK_CUT
 */
__noinline __u32 native_frames_count(struct thread_state *thread)
{
	struct native_frames_count frames = {.thread = thread};

	if (!thread)
		return 0;
	loop_run(TOTAL_LIMIT, native_frames_count_step, &frames);
	return frames.count | frames.cut;
}

#define FRAMES_A_TURN 8 /* the verifier looks at as many, and not at all that a walk can have */

static __noinline long native_frames_step(__u32 turn UNUSED, void *context)
{
	struct thread_state *thread = *(struct thread_state **)context;
	struct native_walk *walk = &thread->native_walk;
	int i;

	for (i = 0; i < FRAMES_A_TURN; i++) {
		if (thread->stack.nframe >= walk->nframe)
			return 1;
		/*
		 * The return address of Python's own request in progress is the kernel's: it stands
		 * in the interpreter.
		 */
		if (thread->python.sp && walk->frame + 8 == thread->python.sp)
			return 1;
		if (native_step(thread)) {
			/*
			 * Where not even the caller has left a frame pointer, how near the base is
			 * says nothing.
			 */
			if (walk->frame && (thread->stack.nframe == 1 || !walk_is_complete(walk)))
				walk->cut = EVENT_STACK_CUT;
			return 1;
		}
		walk->whole = in_interpreter(&thread->target, walk->caller);
		if (walk->whole)
			return 1;
		native_frame_append(thread, walk->caller);
	}
	return 0;
}

/*
 * The id of the running thread's stack, native and Python: from the return address on, with the
 * frame pointer and the stack pointer that are the caller's again.
 */
__noinline __u64 native_stack_id(struct thread_state *thread, __u64 caller)
{
	struct native_walk *walk;
	__u64 next = 0, id;
	__u32 more = 0;
	int is_new, is_full;

	if (!thread)
		return 0;
	walk = &thread->native_walk;
	walk->nframe =
		thread->target.nframe > EVENT_MAX_FRAMES ? EVENT_MAX_FRAMES : thread->target.nframe;
	walk->cut = 0;
	walk->whole = in_interpreter(&thread->target, caller);
	stack_begin(thread);
	native_frame_append(thread, caller);
	if (!walk->whole)
		loop_run(EVENT_MAX_FRAMES / FRAMES_A_TURN, native_frames_step, &thread);
	is_full = !walk->whole && thread->stack.nframe >= walk->nframe;
	if (thread->target.runtime)
		next = python_frames_any(thread);
	id = stack_end(thread, &is_new);
	if (!is_new)
		return id;
	if (is_full)
		more = native_frames_count(thread);
	stack_emit(thread, next, more | walk->cut);
	return id;
}

/* Reports thread->block; caller and thread->native_walk say where its stack begins. */
__noinline int native_trace(struct thread_state *thread, __u64 caller)
{
	if (!thread || !block_is_wanted(thread))
		return 0;
	thread->block.stack_id = native_stack_id(thread, caller);
	block_output(thread);
	return 0;
}

static __always_inline void native_output(struct pt_regs *regs, struct thread_state *thread,
					  __u32 type, __u64 address, __u64 bytes)
{
	__u64 sp = thread->native.sp, caller = regs->rip;

	/*
	 * Lest the compiler make one load of a computed address of the two, which the verifier does
	 * not allow.
	 */
	asm volatile("" : "+r"(caller));
	/* At a ret the return address is still to be popped. */
	if (regs->rsp == sp)
		caller = thread->native.caller;
	thread->native_walk.frame = regs->rbp;
	thread->native_walk.below = sp;
	if (thread->outer_sp - sp < OUTER_BYTES_MAX) {
		thread->native_walk.frame = thread->outer_frame;
		thread->native_walk.below = thread->outer_sp;
		caller = thread->outer_caller;
	}
	thread->block = (struct block){
		.type = type, .address = address, .bytes = bytes, .api = EVENT_API_NATIVE};
	native_trace(thread, caller);
}

/* count * bytes, or what no allocator has. */
static __always_inline __u64 product(__u64 count, __u64 bytes)
{
	__u64 limit = count ? ~0ull / count : 0;

	/* Lest the compiler make a multiplication of 128 bits of it, which BPF has not. */
	asm volatile("" : "+r"(limit));
	return count && bytes > limit ? ~0ull : count * bytes;
}

/*
 * Is it part of a request in progress? One without a return probe may have jumped to a function
 * that has one, which then tells of its end: *wanted.
 */
static __always_inline int native_is_part(struct pt_regs *regs, struct thread_state *thread,
					  int *wanted)
{
	struct request *request = &thread->native;

	if (!request_is_nested(thread, request, regs->rsp))
		return 0;
	*wanted = request->sp == regs->rsp && request->caller;
	if (*wanted) {
		request->caller = 0;
		request->by_return = 1;
	}
	return 1;
}

/* As request_begin(). by_return: it has a return probe. */
static __always_inline int native_begin(struct pt_regs *regs, int by_return)
{
	struct thread_state *thread = thread_in_layer(EVENT_LAYER_NATIVE);
	struct request *request;
	int wanted = 0;
	__u64 cookie;

	if (!thread)
		return 1;
	if (by_return ? native_is_part(regs, thread, &wanted)
		      : request_is_nested(thread, &thread->native, regs->rsp))
		return !wanted;
	cookie = bpf_get_attach_cookie(regs);
	request = &thread->native;
	request->old_address = 0;
	request->op = cookie & 0xff;
	if (thread->target.layers & 1u << EVENT_LAYER_MMAP) {
		request->from = user_u64(regs->rsp);
		request->frame = regs->rbp;
	}
	switch (request->op) {
	case ABI_OP_MALLOC:
		request->bytes = argument(regs, cookie, 0);
		break;
	case ABI_OP_CALLOC:
		request->bytes = product(argument(regs, cookie, 0), argument(regs, cookie, 1));
		break;
	case ABI_OP_REALLOC:
	case ABI_OP_XALLOCX:
		request->old_address = argument(regs, cookie, 0);
		request->result_at = request->old_address;
		request->bytes = argument(regs, cookie, 1);
		break;
	case ABI_OP_REALLOCARRAY:
		request->old_address = argument(regs, cookie, 0);
		request->bytes = product(argument(regs, cookie, 1), argument(regs, cookie, 2));
		break;
	case ABI_OP_POSIX_MEMALIGN:
		request->result_at = argument(regs, cookie, 0);
		request->bytes = argument(regs, cookie, 1);
		break;
	default:
		return 1;
	}
	request_start(request, regs->rsp, by_return, by_return ? 0 : user_u64(regs->rsp));
	request->throws = !by_return && !(cookie >> 40 & ABI_NATIVE_RETURNS);
	/* Of a block that is not in the sample it is an allocation like any other. */
	if (request->old_address &&
	    !free_output(thread, EVENT_REALLOC, request->old_address, 0, EVENT_API_NATIVE))
		request->old_address = 0;
	return 0;
}

/*
 * The block that the request has given, by what it returned; 0: none, or the old one stays as it
 * was.
 */
static __always_inline __u64 native_block(const struct request *request, __u64 result)
{
	if (request->op == ABI_OP_POSIX_MEMALIGN)
		return (__u32)result ? 0 : user_u64(request->result_at);
	if (request->op == ABI_OP_XALLOCX)
		return result < request->bytes ? 0 : request->result_at;
	return result;
}

/* A request ends: sp is the stack pointer that it had at its entry. */
static __always_inline int native_end(struct pt_regs *regs, __u64 sp, __u64 result)
{
	struct thread_state *thread = thread_in_layer(EVENT_LAYER_NATIVE);
	struct request *request;
	__u64 address;

	if (!thread || !thread->native.sp || sp != thread->native.sp)
		return 0;
	request = &thread->native;
	address = native_block(request, result);
	if (address)
		native_output(regs, thread, request->old_address ? EVENT_REALLOC_DONE : EVENT_ALLOC,
			      address, request->bytes);
	/*
	 * Asked for nothing, a realloc that gives nothing has freed the block (glibc): its REALLOC
	 * has said so.
	 */
	else if (request->old_address && request->bytes)
		realloc_fail_output(thread, request->old_address, EVENT_API_NATIVE);
	request->sp = 0;
	thread->outer_sp = 0;
	return 0;
}

SEC("uprobe")
int native_session(struct pt_regs *regs)
{
	if (session_is_return(regs))
		return native_end(regs, regs->rsp - 8, regs->rax);
	return native_begin(regs, 1);
}

/* The same on kernels without sessions. */
SEC("uprobe")
int native_entry(struct pt_regs *regs)
{
	native_begin(regs, 1);
	return 0;
}

SEC("uprobe")
int native_return(struct pt_regs *regs)
{
	/* The return has popped the return address. */
	return native_end(regs, regs->rsp - 8, regs->rax);
}

/*
 * What has no return probe. A block may be freed twice here, by operator delete and the free that
 * it calls: the record of the second comes before the address can be anyone else's, and is told by
 * that. A function that may throw instead of returning has its entry here, and its ends.
 */
SEC("uprobe")
int native_once(struct pt_regs *regs)
{
	struct thread_state *thread = thread_in_layer(EVENT_LAYER_NATIVE);
	__u64 cookie, address;

	if (!thread)
		return 0;
	cookie = bpf_get_attach_cookie(regs);
	switch (cookie & 0xff) {
	case ABI_OP_FREE:
		address = argument(regs, cookie, 0);
		if (address && !request_is_nested(thread, &thread->native, regs->rsp))
			free_output(thread, EVENT_FREE, address, 0, EVENT_API_NATIVE);
		break;
	case ABI_OP_CALLER:
		/* operator new[] calls operator new. */
		if (!request_is_nested(thread, &thread->native, regs->rsp) &&
		    thread->outer_sp - regs->rsp - 1 >= OUTER_BYTES_MAX) {
			thread->outer_sp = regs->rsp;
			thread->outer_frame = regs->rbp;
			thread->outer_caller = user_u64(regs->rsp);
		}
		break;
	case ABI_OP_END:
		/*
		 * Of one that has come here by a jump from a function with a return probe, that
		 * tells.
		 */
		if (thread->native.caller)
			native_end(regs, regs->rsp, argument(regs, cookie, 0));
		break;
	default:
		native_begin(regs, 0);
	}
	return 0;
}

#endif
