/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Finds where tracemalloc allocates and frees its own records.
 *
 * Model (Modules/_tracemalloc.c, Python/tracemalloc.c). Before it installs its hooks it calls
 *
 * 	PyMem_GetAllocator(PYMEM_DOMAIN_RAW, &allocators.raw)
 *
 * and later allocators.raw.malloc and .free for its records, within requests of the program. The
 * address of allocators.raw is known at that call, in the second argument's register. Every read of
 * these two members leads to such a call, maybe to a copy of it: the compiler compares the member
 * with the likeliest function, and calls malloc itself.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "abi/target.h"
#include "object/insn/inline_flow.h"
#include "object/insn/machine.h"
#include "probe/pymalloc/search.h"

#define RAW_MAX     4  /* such calls with different addresses: debugging hooks make some, too */
#define AFTER_MAX   24 /* from a read of a member to the call */
#define BRANCH_MAX  4  /* branches on that way */
#define NUMBER_MAX  (1 << 20)
#define SLOT_MALLOC 8 /* offsets in PyMemAllocatorEx */
#define SLOT_FREE   32

static void call_add(uint64_t *calls, size_t *count, uint64_t vaddr)
{
	for (size_t i = 0; i < *count && i < INLINE_RECORDS_MAX; i++)
		if (calls[i] == vaddr || vaddr > UINT32_MAX)
			return;
	if (*count < INLINE_RECORDS_MAX)
		calls[*count] = vaddr;
	++*count;
}

static void return_add(struct inline_search *search, const struct inline_insn *insn)
{
	struct inline_sites *sites = search->out;

	call_add(sites->records, &sites->record_count, insn->vaddr + insn->bytes);
}

/* Does the found call lead to that function of this file, maybe through one of its own slots? */
static bool is_call_of(const struct inline_image *image, const struct machine_found *found,
		       uint64_t function, const uint64_t *slots)
{
	uint64_t slot =
		found->through_slot ? found->target : inline_stub_slot(image, found->target);

	if (!found->through_slot && found->target == function)
		return 1;
	for (size_t i = 0; slot && i < INLINE_TRACING_SLOTS; i++)
		if (slots[i] == slot)
			return 1;
	return 0;
}

/* The memory that the second argument points to, if the first one is 0. 0: it is not known. */
static int raw_at(struct inline_search *search, uint64_t call, struct inline_address *raw)
{
	const struct inline_code *code = &search->code;
	const uint8_t *arguments = code->image->machine->arguments;
	size_t end = inline_code_index(code, call);
	struct inline_flow flow;

	if (end == code->count)
		return 0;
	inline_flow_init(&flow);
	for (size_t i = 0; i < end; i++) {
		inline_flow_reach(&flow, &code->insns[i]);
		inline_flow_step(&flow, &code->insns[i]);
	}
	inline_flow_reach(&flow, &code->insns[end]);
	struct inline_value domain = flow.state.of[arguments[0]];
	struct inline_value pointer = flow.state.of[arguments[1]];
	if (domain.base != INLINE_CONSTANT || (uint32_t)domain.addend ||
	    (pointer.base != INLINE_CONSTANT && !(pointer.base & INLINE_HELD)))
		return 0;
	*raw = (struct inline_address){.slot = pointer.base & ~INLINE_HELD,
				       .offset = pointer.addend};
	return raw->slot || raw->offset;
}

static bool is_one_of(const struct inline_address *all, size_t count,
		      const struct inline_address *one)
{
	for (size_t i = 0; i < count; i++)
		if (all[i].slot == one->slot && all[i].offset == one->offset)
			return 1;
	return 0;
}

/* All such addresses, at most RAW_MAX. 0; -ENOMEM. */
static int raws_find(struct inline_search *search, struct inline_address *raws, size_t *count)
{
	const struct inline_image *image = search->code.image;
	struct machine_found found;
	int err = 0;

	*count = 0;
	for (size_t i = 0;
	     !err && (i = image->machine->look(MACHINE_CALL, &image->text, i, NULL, &found));) {
		struct inline_address here;

		if (!is_call_of(image, &found, image->get_allocator, image->get_allocator_slots) ||
		    !inline_is_instruction(search, found.vaddr, &err) ||
		    !raw_at(search, found.vaddr, &here) || is_one_of(raws, *count, &here))
			continue;
		if (*count < RAW_MAX)
			raws[(*count)++] = here;
	}
	return err;
}

/*
 * The function ends by a jump to what it has read: it returns to its callers. All of these are
 * calls for records.
 */
static int callers_add(struct inline_search *search, uint64_t function)
{
	const struct inline_image *image = search->code.image;
	static const uint64_t none[INLINE_TRACING_SLOTS];
	struct machine_found found;
	int err = 0;

	for (size_t i = 0;
	     !err && (i = image->machine->look(MACHINE_CALL, &image->text, i, NULL, &found));)
		if (found.is_call && is_call_of(image, &found, function, none) &&
		    inline_is_instruction(search, found.vaddr, &err))
			call_add(search->out->records, &search->out->record_count,
				 found.vaddr + found.bytes);
	return err;
}

/* Follows the code from vaddr on, where a register holds the member, to the calls. */
static int calls_follow(struct inline_search *search, uint64_t vaddr, uint64_t function, int depth)
{
	struct inline_sites *sites = search->out;
	struct inline_insn insn;
	int err = 0;

	for (int i = 0; !err && i < AFTER_MAX && inline_code_window(&search->code, vaddr, &insn, 1);
	     i++) {
		int stub = (insn.op == INLINE_CALL || insn.op == INLINE_JUMP) &&
			   inline_stub_slot(search->code.image, insn.target);

		if (stub)
			call_add(sites->record_calls, &sites->record_call_count, insn.vaddr);
		if (insn.op == INLINE_CALL_SLOT)
			return_add(search, &insn);
		if (insn.op == INLINE_JUMP_SLOT)
			return callers_add(search, function);
		if (stub || insn.op == INLINE_CALL || insn.op == INLINE_CALL_SLOT ||
		    insn.op == INLINE_END)
			return 0;
		if (insn.op == INLINE_BRANCH && depth < BRANCH_MAX)
			err = calls_follow(search, insn.target, function, depth + 1);
		vaddr = insn.op == INLINE_JUMP ? insn.target : insn.vaddr + insn.bytes;
	}
	return err;
}

/* The instructions of the function that read the member. */
static int function_look(struct inline_search *search, const struct inline_address *member)
{
	struct inline_code *code = &search->code;
	const uint64_t start = code->start;
	struct inline_flow flow;
	int err = 0;

	inline_flow_init(&flow);
	for (size_t i = 0; !err && i < code->count; i++) {
		const struct inline_insn insn = code->insns[i];
		struct inline_address at;

		inline_flow_reach(&flow, &insn);
		if (inline_state_reads(&flow.state, &insn, &at) && at.slot == member->slot &&
		    at.offset == member->offset) {
			if (insn.op == INLINE_CALL_SLOT)
				return_add(search, &insn);
			else if (insn.op == INLINE_JUMP_SLOT)
				err = callers_add(search, start);
			else
				err = calls_follow(search, insn.vaddr + insn.bytes, start, 0);
			/* The search for callers decodes other functions. */
			err = err ?: inline_code_function(code, start);
		}
		inline_flow_step(&flow, &insn);
	}
	return err;
}

/* Calls through the member itself, which are found as calls, not as reads. */
static int direct_look(struct inline_search *search, const struct inline_address *member)
{
	const struct inline_image *image = search->code.image;
	struct machine_found found;
	int err = 0;

	for (size_t i = 0;
	     !member->slot && !err &&
	     (i = image->machine->look(MACHINE_CALL, &image->text, i, NULL, &found));) {
		if (!found.through_slot || found.target != (uint64_t)member->offset ||
		    !inline_is_instruction(search, found.vaddr, &err))
			continue;
		if (found.is_call)
			call_add(search->out->records, &search->out->record_count,
				 found.vaddr + found.bytes);
		else
			err = callers_add(search, search->code.start);
	}
	return err;
}

/* Numbers in a function's bytes, of 32 bits and with a sign, from -NUMBER_MAX to NUMBER_MAX. */
struct numbers {
	uint64_t bits[2 * NUMBER_MAX / 64 + 1];
	int32_t found[INLINE_FUNCTION_MAX];
	size_t count;
};

static bool has_number(const struct numbers *numbers, int64_t value)
{
	uint64_t at = (uint64_t)(value + NUMBER_MAX);

	return value > -NUMBER_MAX && value < NUMBER_MAX && numbers->bits[at / 64] >> at % 64 & 1;
}

/*
 * Can the bytes reach this offset behind a register's value? By a displacement, or by two numbers
 * that are added, of which one may have 8 bits. It is asked before a function is decoded: a
 * thousand functions read the address of the runtime, and few of them this member.
 */
static bool may_reach(struct numbers *numbers, const uint8_t *code, size_t bytes, int64_t offset)
{
	int reaches = 0;

	for (size_t i = 0; !reaches && i + 4 <= bytes && i < INLINE_FUNCTION_MAX; i++) {
		int32_t value;

		memcpy(&value, code + i, sizeof(value));
		if (value <= -NUMBER_MAX || value >= NUMBER_MAX || has_number(numbers, value))
			continue;
		reaches = (value >= offset - 128 && value <= offset + 128) ||
			  has_number(numbers, offset - value);
		numbers->bits[(uint64_t)(value + NUMBER_MAX) / 64] |=
			1ull << (uint64_t)(value + NUMBER_MAX) % 64;
		numbers->found[numbers->count++] = value;
	}
	while (numbers->count) {
		uint64_t at = (uint64_t)(numbers->found[--numbers->count] + NUMBER_MAX);

		numbers->bits[at / 64] = 0;
	}
	return reaches;
}

static int member_look(struct inline_search *search, struct numbers *numbers,
		       const struct inline_address *member)
{
	const struct inline_image *image = search->code.image;
	/* The numbers of other machines, and of addresses without a base, are written otherwise. */
	int may_skip = member->slot && image->machine->arch == CS_ARCH_X86;
	uint64_t start, done = 0; /* functions before it were looked at */
	struct machine_found found;
	int err = direct_look(search, member);

	for (size_t i = 0;
	     !err && (i = image->machine->look(MACHINE_READER, &image->text, i, member, &found));) {
		if (found.vaddr < done || inline_code_range(image, found.vaddr, &start, &done) ||
		    (may_skip && !may_reach(numbers, image->text.code + (start - image->text.vaddr),
					    done - start, member->offset)))
			continue;
		err = inline_code_function(&search->code, found.vaddr)
			      ?: function_look(search, member);
		err = err == -ENOENT ? 0 : err;
	}
	return err;
}

int inline_records_find(struct inline_search *search)
{
	struct inline_sites *sites = search->out;
	struct inline_address raws[RAW_MAX], member;
	struct numbers *numbers = calloc(1, sizeof(*numbers));
	size_t count = 0;
	int err = !numbers                            ? -ENOMEM
		  : search->code.image->get_allocator ? raws_find(search, raws, &count)
						      : 0;

	for (size_t i = 0; !err && i < count; i++) {
		member = raws[i];
		member.offset += SLOT_MALLOC;
		err = member_look(search, numbers, &member);
		sites->records_known |= sites->record_count + sites->record_call_count > 0;
		member.offset = raws[i].offset + SLOT_FREE;
		err = err ?: member_look(search, numbers, &member);
	}
	if (sites->record_count > INLINE_RECORDS_MAX ||
	    sites->record_call_count > INLINE_RECORDS_MAX)
		sites->records_known = 0;
	if (!sites->records_known)
		sites->record_count = sites->record_call_count = 0;
	free(numbers);
	return err;
}
