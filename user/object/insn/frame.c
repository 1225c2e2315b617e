/* SPDX-License-Identifier: Apache-2.0 */
#include "object/insn/frame.h"

#include "object/insn/machine.h"

#define PATHS_MAX 64

/* A way through the code that is followed from there on. */
struct frame_path {
	size_t at;
	struct machine_frame frame;
};

/* Wherever control comes from, the stack is the same at a place: one way to the place will do. */
struct frame_search {
	size_t count, pending;
	struct frame_path paths[PATHS_MAX]; /* those that branches lead to, up to the place */
	uint8_t visited[FRAME_CODE / 8];
};

enum { PATH_ENDS = 0, PATH_ARRIVES, PATH_SETS_POINTER };

static void path_add(struct frame_search *search, uint64_t target, uint64_t vaddr,
		     const struct machine_frame *frame)
{
	uint64_t at = target - vaddr;

	if (at <= search->count && search->pending < PATHS_MAX)
		search->paths[search->pending++] = (struct frame_path){(size_t)at, *frame};
}

/* Has the function set up a frame pointer, on every way? */
static bool is_framed(const struct machine_frame *frame)
{
	return frame->saved && frame->returned && !frame->branched &&
	       frame->pointer >= frame->saved && frame->pointer >= frame->returned;
}

/* Follows a path until it ends. */
static int path_follow(struct frame_search *search, struct inline_decoder *decoder,
		       const uint8_t *code, uint64_t vaddr, struct frame_path *path)
{
	struct inline_insn insn;

	while (path->at < search->count) {
		size_t length = inline_decode(decoder, code + path->at, search->count - path->at,
					      vaddr + path->at, &insn);
		uint8_t *visited = &search->visited[path->at / 8], bit = 1u << path->at % 8;

		path->frame.pointer = 0;
		if (!length || *visited & bit || insn.op == INLINE_JUMP_SLOT ||
		    (insn.op == INLINE_END && !decoder->machine->is_syscall(decoder->insn)) ||
		    decoder->machine->frame_step(&path->frame, decoder->insn, &insn) ||
		    path->frame.depth < decoder->machine->return_bytes ||
		    path->frame.depth > ABI_FRAME_MAX)
			return PATH_ENDS;
		*visited |= bit;
		if (is_framed(&path->frame))
			return PATH_SETS_POINTER;
		path->frame.branched |= insn.op == INLINE_BRANCH || insn.op == INLINE_JUMP;
		if (insn.op == INLINE_BRANCH || insn.op == INLINE_JUMP)
			path_add(search, insn.target, vaddr, &path->frame);
		if (insn.op == INLINE_JUMP)
			return PATH_ENDS;
		path->at += length;
	}
	return path->at == search->count ? PATH_ARRIVES : PATH_ENDS;
}

static uint32_t above(int64_t base, int64_t place)
{
	return place ? (uint32_t)(base - place) : ABI_FRAME_KEPT;
}

void machine_frame_find(struct inline_decoder *decoder, const uint8_t *code, size_t count,
			uint64_t vaddr, struct abi_frame *out)
{
	const int64_t pushed = decoder->machine->return_bytes;
	struct frame_search search = {.count = count, .pending = 1};
	struct frame_path path = {0};
	int found = PATH_ENDS;

	*out = (struct abi_frame){
		.base = ABI_FRAME_UNKNOWN, .return_at = ABI_FRAME_KEPT, .saved_at = ABI_FRAME_KEPT};
	search.paths[0].frame = (struct machine_frame){.depth = pushed, .returned = pushed};
	while (count <= FRAME_CODE && search.pending && found == PATH_ENDS) {
		path = search.paths[--search.pending];
		found = path_follow(&search, decoder, code, vaddr, &path);
	}
	if (found == PATH_ENDS)
		return;
	int64_t base = found == PATH_SETS_POINTER ? path.frame.pointer : path.frame.depth;
	if (base < path.frame.returned || base < path.frame.saved)
		return;
	out->base = found == PATH_SETS_POINTER ? ABI_FRAME_POINTER : ABI_FRAME_STACK;
	out->end_at = (uint32_t)base;
	out->return_at = above(base, path.frame.returned);
	out->saved_at = above(base, path.frame.saved);
}
