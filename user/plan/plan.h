/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The probe planner, pure: a file's symbols and bytes in, a list of probe sites out. It decides
 * where in a function the probe sits, because that decides what it costs: an instruction that the
 * kernel emulates (push of a register, nop, relative jmp/jcc/call) costs one trap, any other two.
 *
 * For each function it decodes the straight-line entry path (Capstone) and takes the first emulated
 * instruction at which every argument is still known in a register, which nothing jumps into, and,
 * where the return value is wanted, at which the stack pointer is still the entry's; else the
 * entry, and it says so.
 */
#ifndef TRACER_PLAN_PLAN_H
#define TRACER_PLAN_PLAN_H

#include <stddef.h>
#include <stdint.h>

#include "abi/events.h"
#include "abi/target.h"
#include "x86/site.h"

/* Does it see blocks of pymalloc's pools die? Census mode does without. */
int plan_site_is_pool_free(const struct plan_site *site);

struct elf_file;
struct plan {
	struct plan_site *sites;
	size_t count, room;
	/* so many of them, the first ones, are in copies that were inlined somewhere */
	size_t inlined_count;
	/* places where objects begin to live, but none from a free list: left out */
	size_t always_new;
	/* every way through _Py_NewReference has a site: the function is not to be probed */
	int object_sites;
	/*
	 * there are exported allocators whose code leads to no place that is probed: missing names
	 * them
	 */
	int ends_unseen;
	/* not every place is known, or to be probed, at which objects begin to live */
	int reuse_unseen;
	struct {
		char symbol[96];
		char why[128];
	} * missing; /* wishes with no site */
	size_t missing_count, missing_room;
	int large_blocks; /* growth: they are probed */
	/* every place is probed at which Python's allocators give a block, as far as is known */
	int complete;
	enum event_mode mode; /* as asked, or EVENT_MODE_EXACT where no other can be had */
	char mode_why[256];   /* why it is not the one that was asked for, else "" */
	struct abi_code
		/* as in struct abi_target, with addresses of the file */
		object_code[ABI_OBJECT_CODES];
	/*
	 * Growth: where the process's libc maps memory; owned. NULL: that is not followed,
	 * memory_why says why ("": it is not to be). A plan of its own, since it is of another
	 * file.
	 */
	struct plan *memory;
	struct elf_file *memory_file;
	char memory_why[160];
	/* of such a plan: where the break was; 0: the process had no heap yet */
	uint64_t program_break;
	/* which face of the allocator is probed, and why, per domain: for the reader */
	char level[320];
};

/*
 * Plans every allocator probe of a Python runtime's file: where requests end (pymalloc/sites.h), if
 * that is recognised. Else each domain is probed at one level, all its four functions together: at
 * the implementations (_PyObject_Malloc …, _PyMem_RawMalloc …) where their symbols are known,
 * PyMem_* being served by the obj ones; or at the public functions (PyObject_Malloc …). 0; -ENOENT
 * when there is no usable symbol at all; -ENOTSUP growth, and the function that makes pools is not
 * found; -ENOMEM. plan_free() releases.
 */
struct plan_opts {
	/*
	 * Census: the frees of blocks in pymalloc's pools are left out. Where only public functions
	 * can be probed the frees of large blocks cannot be told from those: exact. Growth: only
	 * the function that makes pools.
	 */
	enum event_mode mode; /* 0: exact */
	uint32_t pool_bytes;  /* of pymalloc's pools, growth mode; 0: 16 KiB */
	/* growth: blocks of more than EVENT_SMALL_BYTES, too, and their frees */
	int large_blocks;
	int public_only; /* the public functions, not their implementations */
	int no_reuse;    /* no probe where objects begin to live */
};
int plan_python(struct elf_file *file, const struct plan_opts *opts, struct plan *out);
/*
 * Adds the site of one function to a plan, which may be zero-initialised. 0; -ENOENT the file has
 * no such function; -EEXIST another site is in it (an alias); -ENOMEM.
 */
int plan_wish_add(struct plan *plan, struct elf_file *file, const struct plan_wish *wish);
void plan_free(struct plan *plan);

#endif
