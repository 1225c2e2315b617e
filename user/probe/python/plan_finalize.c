/* SPDX-License-Identifier: Apache-2.0 */
#include "probe/python/plan_finalize.h"

#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#include "object/elf/elf_file.h"
#include "object/insn/machine.h"
#include "util/array.h"

#define LONGEST      15 /* bytes of an x86 instruction */
#define PATH_LONGEST 64 /* instructions followed on a path */
#define RETURN_MAX   16 /* instructions of a possible early return */

struct plan_finalize_path {
	plan_read_fn read;
	void *context;
	const struct machine *machine;
	struct inline_decoder decoder;
	struct inline_insn insn; /* the decoded instruction */
};

static bool decode(struct plan_finalize_path *path, uint64_t vaddr)
{
	uint8_t bytes[LONGEST];
	int got = path->read(path->context, vaddr, bytes, sizeof(bytes));

	return got > 0 && inline_decode(&path->decoder, bytes, (size_t)got, vaddr, &path->insn) > 0;
}

/* Does the code at vaddr return before it calls anything? */
static bool is_return(struct plan_finalize_path *path, uint64_t vaddr)
{
	for (int i = 0; i < RETURN_MAX && decode(path, vaddr); i++) {
		if (path->machine->is_return(path->decoder.insn))
			return true;
		if (path->insn.op == INLINE_JUMP)
			vaddr = path->insn.target;
		else if (path->insn.op < INLINE_BRANCH)
			vaddr += path->insn.bytes;
		else
			return false;
	}
	return false;
}

/* The address of the instruction that runs after the decoded one; 0: unknown, or the path ends. */
static uint64_t next_of(struct plan_finalize_path *path, uint64_t vaddr)
{
	uint64_t behind = vaddr + path->insn.bytes, target = path->insn.target;

	if (path->insn.op < INLINE_BRANCH)
		return behind;
	if (path->insn.op == INLINE_JUMP)
		return target;
	if (path->insn.op != INLINE_BRANCH)
		return 0;
	if (is_return(path, target))
		return behind;
	return is_return(path, behind) ? target : 0;
}

static void piece_fill(const struct plan_finalize_path *path, struct plan_piece *piece)
{
	const cs_insn *insn = path->decoder.insn;

	piece->vaddr = path->insn.vaddr;
	piece->emulated = path->insn.emulated;
	snprintf(piece->instruction, sizeof(piece->instruction), "%.15s%s%.40s", insn->mnemonic,
		 insn->op_str[0] ? " " : "", insn->op_str);
}

static size_t path_follow(struct plan_finalize_path *path, uint64_t vaddr,
			  struct plan_piece *pieces, size_t capacity)
{
	size_t count = 0;

	for (int i = 0; i < PATH_LONGEST && vaddr && count < capacity && decode(path, vaddr); i++) {
		if (path->machine->may_be_probed(path->decoder.insn))
			piece_fill(path, &pieces[count++]);
		vaddr = next_of(path, vaddr);
	}
	return count;
}

size_t plan_finalize_path(plan_read_fn read, void *context, uint64_t vaddr,
			  struct plan_piece *pieces, size_t capacity)
{
	struct plan_finalize_path path = {
		.read = read, .context = context, .machine = machine_own()};
	size_t count = 0;

	if (!inline_decoder_open(&path.decoder, path.machine))
		count = path_follow(&path, vaddr, pieces, capacity);
	inline_decoder_close(&path.decoder);
	return count;
}

static int elf_read(void *context, uint64_t vaddr, void *out, size_t bytes)
{
	return elf_file_read(context, vaddr, out, bytes);
}

static size_t site_at(const struct plan *plan, uint64_t vaddr)
{
	size_t i = 0;

	while (i < plan->count && plan->sites[i].vaddr != vaddr)
		i++;
	return i;
}

/* Adds a copy of site like at the piece's address, unless a site is there already. */
static int piece_add(struct plan *plan, struct elf_file *file, size_t like,
		     const struct plan_piece *piece)
{
	uint64_t offset;

	if (site_at(plan, piece->vaddr) < plan->count ||
	    elf_file_offset(file, piece->vaddr, &offset))
		return 0;
	int err = ARRAY_GROW(plan->sites, plan->capacity, plan->count);
	if (err)
		return err;
	struct plan_site *site = &plan->sites[plan->count++];
	*site = plan->sites[like];
	site->in_function += (uint32_t)(piece->vaddr - site->vaddr);
	site->vaddr = piece->vaddr;
	site->offset = offset;
	site->emulated = piece->emulated;
	memcpy(site->instruction, piece->instruction, sizeof(site->instruction));
	snprintf(site->why, sizeof(site->why), "the next piece of the heap is read here");
	return 0;
}

/* Adds the path of the function that a site is in. *last: index of the site at the path's end. */
static int path_add(struct plan *plan, struct elf_file *file, size_t site, size_t *last)
{
	uint64_t entry = plan->sites[site].vaddr - plan->sites[site].in_function;
	struct plan_piece pieces[PLAN_PIECES];
	size_t count = plan_finalize_path(elf_read, file, entry, pieces, PLAN_PIECES);
	int err = 0;

	for (size_t i = 0; i < count && !err; i++)
		err = piece_add(plan, file, site, &pieces[i]);
	*last = count ? site_at(plan, pieces[count - 1].vaddr) : site;
	return err;
}

int plan_finalize_add(struct plan *plan, struct elf_file *file)
{
	size_t sites = plan->count, last = plan->count, end;
	int err = 0;

	for (size_t i = 0; i < sites && !err; i++) {
		if (plan->sites[i].op != ABI_OP_FINALIZE)
			continue;
		err = path_add(plan, file, i, &end);
		if (last == sites || !strcmp(plan->sites[i].symbol, "Py_FinalizeEx"))
			last = end;
	}
	if (!err && last < plan->count)
		plan->sites[last].cookie |= ABI_COOKIE_ADDEND(1);
	return err;
}
