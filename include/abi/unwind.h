/* SPDX-License-Identifier: GPL-2.0 OR Apache-2.0 */
/*
 * Unwind tables: how a frame's caller is found in code without frame pointers. user/object/unwind/
 * compiles them from .eh_frame, user/attach/unwind/ writes them to BPF maps, bpf/unwind/ reads
 * them.
 *
 * A table describes one file. Its addresses are *file offsets* (those of the bytes, not p_vaddr): a
 * mapping's address - start + offset in the file is then all that a lookup needs. A return address
 * is looked up as address - 1, which lies in the calling instruction. Only rows in which a call or
 * a syscall instruction ends or begins are kept, so a lookup of another address has no meaning. A
 * file whose code a signal has interrupted anywhere gets a second table, of all its rows.
 *
 * Rows are sorted by offset. A row is valid up to the next one. Pages of 64 KiB index them: the
 * rows of page p, counted from the table's first page, are rows[pages[p]] to
 * rows[pages[p + 1] - 1], and a row that is valid at the begin of a page is repeated there with low
 * 0 (unless no row is valid there). So a lookup searches one page: the last row whose low is <=
 * offset & 0xffff.
 */
#pragma once

#include <linux/types.h>

#define ABI_UNWIND_PAGE_BITS  16
#define ABI_UNWIND_PAGE_BYTES (1u << ABI_UNWIND_PAGE_BITS)
/* steps of a binary search in a page: 2^16 rows, one at each offset */
#define ABI_UNWIND_STEPS 17

struct abi_unwind_row {
	__u16 low;  /* offset & 0xffff */
	__u16 rule; /* index of a rule: of the file's own, and of all files' in BPF's map */
};

/*
 * How the canonical frame address (CFA) is found: the caller's rsp. The return address is at
 * CFA - 8 in all of them (x86-64).
 */
enum abi_unwind_kind {
	ABI_UNWIND_NONE = 0,   /* not covered by a table, or by a rule that has no kind */
	ABI_UNWIND_RSP = 1,    /* CFA = rsp + cfa */
	ABI_UNWIND_RBP = 2,    /* CFA = rbp + cfa */
	ABI_UNWIND_AT_RSP = 3, /* CFA = *(rsp + low half of cfa) + high half of cfa, both signed */
	ABI_UNWIND_AT_RBP = 4, /* the same with rbp */
	ABI_UNWIND_END = 5,    /* the outermost frame: it has no return address */
	ABI_UNWIND_SIGNAL = 6, /* the kernel's frame of a signal: rsp points to a struct ucontext */
	ABI_UNWIND_FRAME = 7,  /* a body of code without information: it may keep frame pointers */
	/* CFA = rsp + 8, from byte cfa of a stub of 16 bytes on rsp + 16 (a PLT's) */
	ABI_UNWIND_STUB = 8,
	ABI_UNWIND_KIND_COUNT
};

/*
 * On arm64 rsp and rbp are sp and x29, and the return address is in the word after that of x29,
 * where functions store the pair.
 */

/* flags: the caller's rbp is *rbp (functions that realign their stack), and rbp is 0 */
#define ABI_UNWIND_RBP_AT_RBP 1u
/* arm64: x29 is unchanged, and rbp says where the return address is */
#define ABI_UNWIND_RETURN_ALONE 2u

struct abi_unwind_rule {
	__s32 cfa;  /* bytes */
	__s16 rbp;  /* the caller's rbp is at CFA + 8 * rbp; 0: it is unchanged */
	__u8 kind;  /* enum abi_unwind_kind */
	__u8 flags; /* ABI_UNWIND_RBP_AT_RBP, ABI_UNWIND_RETURN_ALONE */
};

/* cfa of ABI_UNWIND_AT_*. */
#define ABI_UNWIND_CFA_AT(at, addend) ((__s32)((__u32)(__u16)(at) | (__u32)(__u16)(addend) << 16))

/* Rule 0 of a file, and of BPF's map of all files' rules, is {0}: not covered. */
#define ABI_UNWIND_RULES_MAX 65536u

/*
 * A file's identity as the kernel has it. The change time tells a file from the one that replaced
 * it, in place or at a reused inode number. Behind an overlay it is the underlying file's.
 */
struct abi_unwind_key {
	__u64 inode;
	__u64 changed_ns;
	__u32 device; /* dev_t of the kernel: major << 20 | minor */
	__u32 rows;   /* enum abi_unwind_rows, of the table */
};

enum abi_unwind_rows {
	ABI_UNWIND_ROWS_CALLS = 0,
	ABI_UNWIND_ROWS_ALL = 1, /* for interrupted code */
};

/* Limits of BPF's maps, all files together. */
#define ABI_UNWIND_CHUNK      1024u /* rows or pages in a value of their maps */
#define ABI_UNWIND_ROWS_MAX   (2u << 20)
#define ABI_UNWIND_PAGES_MAX  (256u << 10)
#define ABI_UNWIND_TABLES_MAX 4096u

/* Value of BPF's map of files: the number of a file's table, or one of these. */
#define ABI_UNWIND_WANTED 0xffffffffu /* user space has been asked for it */
#define ABI_UNWIND_ABSENT 0xfffffffeu /* it has none: frame pointers are followed */

/* A file's table, at its number in BPF's map of tables. */
struct abi_unwind_table {
	/*
	 * Odd while it is not valid. A lookup that finds another version after it than before
	 * counts as not made: the rows may have been replaced.
	 */
	__u32 version;
	__u32 first_page; /* file offset >> ABI_UNWIND_PAGE_BITS */
	__u32 npages;
	__u32 pages; /* index of its first page, which has npages + 1 entries, in BPF's map */
	__u64 used;  /* kernel tick of a recent lookup, written by BPF */
};

/* Why a walk ended. Numbers are only appended: they are in stack records. */
enum abi_unwind_end {
	ABI_UNWIND_CUT_FRAME = 0,  /* no valid frame pointer, in code without a table */
	ABI_UNWIND_CUT_TABLE = 1,  /* the file's table is not loaded yet, or was dropped */
	ABI_UNWIND_CUT_ROW = 2,    /* the file's table does not cover the address */
	ABI_UNWIND_CUT_RULE = 3,   /* covered by a rule that the walk cannot follow */
	ABI_UNWIND_CUT_CODE = 4,   /* the return address is in no executable mapping */
	ABI_UNWIND_CUT_READ = 5,   /* a word of the stack is not resident */
	ABI_UNWIND_CUT_BOUNDS = 6, /* the next frame is outside of the stack */
	/* code that a signal interrupted at no call, and no table of all rows describes it (yet) */
	ABI_UNWIND_CUT_SIGNAL = 7,
	ABI_UNWIND_CUT_RETURN =
		8,               /* the return address is a return probe's, the real one unknown */
	ABI_UNWIND_CUT_BUSY = 9, /* the process's mappings were locked, or just changing */
	ABI_UNWIND_CUT_COUNT,
};

_Static_assert(sizeof(struct abi_unwind_row) == 4, "unwind row");
_Static_assert(sizeof(struct abi_unwind_rule) == 8, "unwind rule");
_Static_assert(sizeof(struct abi_unwind_key) == 24, "unwind key");
_Static_assert(sizeof(struct abi_unwind_table) == 24, "unwind table");
