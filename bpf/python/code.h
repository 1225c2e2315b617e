/* SPDX-License-Identifier: GPL-2.0 OR Apache-2.0 */
/*
 * Code objects: their ids (see stack.h), the caches of those that were read, and their
 * records. user/runtime/cpython/code.c computes the same ids.
 */
#pragma once

#include "state.h"
#include "user_word.h"

#define HASH_WORD 0x9e3779b97f4a7c15ull
#define HASH_SEED 0xbf58476d1ce4e5b9ull

static __always_inline __u64 hash_word(__u64 hash, __u64 word)
{
	hash = (hash ^ word) * HASH_WORD;
	return hash ^ hash >> 32;
}

static __always_inline __u64 hash_start(__u64 seed)
{
	seed *= HASH_SEED;
	return seed ^ seed >> 32;
}

#define CODE_U64(thread, offset) ((thread)->code[((offset) >> 3) & 31])
#define CODE_U32(thread, offset) (*(__u32 *)((__u8 *)(thread)->code + ((offset)&0xfc)))

#define CONTENT_MAX (1u << 30) /* bytes; longer texts and line tables are taken as invalid */

/* The length in bytes of a str object's text, and its address in *data; 0: it is not valid. */
static __always_inline __u64 text_find(const struct abi_offsets *offsets, __u64 string, __u64 *data,
				       __u16 *kind)
{
	__u64 length = user_u64(string + offsets->unicode_length);
	__u32 state =
		user_u64(string + offsets->unicode_state) >> (offsets->unicode_kind_shift & 31);
	__u32 width = state & 7;

	*data = 0;
	if (!(state >> 3 & 1) || (width != 1 && width != 2 && width != 4) || length > CONTENT_MAX)
		return 0;
	*kind = width;
	*data = string + (state >> 4 & 1 ? offsets->unicode_ascii : offsets->unicode_compact);
	return length * width;
}

/* Hash of the last CONTENT_WORDS words of the bytes at data; 0: they cannot be read. */
__noinline __u64 content_hash(struct thread_state *thread, __u64 data, __u64 bytes)
{
	__u64 size = bytes < 8 * CONTENT_WORDS ? bytes : 8 * CONTENT_WORDS,
	      hash = hash_start(bytes);
	__u32 i;

	if (!thread || !data)
		return 0;
	thread->content[size >> 3] = 0;
	if (bpf_probe_read_user(thread->content, size, (void *)(data + bytes - size)))
		return 0;
	for (i = 0; i < CONTENT_WORDS && 8 * i < size; i++)
		hash = hash_word(hash, thread->content[i]);
	return hash ? hash : 1;
}

static __always_inline __u64 text_hash(struct thread_state *thread,
				       const struct abi_offsets *offsets, __u64 string)
{
	__u64 data, bytes;
	__u16 kind;

	bytes = text_find(offsets, string, &data, &kind);
	return content_hash(thread, data, bytes);
}

/* The id of the code object in thread->code: id is its hash without texts and line table. */
__noinline __u64 code_id_with_contents(struct thread_state *thread, struct abi_target *target,
				       __u64 id)
{
	const struct abi_offsets *offsets;
	__u64 missing = 0, lines, bytes, hash;

	if (!thread || !target)
		return 0;
	offsets = &target->offsets;
	hash = text_hash(thread, offsets, CODE_U64(thread, offsets->code_filename));
	missing |= hash ? 0 : EVENT_MISS_FILENAME;
	id = hash_word(id, hash);
	hash = text_hash(thread, offsets, CODE_U64(thread, offsets->code_qualname));
	missing |= hash ? 0 : EVENT_MISS_QUALNAME;
	id = hash_word(id, hash);
	lines = CODE_U64(thread, offsets->code_lines);
	bytes = user_u64(lines + offsets->bytes_size);
	hash = bytes > CONTENT_MAX ? 0 : content_hash(thread, lines + offsets->bytes_data, bytes);
	missing |= hash ? 0 : EVENT_MISS_LINES;
	return (hash_word(id, hash) & ~(__u64)EVENT_MISS_ALL) | missing;
}

#define CODE_BYTES_MIN 176u /* no version's code object is smaller */

/* Counts a new block that is large enough for a code object. A size of 0 bytes is unknown. */
static __always_inline void reuse_count_add(__u64 address, __u64 bytes)
{
	if (bytes - 1 >= CODE_BYTES_MIN - 1)
		__sync_fetch_and_add(reuse_count_at(address), 1);
}

static __always_inline __u32 mark_fold(__u64 word)
{
	return word ^ word >> 32;
}

/* Is `walk` the same walk as `since` or a later one? */
static __always_inline int walk_is_since(__u32 walk, __u32 since)
{
	return (__s32)(walk - since) >= 0;
}

/*
 * Is the cache entry `known` valid for the code object at this address? `last` is the walk that met
 * it last. A new code object at the address of a dead one was allocated, so the entry is valid as
 * long as no block has been allocated there. So that this does not depend on tracing every
 * allocation, the code object's mark is compared as well, unless the previous walk or one in the
 * same kernel tick has met it. The mark is a version or, up to 3.11, an address that another code
 * object need not have. Where some allocations are known not to be traced, an entry is valid for
 * one walk.
 */
static __always_inline int code_is_valid(struct thread_state *thread,
					 const struct known_code *known, __u64 code, __u32 last)
{
	return known->code == code && walk_is_since(last, thread->known_since) &&
	       known->reuse_counts == *(volatile __u32 *)reuse_count_at(code) &&
	       (walk_is_since(last + 1, thread->walk) || walk_is_since(last, thread->tick_walk) ||
		known->mark ==
			mark_fold(user_u64(code + (thread->target.offsets.code_mark & ~7u))));
}

/*
 * Reads the code object into *known. 0; -1: not resident, or not a code object; 1: not a code
 * object, which a frame of this version may have.
 */
static __always_inline int code_read(struct thread_state *thread, __u64 code,
				     struct known_code *known)
{
	struct abi_target *target = &thread->target;
	const struct abi_offsets *offsets = &target->offsets;
	__u32 bytes = CODE_BYTES, first;
	__u64 id, window;
	int i;

	known->code = 0;
	/* Before the read, so that an allocation there during the read is noticed. */
	known->reuse_counts = *(volatile __u32 *)reuse_count_at(code);
	/* Up to 3.10 a code object is shorter. Without the GIL every object has a longer header. */
	if (offsets->frame_lasti_scale)
		bytes = 128;
	else if (offsets->object_type > 8)
		bytes = CODE_BYTES_MAX;
	if (bpf_probe_read_user(thread->code, bytes, (void *)code))
		return -1;
	if (target->code_type && CODE_U64(thread, offsets->object_type) != target->code_type)
		return offsets->frame_code_checked ? 1 : -1;
	window = offsets->code_lines + 8 - 8 * WINDOW_WORDS;
	id = hash_start(target->space_id ^ code);
	for (i = 0; i < WINDOW_WORDS; i++) {
		id = hash_word(id, CODE_U64(thread, window + 8 * i));
		/* Forces one word at a time: otherwise the compiler keeps all on the stack. */
		asm volatile("" : "+r"(id), "+r"(window));
	}
	if (!offsets->code_versioned)
		id = code_id_with_contents(thread, target, id);
	known->code_id = id ? id : 1;
	known->code = code;
	known->mark = mark_fold(CODE_U64(thread, offsets->code_mark));
	first = offsets->frame_lasti_scale ? 0 : CODE_U32(thread, offsets->code_first_traceable);
	known->first_traceable = first < 0xffff ? first : 0xffff;
	known->label_words = 0;
	return 0;
}

/*
 * known_code.label_words of a code object that has been read. Not inline: code_fill() has no space
 * on its stack for the key.
 */
__noinline __u32 label_words(struct thread_state *thread, __u64 code)
{
	struct abi_label *label;
	struct abi_label_code *found = NULL;
	__u64 words;
	__u32 tgid;

	if (!thread)
		return 0;
	tgid = thread->ids.tgid;
	label = bpf_map_lookup_elem(&labels, &tgid);
	if (label)
		found = label_code_find(label->codes_of, code);
	if (!found || found->mark != CODE_U64(thread, thread->target.offsets.code_mark))
		return 0;
	words = (label->frame_locals >> 3) + found->slot;
	if (label->frame_locals & 7 || words <= LABEL_FAR || words >= LABEL_PATH)
		return LABEL_FAR;
	return label->steps ? words | LABEL_PATH : words;
}

/* The entry for this address in the thread's second cache; NULL: there is no memory for it. */
static __always_inline struct known_code *second_cache_entry(__u64 code)
{
	struct more_codes *more = codes_get((void *)bpf_get_current_task_btf());
	__u64 slot = (__u32)(code >> 4) * 0x9e3779b1u;

	slot = (slot & 0xffffffff) * MORE_CODES >> 32;
	if (!more)
		return NULL;
	/* The compiler knows the bound and would remove the check, which the verifier needs. */
	asm volatile("" : "+r"(slot));
	return slot < MORE_CODES ? &more->known[slot] : NULL;
}

/*
 * Fills thread->known[slot] with the code object, from the second cache or by reading it. Returns
 * as code_read().
 */
__noinline int code_fill(struct thread_state *thread, __u64 code, __u32 slot)
{
	struct known_code *known, *second;
	int result;

	if (!thread || slot >= KNOWN_CODES)
		return -1;
	known = &thread->known[slot];
	second = second_cache_entry(code);
	if (second && code_is_valid(thread, second, code, second->walk)) {
		second->walk = thread->walk;
		*known = *second;
		return 0;
	}
	result = code_read(thread, code, known);
	if (label_has_frame() && !result)
		known->label_words = label_words(thread, code);
	if (!result && second)
		*second = *known;
	return result;
}

/* The cache entry of the code object at an address, in *out; returns as code_read(). */
static __always_inline int code_find(struct thread_state *thread, __u64 code,
				     struct known_code **out)
{
	__u32 slot = (code >> 4 ^ code >> 12) & (KNOWN_CODES - 1);
	struct known_code *known = &thread->known[slot];
	__u32 last = known->walk;

	*out = known;
	known->walk = thread->walk;
	return code_is_valid(thread, known, code, last) ? 0 : code_fill(thread, code, slot);
}

/* Copies a str object's text; its length in bytes, or -1. */
static __always_inline long text_copy(const struct abi_offsets *offsets, __u64 string, __u8 *out,
				      __u16 *kind)
{
	__u64 data, bytes = text_find(offsets, string, &data, kind);

	if (!data)
		return -1;
	if (bytes > EVENT_MAX_TEXT)
		bytes = EVENT_MAX_TEXT;
	if (bpf_probe_read_user(out, bytes, (void *)data))
		return -1;
	return bytes;
}

#define LINES_SMALL 216 /* bytes; most line tables fit. Ring buffer sizes must be constant */

/* One piece of a line table. 0; -1: ring buffer full; 1: not readable. */
static __always_inline int lines_send(__u64 code_id, __u64 data, __u32 offset, __u32 bytes,
				      const __u32 capacity)
{
	struct event_code_lines *record =
		bpf_ringbuf_reserve(&events, sizeof(struct event_code_lines) + capacity, 0);

	if (!record) {
		loss_add(LOSS_CODE, 1);
		return -1;
	}
	if (bytes > capacity)
		bytes = capacity;
	if (bpf_probe_read_user(record->data, bytes, (void *)(data + offset))) {
		bpf_ringbuf_discard(record, RING_FLAGS);
		return 1;
	}
	header_fill(&record->header, EVENT_CODE_LINES, (sizeof(*record) + bytes + 7) & ~7u);
	record->code_id = code_id;
	record->offset = offset;
	record->bytes = bytes;
	bpf_ringbuf_submit(record, RING_FLAGS);
	return 0;
}

/*
 * Sends the piece at `offset` of a table of this many bytes. Not inline, so that the verifier
 * checks it once and not in every turn of the loop below.
 */
__noinline int lines_piece(__u64 code_id, __u64 data, __u32 offset, __u32 bytes)
{
	__u32 piece = bytes - offset;

	if (piece <= LINES_SMALL)
		return lines_send(code_id, data, offset, piece, LINES_SMALL);
	if (piece > EVENT_MAX_LINES)
		piece = EVENT_MAX_LINES;
	return lines_send(code_id, data, offset, piece, EVENT_MAX_LINES);
}

/*
 * Sends the line table at data in pieces. 0; -1: ring buffer full; 1: a piece is not readable or
 * the table is too long.
 */
__noinline int lines_emit(__u64 code_id, __u64 data, __u32 bytes)
{
	__u32 offset;
	int result;

	for (offset = 0; offset < EVENT_MAX_LINES_ALL; offset += EVENT_MAX_LINES) {
		if (offset >= bytes)
			return 0;
		result = lines_piece(code_id, data, offset, bytes);
		if (result)
			return result;
	}
	return offset >= bytes ? 0 : 1;
}

/*
 * Bytes of line tables that are sent with one stack: a deep stack of long functions would occupy
 * the processor for milliseconds. User space reads the other tables, as it reads those that are not
 * resident.
 */
#define LINES_BUDGET (1u << 20)

/* 0; -1: ring buffer full; 1: not all of the table at data was sent. */
static __always_inline int lines_emit_within(struct thread_state *thread, __u64 code_id, __u64 data,
					     __u32 bytes)
{
	__u32 cost = bytes > EVENT_MAX_LINES_ALL ? EVENT_MAX_LINES_ALL : bytes;

	if (cost > thread->lines_left)
		return 1;
	thread->lines_left -= cost;
	return lines_emit(code_id, data, bytes);
}

/* Sends a code object's EVENT_CODE and its line table. 0; -1: ring buffer full. */
__noinline int code_emit(struct thread_state *thread, __u64 code, __u64 code_id)
{
	const struct abi_offsets *offsets;
	struct event_code *record;
	__u64 lines, lines_bytes;
	long first, second;
	int sent;

	if (!thread)
		return -1;
	offsets = &thread->target.offsets;
	lines = user_u64_called(code + offsets->code_lines);
	lines_bytes = user_u64_called(lines + offsets->bytes_size);
	if (lines_bytes > CONTENT_MAX)
		lines_bytes = CONTENT_MAX;
	sent = lines_emit_within(thread, code_id, lines + offsets->bytes_data, lines_bytes);
	if (sent < 0)
		return -1;

	record = bpf_ringbuf_reserve(&events, sizeof(*record) + 2 * EVENT_MAX_TEXT, 0);
	if (!record) {
		loss_add(LOSS_CODE, 1);
		return -1;
	}
	header_fill(&record->header, EVENT_CODE, sizeof(*record) + 2 * EVENT_MAX_TEXT);
	record->code_id = code_id;
	record->address = code;
	record->first_line = 0;
	bpf_probe_read_user(&record->first_line, 4, (void *)(code + offsets->code_first_line));
	record->missing = sent ? EVENT_MISS_LINES : 0;
	record->lines_bytes = lines_bytes;
	record->filename_kind = 1;
	record->qualname_kind = 1;
	first = text_copy(offsets, user_u64_called(code + offsets->code_filename), record->data,
			  &record->filename_kind);
	if (first < 0 || first > EVENT_MAX_TEXT) {
		record->missing |= EVENT_MISS_FILENAME;
		first = 0;
	}
	second = text_copy(offsets, user_u64_called(code + offsets->code_qualname),
			   record->data + first, &record->qualname_kind);
	if (second < 0) {
		record->missing |= EVENT_MISS_QUALNAME;
		second = 0;
	}
	record->filename_bytes = first;
	record->qualname_bytes = second;
	/* The reserved size is constant; the record ends with its text. */
	record->header.size = (sizeof(*record) + first + second + 7) & ~7u;
	bpf_ringbuf_submit(record, RING_FLAGS);
	return 0;
}
