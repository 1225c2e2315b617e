/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The probe planner, pure: takes a file's symbols and bytes, returns a list of probe sites. It
 * picks the instruction in the function, because that decides the cost: an instruction that the
 * kernel emulates (push of a register, nop, relative jmp/jcc/call) costs one trap, any other costs
 * two.
 *
 * For each function it decodes the straight-line entry path (Capstone). It takes the first emulated
 * instruction at which every argument is still in a known register and which is no jump target.
 * Where the return value is wanted, the stack pointer must still have its value at the entry. If
 * there is no such instruction, it takes the entry and records why.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "abi/events.h"
#include "abi/target.h"
#include "probe/place/site.h"

/* Does the site see frees of blocks in pymalloc's pools? Census mode does not need them. */
bool plan_site_is_pool_free(const struct plan_site *site);

/*
 * Is the site hit by requests for small blocks or by the beginning of objects, and so very often?
 */
bool plan_site_is_pooled(const struct plan_site *site);
/* Is it hit where pymalloc takes a pool into use, which is seldom? */
bool plan_site_is_new_pool(const struct plan_site *site);
/* Is it hit by requests of Python's that malloc serves: large blocks, PyMem_Raw*? */
bool plan_site_is_passed_on(const struct plan_site *site);

struct elf_file;
struct plan {
	struct plan_site *sites;
	size_t count, capacity;
	/* the first inlined_count sites are in inlined copies */
	size_t inlined_count;
	/* sites omitted because the object there never comes from a free list */
	size_t always_new;
	/* every path through _Py_NewReference has a site: do not probe the function */
	int object_sites;
	/* code of exported allocators does not lead to any probed site: missing names them */
	int ends_unseen;
	/* some sites where objects begin to live are unknown, or cannot be probed */
	int reuse_unseen;
	struct {
		char symbol[96];
		char why[128];
	} * missing; /* probe specs without a site */
	size_t missing_count, missing_capacity;
	/* plans with these arrays, which none of them may change (plan_share()); NULL: one */
	unsigned int *users;
	int missing_dropped; /* there was no memory to list all that are missing */
	int large_blocks;    /* growth: large blocks are probed */
	/* the file has the USDT probes of a process that samples itself; these are all sites */
	int self_sampled;
	/* every known site at which Python's allocators return a block is probed */
	int complete;
	enum event_mode mode; /* as requested, or EVENT_MODE_EXACT if that mode is not available */
	char mode_why[256];   /* why the requested mode is not available, else "" */
	/* as in struct abi_target, with addresses of the file */
	struct abi_code object_code[ABI_OBJECT_CODES];
	uint32_t record_calls[ABI_RECORD_CALLS]; /* from record_base 0 on */
	/*
	 * Growth: sites where the process's libc maps memory; owned. It is a plan of its own
	 * because it is for another file. NULL: mappings are not followed; memory_why has the
	 * reason ("": they were not requested).
	 */
	struct plan *memory;
	struct elf_file *memory_file;
	char memory_why[160];
	/* of a memory plan: the break; 0: the process had no heap yet */
	uint64_t program_break;
	/* for people: at which level each allocator domain is probed, and why */
	char level[320];
};

/*
 * Plans every allocator probe of a Python runtime's file. If the code analysis recognises pymalloc,
 * the sites are where requests end (probe/pymalloc/sites.h). Otherwise each domain is probed at one
 * level, with all four functions at the same level: at the implementations (_PyObject_Malloc …,
 * _PyMem_RawMalloc …) if their symbols are known, where the obj ones also serve PyMem_*; or at the
 * public functions (PyObject_Malloc …). 0; -ENOENT no usable symbol at all; -ENOTSUP growth, and
 * the function that makes pools is not found; -ENOMEM. plan_free() releases.
 */
struct plan_opts {
	/*
	 * Census: leaves out the frees of blocks in pymalloc's pools. Where only public functions
	 * can be probed, the frees of large blocks cannot be told from those, and the plan is
	 * exact. Growth: only the function that makes pools.
	 */
	enum event_mode mode; /* 0: exact */
	uint32_t pool_bytes;  /* size of pymalloc's pools, for these; 0: 16 KiB */
	/* exact, census: also where pools are taken into use, if all of these places are known */
	int pools;
	/* growth: also probe blocks of more than EVENT_SMALL_BYTES, and their frees */
	int large_blocks;
	int public_only; /* the public functions, not their implementations */
	int no_reuse;    /* no probe where objects begin to live */
	/* the file is a build without the GIL: its small blocks are mimalloc's */
	int free_threaded;
};
int plan_python(struct elf_file *file, const struct plan_opts *opts, struct plan *out);
/*
 * Adds the site of one function to a plan, which may be zero-initialised. 0; -ENOENT the file has
 * no such function; -EEXIST the function (or an alias) has a site already; -ENOMEM.
 */
int probe_spec_add(struct plan *plan, struct elf_file *file, const struct probe_spec *spec);
/*
 * Makes out the same plan, with the same arrays: a third of a megabyte for each process otherwise.
 * The plan has no memory plan. 0, -ENOMEM (error_set).
 */
int plan_share(struct plan *out, struct plan *plan);
void plan_free(struct plan *plan);
