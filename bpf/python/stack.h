/* SPDX-License-Identifier: GPL-2.0 OR Apache-2.0 */
/*
 * Walking a thread's Python stack.
 *
 * A frame is identified by {code id, instruction offset}. Addresses of freed code objects are
 * reused, so a code id is a hash of the address and of the 88 bytes of the code object that end
 * with the line table pointer (argument counts, first line, name, file name and table pointers, and
 * the version where there is one). These bytes never change. Up to 3.11 there is no version, and
 * code that is compiled, run and dropped repeatedly may have all of these at the same addresses. So
 * there the hash includes the texts and the line table, and the id's lowest bits say which of them
 * could not be read (EVENT_MISS_*). user/runtime/cpython/code.c computes the same id.
 *
 * The hash of all {code id, offset} is the stack's id. The frames are sent once per stack id, and a
 * code object's contents once per code id: by the time user space could read them, the code object
 * of a finished module is gone.
 */
#pragma once

#include "python/code.h"
#include "python/thread.h"

#define WALK_LIMIT  (EVENT_MAX_FRAMES + 64) /* frames inspected, C-stack shims included */
#define WALK_PIECE  16                      /* divides WALK_LIMIT and EVENT_MAX_FRAMES */
#define TOTAL_LIMIT 1024                    /* frames counted beyond the limit */

/*
 * From 3.11 on the frames of a thread are contiguous, outer frames at lower addresses. One copy,
 * the window, ends with the requested frame and includes most of the frames that the walk needs
 * next. It does not leave that frame's page, since the memory below may not be mapped. A walk's
 * first window begins no lower than the lowest frame in the first window of the walk before.
 *
 * A frame is copied alone if it is not near the one before it (a generator's frame, or one that the
 * interpreter has on its own stack between two calls from C), if only one frame is wanted, and up
 * to 3.10, where each frame is an object.
 */
#define FRAME_U64(frame, offset)                                                                   \
	(*(__u64 *)((frame) + OFFSET_WITHIN(offset, FRAME_BYTES_MAX - 8, 8)))
#define FRAME_U8(frame, offset) ((frame)[OFFSET_WITHIN(offset, FRAME_BYTES_MAX - 1, 1)])

/* Copies the window that ends with the frame at address. 0; -1: it cannot be read. */
static __always_inline int window_read(struct thread_state *thread, __u64 address)
{
	__u64 begin = address & ~(PAGE_BYTES - 1), at;

	if (address - begin > WINDOW_BYTES - FRAME_BYTES)
		begin = address - (WINDOW_BYTES - FRAME_BYTES);
	if (!thread->windows++ && thread->lowest > begin && thread->lowest <= address)
		begin = thread->lowest;
	at = address - begin;
	thread->window_frames = 0;
	if (at > WINDOW_BYTES - FRAME_BYTES ||
	    bpf_probe_read_user(thread->window, at + FRAME_BYTES, (void *)begin))
		return -1;
	thread->window_begin = begin;
	thread->window_frames = at + 1;
	return 0;
}

/* The frame at address, in thread->window or in thread->alone; NULL: it cannot be read. */
static __always_inline __u8 *frame_read(struct thread_state *thread, __u64 address)
{
	const struct abi_target *target = &thread->target;
	__u64 at = address - thread->window_begin;
	__u32 bytes = target->offsets.frame_lasti_scale ? FRAME_BYTES_MAX : FRAME_BYTES;

	if (at > WINDOW_BYTES - FRAME_BYTES || at >= thread->window_frames) {
		if (bytes == FRAME_BYTES_MAX || target->nframe == 1 ||
		    (thread->windows && thread->above - address > PAGE_BYTES))
			return bpf_probe_read_user(thread->alone, bytes, (void *)address)
				       ? NULL
				       : thread->alone;
		if (window_read(thread, address))
			return NULL;
		at = thread->window_frames - 1;
		if (at > WINDOW_BYTES - FRAME_BYTES)
			return NULL;
	}
	if (thread->windows == 1)
		thread->lowest = address;
	return thread->window + at;
}

/*
 * The bytecode that the frame runs. Without the GIL each thread has a copy of its own, since it
 * specializes the instructions. A copy that cannot be read gives an offset outside of all code.
 */
static __always_inline __u64 bytecode_find(const struct abi_offsets *offsets, const __u8 *frame,
					   __u64 code)
{
	__u64 copies;

	if (offsets->code_copies == ABI_NONE)
		return code + offsets->code_bytecode;
	copies = user_u64(code + offsets->code_copies);
	return user_u64(copies + 8 + 8 * (__u64)(__u32)FRAME_U64(frame, offsets->frame_copy));
}

/*
 * The verifier checks global functions once, and not in every turn of the loop that calls them. So
 * they need null checks of their own. Long loops are made of pieces, each a loop in such a
 * function: the turns of one piece are checked, and then the pieces.
 */

/*
 * Appends {code id, lasti} of the frame at address to the thread's stack record, and sets
 * thread->next_frame. Skips the frames that tracemalloc skips: C-stack shims, and frames that have
 * not reached their first traceable instruction. 0; -1: a page was not resident or there is no code
 * object.
 */
__noinline int frame_append(struct thread_state *thread, __u64 address)
{
	const struct abi_offsets *offsets;
	struct known_code *known;
	__u64 code, id;
	__u8 *frame;
	__u32 slot;
	__s32 lasti;
	int result;

	if (!thread)
		return -1;
	frame = frame_read(thread, address);
	if (!frame)
		return -1;
	thread->above = address;
	offsets = &thread->target.offsets;
	thread->next_frame = FRAME_U64(frame, offsets->frame_previous);
	if (offsets->frame_owner != ABI_NONE &&
	    FRAME_U8(frame, offsets->frame_owner) >= offsets->owner_skip)
		return 0;
	code = FRAME_U64(frame, offsets->frame_code);
	if (offsets->frame_code_tagged)
		code &= ~7ull;
	result = code_find(thread, code, &known);
	if (result)
		return result < 0 ? -1 : 0;
	if (offsets->frame_lasti_scale) {
		lasti = (__s32)FRAME_U64(frame, offsets->frame_instr);
		if (lasti >= 0)
			lasti *= offsets->frame_lasti_scale;
	} else {
		lasti = (__s32)(FRAME_U64(frame, offsets->frame_instr) -
				bytecode_find(offsets, frame, code));
		if (FRAME_U8(frame, offsets->frame_owner) != offsets->owner_generator &&
		    lasti < known->first_traceable * 2)
			return 0;
	}
	if (has_labels && known->label_words) {
		if (label_is(ABI_LABEL_LOCAL) && !thread->label_frame) {
			thread->label_frame = address;
			thread->label_words = known->label_words;
		}
	} else if (label_is(ABI_LABEL_GREENLET)) {
		thread->label_frame = address;
		thread->label_words = code;
	}
	id = known->code_id;
	slot = thread->stack.nframe & (EVENT_MAX_FRAMES - 1);
	thread->frames[slot].code_id = id;
	thread->frames[slot].lasti = lasti;
	thread->frames[slot].kind = EVENT_FRAME_PYTHON;
	thread->addresses[slot] = code;
	thread->stack.stack_id = hash_word(thread->stack.stack_id, id ^ (__u32)lasti * HASH_SEED);
	thread->stack.nframe++;
	return 0;
}

/*
 * Appends up to WALK_PIECE of the frames from thread->next_frame on, up to nframe in all, and up to
 * thread->run_end (0: all). Sets thread->next_frame to the one after the last. 0: there may be
 * more; 1: there are not; -1: it could not be read.
 */
static __always_inline int frames_append_some(struct thread_state *thread, __u32 nframe)
{
	__u64 frame;
	__u32 i;

	for (i = 0; i < WALK_PIECE; i++) {
		frame = thread->next_frame;
		if (!frame || thread->stack.nframe >= nframe)
			return 1;
		if (frame_append(thread, frame)) {
			thread->next_frame = frame;
			loss_add(LOSS_FRAME_FAULT, 1);
			return -1;
		}
		if (frame == thread->run_end)
			return 1;
	}
	return thread->stack.nframe >= nframe;
}

__noinline int frames_append_piece(struct thread_state *thread, __u32 nframe)
{
	return thread ? frames_append_some(thread, nframe) : 1;
}

/* The same for a whole walk, most of which have one piece. 0; -1: a frame could not be read. */
static __always_inline int frames_append(struct thread_state *thread, __u32 nframe)
{
	int end = frames_append_some(thread, nframe);
	__u32 i;

	for (i = 1; i < WALK_LIMIT / WALK_PIECE && !end; i++)
		end = frames_append_piece(thread, nframe);
	return end < 0 ? -1 : 0;
}

struct frames_count {
	struct thread_state *thread;
	__u64 frame; /* the next one */
	__u64 count;
};

static __noinline long frames_count_step(__u32 turn UNUSED, void *context)
{
	struct frames_count *frames = context;
	struct thread_state *thread = frames->thread;
	const struct abi_offsets *offsets = &thread->target.offsets;
	__u8 owner = 0;

	if (!frames->frame)
		return 1;
	if (offsets->frame_owner != ABI_NONE)
		bpf_probe_read_user(&owner, 1, (void *)(frames->frame + offsets->frame_owner));
	if (offsets->frame_owner == ABI_NONE || owner < offsets->owner_skip) {
		frames->count++;
		thread->code[0] = thread->code[1];
		thread->code[1] = frames->frame;
	}
	frames->frame = user_u64(frames->frame + offsets->frame_previous);
	return 0;
}

/*
 * The number of Python frames from `frame` on, for event_stack.total. Counted only for a new stack.
 * thread->code begins with the last two of them, and the one beyond the limit or 0.
 */
__noinline __u64 frames_count(struct thread_state *thread, __u64 frame)
{
	struct frames_count frames = {.thread = thread, .frame = frame};

	if (!thread)
		return 0;
	loop_run(TOTAL_LIMIT, frames_count_step, &frames);
	thread->code[2] = frames.frame;
	return frames.count;
}

/* The code object of a frame. */
static __always_inline __u64 frame_code(const struct abi_offsets *offsets, __u64 frame)
{
	__u64 code = user_u64_called(frame + offsets->frame_code);

	return offsets->frame_code_tagged ? code & ~7ull : code;
}

/* Whether the code object of a frame is among those of codes_of. */
__noinline int frame_is_labelled(struct abi_target *target, __u64 frame, __u32 codes_of)
{
	return target && label_code_find(codes_of, frame_code(&target->offsets, frame));
}

/*
 * The outermost Python frame of the stack that was walked whose code object is not among those of
 * codes_of; 0: it has none, or more frames than are looked at.
 */
__noinline __u64 frame_outermost(struct thread_state *thread, __u32 codes_of)
{
	if (!thread)
		return 0;
	if (!thread->next_frame)
		return thread->label_frame;
	thread->code[0] = 0;
	thread->code[1] = thread->label_frame;
	frames_count(thread, thread->next_frame);
	if (thread->code[2])
		return 0;
	return frame_is_labelled(&thread->target, thread->code[1], codes_of) ? thread->code[0]
									     : thread->code[1];
}

/* Sends the i-th frame's code object if it has not been sent yet. 0; -1: ring buffer full. */
__noinline int frame_code_emit(struct thread_state *thread, __u32 i)
{
	__u64 id, *seen;
	__u32 slot;

	if (!thread || i >= EVENT_MAX_FRAMES)
		return -1;
	if (thread->frames[i].kind != EVENT_FRAME_PYTHON)
		return 0;
	id = thread->frames[i].code_id;
	slot = id & (SEEN_CODES - 1);
	seen = bpf_map_lookup_elem(&seen_codes, &slot);
	if (!seen || *seen == id)
		return 0;
	if (code_emit(thread, thread->addresses[i], id))
		return -1;
	*seen = id;
	return 0;
}

/* Sends those of a piece of the frames, from number `first` on. 0; -1: ring buffer full. */
__noinline int frame_codes_emit(struct thread_state *thread, __u32 first)
{
	__u32 i;

	if (!thread)
		return -1;
	for (i = 0; i < WALK_PIECE && first + i < thread->stack.nframe; i++)
		if (frame_code_emit(thread, first + i))
			return -1;
	return 0;
}

/*
 * Sends the code objects and the frames of a new stack. next is the first Python frame beyond the
 * limit; native is the number of native frames beyond the limit | EVENT_STACK_CUT. The stack counts
 * as seen only if all of its records were sent.
 */
__noinline int stack_emit(struct thread_state *thread, __u64 next, __u32 native)
{
	__u32 nframe, slot, bytes, i;
	__u64 *seen, id;

	if (!thread)
		return -1;
	nframe = thread->stack.nframe;
	thread->lines_left = LINES_BUDGET;
	for (i = 0; i < EVENT_MAX_FRAMES && i < nframe; i += WALK_PIECE)
		if (frame_codes_emit(thread, i))
			return -1;
	thread->stack.total = nframe + (next ? frames_count(thread, next) : 0) + native;
	if (nframe > EVENT_MAX_FRAMES)
		return -1;
	bytes = sizeof(struct event_stack) + nframe * sizeof(struct event_frame);
	header_fill(&thread->stack.header, EVENT_STACK, bytes);
	if (record_output(&thread->stack, bytes, LOSS_STACK))
		return -1;
	id = thread->stack.stack_id;
	slot = id & (SEEN_STACKS - 1);
	seen = bpf_map_lookup_elem(&seen_stacks, &slot);
	if (seen)
		*seen = id;
	return 0;
}

static __always_inline void stack_begin(struct thread_state *thread)
{
	thread->stack.nframe = 0;
	thread->stack.stack_id = hash_start(thread->target.space_id);
}

/* Sets thread->next_frame to the innermost frame (0: there is none). 0; -1: no thread state. */
static __always_inline int python_frames_begin(struct thread_state *thread, int gil_held)
{
	struct abi_target *target = &thread->target;
	__u64 frame;

	if (frame_find(thread, target, gil_held, &frame)) {
		loss_add(LOSS_NO_THREAD, 1);
		return -1;
	}
	thread->next_frame = frame;
	if (has_labels)
		thread->block.tstate = thread->tstate;
	if (label_has_frame())
		thread->label_frame = 0;
	thread->walk++;
	tick_note(thread);
	if (target->partial || target->sample_bytes)
		thread->known_since = thread->walk;
	thread->window_frames = 0;
	thread->windows = 0;
	return 0;
}

/*
 * Appends the running thread's Python frames, up to the target's limit of frames in total. Returns
 * the first frame beyond the limit; 0: there is none.
 */
static __always_inline __u64 python_frames_append(struct thread_state *thread, int gil_held)
{
	__u32 nframe = thread->target.nframe;

	if (python_frames_begin(thread, gil_held))
		return 0;
	thread->run_end = 0;
	frames_append(thread, nframe > EVENT_MAX_FRAMES ? EVENT_MAX_FRAMES : nframe);
	return thread->next_frame;
}

/*
 * The same for a thread that may or may not hold the GIL. Not inline, for callers that are seldom
 * run: the call costs 5 ns.
 */
__noinline __u64 python_frames_any(struct thread_state *thread)
{
	return thread ? python_frames_append(thread, 0) : 0;
}

/*
 * The id of the stack whose frames were appended; 0: there are none. *is_new: the stack has not
 * been sent yet.
 */
static __always_inline __u64 stack_end(struct thread_state *thread, int *is_new)
{
	__u64 *seen;
	__u32 slot;

	*is_new = 0;
	if (!thread->stack.nframe)
		return 0;
	if (!thread->stack.stack_id)
		thread->stack.stack_id = 1;
	slot = thread->stack.stack_id & (SEEN_STACKS - 1);
	seen = bpf_map_lookup_elem(&seen_stacks, &slot);
	*is_new = seen && *seen != thread->stack.stack_id;
	return thread->stack.stack_id;
}

/* The same; sends the stack if it is new. next: as stack_emit(). */
static __always_inline __u64 stack_settle(struct thread_state *thread, __u64 next)
{
	int is_new;
	__u64 id = stack_end(thread, &is_new);

	if (is_new)
		stack_emit(thread, next, 0);
	return id;
}

/*
 * The id of the running thread's Python stack, which is sent if it is new; 0: no Python frame.
 */
static __always_inline __u64 stack_id_current(struct thread_state *thread, int gil_held)
{
	stack_begin(thread);
	return stack_settle(thread, python_frames_append(thread, gil_held));
}

/* The same for a thread that may or may not hold the GIL. */
__noinline __u64 stack_id_python(struct thread_state *thread)
{
	if (!thread)
		return 0;
	stack_begin(thread);
	return stack_settle(thread, python_frames_any(thread));
}
