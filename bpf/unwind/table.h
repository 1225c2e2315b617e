/* SPDX-License-Identifier: GPL-2.0 OR Apache-2.0 */
/*
 * Unwind tables: from a code address to the rule that finds its frame's caller (abi/unwind.h).
 *
 * The kernel is asked which file is mapped at the address (bpf_find_vma(), and mapping.h while the
 * mappings are locked), so that forks, execs and libraries that come and go need no list of
 * mappings. User space is asked once for a file's table. The rules of a thread's recent addresses
 * are cached, until code is mapped or unmapped: then the number of executable pages of the process
 * changes.
 */
#pragma once

#include "state.h"
#include "unwind/mapping.h"

#define UNWIND_KNOWN 256
#define UNWIND_WORDS 128 /* of the stack, copied at once */

#define EBUSY           16
#define VM_EXEC         4
#define CTIME_NSEC_MASK 0x7fffffffu /* without I_CTIME_QUERIED (6.13+) */

struct unwind_known {
	__u64 tag; /* address | version << 48; 0: none */
	struct abi_unwind_rule rule;
};

/* The rows of one page of a table. */
struct unwind_page {
	__u32 table, version;
	__u32 row, count;
};

/* A walk in progress, and what is kept between a thread's walks. */
struct unwind_state {
	__u64 pc, sp, bp;              /* of the current frame */
	__u64 top;                     /* no frame lies above it */
	__u64 base;                    /* address of what window is a copy of */
	__u64 start_stack;             /* the end of the first thread's stack */
	__u64 thread_pointer;          /* the end of the stack of another one */
	__u64 exec_pages, exec_id;     /* of the process, and of its program */
	__u64 known_pages, known_exec; /* the same, when known[] was begun */
	__u32 version;                 /* of unwind_version, when known[] was begun */
	__u32 words;                   /* valid ones in window */
	__u32 end;                     /* why it ended: enum abi_unwind_end, or UNWIND_WHOLE */
	__u32 is_interrupted;          /* pc is no return address */
	__u32 is_guess;                /* pc was found by a frame pointer */
	int found;                     /* what rule_find() returned for pc */
	__u64 trampoline;              /* where functions with a return probe return to; 0: none */
	struct abi_unwind_rule rule;   /* of pc */
	struct event_unwind_file file; /* the file mapped at pc */
	__u32 beyond;                  /* frames counted beyond the limit */
	__u32 is_code, is_file;        /* it is executable, it is of a file */
	struct unwind_page page;       /* of its table */
	__u64 code[2];                 /* bytes of code at pc */
	struct mapping_tree tree;      /* where pc's mapping is searched while they are locked */
	__u64 window[UNWIND_WORDS];
	struct unwind_known known[UNWIND_KNOWN];
};

#define UNWIND_WHOLE 0xffffffffu

TASK_STATE(unwinds, struct unwind_state)

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, ABI_UNWIND_TABLES_MAX);
	__type(key, struct abi_unwind_key);
	__type(value, __u32);
} unwind_files SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, ABI_UNWIND_TABLES_MAX);
	__type(key, __u32);
	__type(value, struct abi_unwind_table);
} unwind_tables SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, ABI_UNWIND_RULES_MAX);
	__type(key, __u32);
	__type(value, struct abi_unwind_rule);
} unwind_rules SEC(".maps");

struct unwind_rows {
	struct abi_unwind_row rows[ABI_UNWIND_CHUNK];
};

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, ABI_UNWIND_ROWS_MAX / ABI_UNWIND_CHUNK);
	__type(key, __u32);
	__type(value, struct unwind_rows);
} unwind_rows SEC(".maps");

/* The index of each page's first row. */
struct unwind_pages {
	__u32 first[ABI_UNWIND_CHUNK];
};

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, ABI_UNWIND_PAGES_MAX / ABI_UNWIND_CHUNK);
	__type(key, __u32);
	__type(value, struct unwind_pages);
} unwind_pages SEC(".maps");

/*
 * Files whose table is asked for. A ring buffer of its own: user space is woken at once, since all
 * stacks through the file end there until it answers.
 */
struct {
	__uint(type, BPF_MAP_TYPE_RINGBUF);
	__uint(max_entries, 64 << 10);
} unwind_wanted SEC(".maps");

/* 1: user space loads tables. */
__u32 has_tables;

/* Incremented when cached rules may be void. */
__u32 unwind_version = 1;

static __always_inline __u64 inode_changed_ns(const struct inode *inode)
{
	const struct inode___6_6 *inode_6_6 = (const void *)inode;
	const struct inode___5_15 *inode_5_15 = (const void *)inode;

	if (bpf_core_field_exists(inode->i_ctime_sec))
		return BPF_CORE_READ(inode, i_ctime_sec) * 1000000000ull +
		       (BPF_CORE_READ(inode, i_ctime_nsec) & CTIME_NSEC_MASK);
	if (bpf_core_field_exists(inode_6_6->__i_ctime))
		return BPF_CORE_READ(inode_6_6, __i_ctime.tv_sec) * 1000000000ull +
		       BPF_CORE_READ(inode_6_6, __i_ctime.tv_nsec);
	return BPF_CORE_READ(inode_5_15, i_ctime.tv_sec) * 1000000000ull +
	       BPF_CORE_READ(inode_5_15, i_ctime.tv_nsec);
}

/* Notes the mapping that the byte before unwind->pc lies in. */
static __always_inline void mapping_take(struct unwind_state *unwind,
					 const struct vm_area_struct *area)
{
	struct event_unwind_file *wanted = &unwind->file;
	const struct inode *inode;
	const struct file *file;

	if (!(BPF_CORE_READ(area, vm_flags) & VM_EXEC))
		return;
	unwind->is_code = 1;
	file = BPF_CORE_READ(area, vm_file);
	if (!file)
		return;
	inode = BPF_CORE_READ(file, f_inode);
	unwind->is_file = 1;
	wanted->offset = BPF_CORE_READ(area, vm_pgoff) * page_bytes;
	wanted->start = BPF_CORE_READ(area, vm_start);
	wanted->end = BPF_CORE_READ(area, vm_end);
	wanted->offset += unwind->pc - 1 - wanted->start;
	wanted->key.inode = BPF_CORE_READ(inode, i_ino);
	wanted->key.device = BPF_CORE_READ(inode, i_sb, s_dev);
	wanted->key.changed_ns = inode_changed_ns(inode);
	wanted->key.rows = SIGNAL_IN_ROWS && unwind->is_interrupted ? ABI_UNWIND_ROWS_ALL
								    : ABI_UNWIND_ROWS_CALLS;
}

static __noinline long mapping_note(struct task_struct *task UNUSED, struct vm_area_struct *area,
				    void *context)
{
	mapping_take(*(struct unwind_state **)context, area);
	return 0;
}

/* The same for one that was found in the tree of mappings. 0; -1: it has changed meanwhile. */
static __noinline int mapping_check(struct unwind_state *unwind, const struct vm_area_struct *area)
{
	mapping_take(unwind, area);
	return tree_still_has(&unwind->tree, area) ? 0 : -1;
}

/* 0; -EBUSY: the mappings are locked; -errno: there is none. */
static __noinline int mapping_find(struct unwind_state *unwind)
{
	struct task_struct *task = bpf_get_current_task_btf();

	unwind->is_code = 0;
	unwind->is_file = 0;
	return bpf_find_vma(task, unwind->pc - 1, mapping_note, &unwind, 0);
}

/* Asks user space for the table of unwind->file, once. */
static __noinline int table_ask(struct unwind_state *unwind)
{
	struct event_unwind_file *wanted = &unwind->file;
	__u32 asked = ABI_UNWIND_WANTED;

	if (bpf_map_update_elem(&unwind_files, &wanted->key, &asked, BPF_NOEXIST))
		return -1;
	header_fill(&wanted->header, EVENT_UNWIND_FILE, sizeof(*wanted));
	/* Not a loss: the file is asked for again. */
	if (bpf_ringbuf_output(&unwind_wanted, wanted, sizeof(*wanted), BPF_RB_FORCE_WAKEUP))
		bpf_map_delete_elem(&unwind_files, &wanted->key);
	return 0;
}

static __always_inline struct abi_unwind_row row_at(__u32 index)
{
	__u32 chunk = index / ABI_UNWIND_CHUNK;
	struct unwind_rows *rows = bpf_map_lookup_elem(&unwind_rows, &chunk);

	return rows ? rows->rows[index & (ABI_UNWIND_CHUNK - 1)] : (struct abi_unwind_row){0};
}

static __always_inline __u32 page_at(__u32 index)
{
	__u32 chunk = index / ABI_UNWIND_CHUNK;
	struct unwind_pages *pages = bpf_map_lookup_elem(&unwind_pages, &chunk);

	return pages ? pages->first[index & (ABI_UNWIND_CHUNK - 1)] : 0;
}

/* The rule of the last of `count` rows from `row` on whose low is <= low; 0: there is none. */
__noinline __u32 rows_search(__u32 row, __u32 count, __u32 low)
{
	struct abi_unwind_row found;
	int i;

	for (i = 0; i < ABI_UNWIND_STEPS && count > 1; i++) {
		__u32 half = count / 2;
		/* 1: the row is not above low. The verifier would follow a branch. */
		__u64 is_below = (row_at(row + half).low - (__u64)low - 1) >> 63;

		row += half & -(__u32)is_below;
		count -= half;
	}
	found = row_at(row);
	return count && found.low <= low ? found.rule : 0;
}

enum { UNWIND_BY_FRAME = 100 }; /* no table describes the code: it may keep frame pointers */

/* Finds the page that describes unwind->file.offset. 0; else enum abi_unwind_end + 1. */
static __noinline int page_find(struct unwind_state *unwind)
{
	struct unwind_page *out = &unwind->page;
	struct abi_unwind_table *table = bpf_map_lookup_elem(&unwind_tables, &out->table);
	__u32 page, last;

	if (!table)
		return ABI_UNWIND_CUT_TABLE + 1;
	out->version = *(volatile __u32 *)&table->version;
	page = (unwind->file.offset >> ABI_UNWIND_PAGE_BITS) - table->first_page;
	if (page >= table->npages)
		return UNWIND_BY_FRAME;
	page += table->pages;
	out->row = page_at(page);
	last = page_at(page + 1);
	out->count = last > out->row ? last - out->row : 0;
	return 0;
}

/*
 * A page of 64 KiB without a row is not assembly in a compiled program, but a body of generated
 * code (V8's builtins in node): it is walked as code that is compiled at run time.
 *
 * Sets unwind->rule to the one with this index, if the table that the index was read from is still
 * the same. 0; else enum abi_unwind_end + 1.
 */
static __noinline int rule_take(struct unwind_state *unwind, __u32 index)
{
	struct abi_unwind_table *table = bpf_map_lookup_elem(&unwind_tables, &unwind->page.table);
	struct abi_unwind_rule *rule = bpf_map_lookup_elem(&unwind_rules, &index);
	__u64 tick = bpf_jiffies64();

	if (!table || !rule)
		return ABI_UNWIND_CUT_TABLE + 1;
	unwind->rule = *rule;
	if (unwind->page.version & 1 || unwind->page.version != *(volatile __u32 *)&table->version)
		return ABI_UNWIND_CUT_TABLE + 1;
	if (table->used != tick)
		table->used = tick;
	if (index)
		return unwind->rule.kind == ABI_UNWIND_FRAME ? UNWIND_BY_FRAME : 0;
	return unwind->page.count <= 1 ? UNWIND_BY_FRAME : ABI_UNWIND_CUT_ROW + 1;
}

/*
 * Finds the table of the code at unwind->pc, whose mapping was looked for. 0; else enum
 * abi_unwind_end + 1, or UNWIND_BY_FRAME.
 */
static __noinline int table_find(struct unwind_state *unwind)
{
	__u32 *number;

	if (!unwind->is_code)
		return ABI_UNWIND_CUT_CODE + 1;
	if (!unwind->is_file)
		return UNWIND_BY_FRAME;
	number = bpf_map_lookup_elem(&unwind_files, &unwind->file.key);
	if (!number) {
		table_ask(unwind);
		return ABI_UNWIND_CUT_TABLE + 1;
	}
	if (*number == ABI_UNWIND_ABSENT)
		return UNWIND_BY_FRAME;
	unwind->page.table = *number;
	return *number == ABI_UNWIND_WANTED ? ABI_UNWIND_CUT_TABLE + 1 : 0;
}

/*
 * Drops the cached rules if code was mapped or unmapped since they were found, or if they are of
 * another program: one that is not position-independent has its code at the same addresses.
 */
static __always_inline void rules_validate(struct unwind_state *unwind)
{
	__u64 pages = unwind->exec_pages, exec_id = unwind->exec_id;
	__u32 version = *(volatile __u32 *)&unwind_version;

	/* The process's other threads may not see the change: they may not walk in between. */
	if ((pages != unwind->known_pages || exec_id != unwind->known_exec) &&
	    unwind->known_pages && version == unwind->version)
		version = __sync_fetch_and_add(&unwind_version, 1) + 1;
	unwind->known_pages = pages;
	unwind->known_exec = exec_id;
	unwind->version = version;
}

/*
 * Notes what a walk needs of the running process. Global: the verifier searches all of the kernel's
 * types by name where a pointer of a task is followed, for each path to there.
 */
__noinline int process_note(struct unwind_state *unwind)
{
	struct task_struct *task = (void *)bpf_get_current_task_btf();
	struct mm_struct *mm = task->mm;

	if (!unwind)
		return 0;
	unwind->tree.mm = mm;
	unwind->start_stack = mm->start_stack;
	unwind->exec_pages = mm->exec_vm;
	unwind->exec_id = task->self_exec_id;
	unwind->thread_pointer = THREAD_POINTER(task);
	return 0;
}

/*
 * A return address that no call has pushed leads to a function's first instruction, so that the
 * byte before it says nothing. Two such functions are known by their code: a signal's return (not
 * every libc has unwind information for it), and the end of a context's function (glibc's
 * __start_context, where makecontext()'s stack begins; its information is not marked so). Sets
 * unwind->rule and returns 0, or returns `found`.
 */
__noinline int code_recognize(struct unwind_state *unwind, int found)
{
	__u32 kind = ABI_UNWIND_NONE;
	__u64 *code;

	if (!unwind)
		return found;
	code = unwind->code;
	if (unwind->is_interrupted || found == ABI_UNWIND_CUT_CODE + 1 ||
	    bpf_probe_read_user(code, sizeof(unwind->code), (void *)unwind->pc))
		return found;
	if (IS_SIGNAL_RETURN(code))
		kind = ABI_UNWIND_SIGNAL;
	else if (IS_CONTEXT_END(code))
		kind = ABI_UNWIND_END;
	if (!kind)
		return found;
	unwind->rule = (struct abi_unwind_rule){.kind = kind};
	return 0;
}

static __always_inline struct unwind_known *known_at(struct unwind_state *unwind)
{
	return &unwind->known[(unwind->pc ^ unwind->pc >> 8) & (UNWIND_KNOWN - 1)];
}

static __always_inline __u64 known_tag(const struct unwind_state *unwind)
{
	return unwind->pc | (__u64)unwind->version << 48;
}

/*
 * Sets unwind->rule to that of the code at unwind->pc, a return address: it is looked up as the
 * calling instruction's. Returns as table_find().
 */
static __always_inline int rule_find(struct unwind_state *unwind)
{
	const struct vm_area_struct *area = NULL;
	struct unwind_known *known;
	int result = mapping_find(unwind);

	if (result == -EBUSY)
		area = (void *)tree_find(&unwind->tree, unwind->pc - 1);
	if (result == -EBUSY && (!area || mapping_check(unwind, area)))
		result = ABI_UNWIND_CUT_BUSY + 1;
	else
		result = table_find(unwind);
	if (!result)
		result = page_find(unwind);
	if (!result)
		result = rule_take(unwind,
				   rows_search(unwind->page.row, unwind->page.count,
					       unwind->file.offset & (ABI_UNWIND_PAGE_BYTES - 1)));
	result = code_recognize(unwind, result);
	if (result)
		return result;
	known = known_at(unwind);
	known->rule = unwind->rule;
	known->tag = known_tag(unwind);
	return 0;
}
