/* SPDX-License-Identifier: GPL-2.0 OR Apache-2.0 */
/* Records of stacks, of the code objects that their frames run, and of native symbols. */
#pragma once

#include "abi/event_types.h"
#include "abi/unwind.h"

#define EVENT_MAX_FRAMES    128u  /* the longest traceback that can be requested */
#define EVENT_MAX_TEXT      1024u /* bytes kept of a file name or of a qualified name */
#define EVENT_MAX_LINES     4096u /* bytes of a line table in one EVENT_CODE_LINES record */
#define EVENT_MAX_LINES_ALL (64u * EVENT_MAX_LINES) /* longest line table that BPF copies */

enum event_frame_kind {
	EVENT_FRAME_PYTHON = 0,
	/* code_id is a return address: code_id - 1 is within the calling instruction */
	EVENT_FRAME_NATIVE = 1,
};

struct event_frame {
	__u64 code_id; /* names an EVENT_CODE record; 0: the frame could not be read */
	__s32 lasti;   /* current instruction, bytes from the bytecode's start; -1: not started */
	__u32 kind;    /* enum event_frame_kind */
};

/*
 * In event_stack.total: the native frames end before the stack does, and why (enum
 * abi_unwind_end).
 */
#define EVENT_STACK_CUT      0x80000000u
#define EVENT_STACK_REASON   24 /* shift, 7 bits */
#define EVENT_STACK_REASONS  0x7fu
#define EVENT_STACK_TOTAL    0x00ffffffu
#define EVENT_STACK_WHY(end) (EVENT_STACK_CUT | (__u32)(end) << EVENT_STACK_REASON)

/*
 * Native frames come first, the most recent one first; the Python frames that called into them
 * follow. The interpreter's own C functions lie between the two: all are left out but the innermost
 * one.
 */
struct event_stack {
	struct event_header header;
	__u64 stack_id;
	__u32 nframe; /* frames that follow, most recent first */
	/* frames on the stack when it was sent, including those beyond nframe | EVENT_STACK_CUT */
	__u32 total;
	struct event_frame frames[];
};

/* A file that a walk has met, of which user space has loaded no unwind table yet. */
struct event_unwind_file {
	struct event_header header;
	struct abi_unwind_key key;
	__u64 start, end; /* of its mapping in the process header.tgid */
	__u64 offset;     /* of the code in the file */
};

/* Parts of a code object that BPF could not copy (page not resident, or too long). */
#define EVENT_MISS_FILENAME 1u
#define EVENT_MISS_QUALNAME 2u
#define EVENT_MISS_LINES    4u
#define EVENT_MISS_ALL      7u

/*
 * Text is copied as CPython stores it: `kind` bytes a character (1: Latin-1, 2: UCS-2, 4: UCS-4),
 * native order. data holds filename_bytes bytes of the file name, then qualname_bytes of the
 * qualified name (before 3.11, the plain name).
 */
struct event_code {
	struct event_header header;
	/* hash of the address and of the parts of the code object that do not change */
	__u64 code_id;
	__u64 address; /* of the PyCodeObject */
	__u32 first_line;
	__u32 missing;     /* EVENT_MISS_* */
	__u32 lines_bytes; /* of the whole line table */
	__u16 filename_kind;
	__u16 qualname_kind;
	__u32 filename_bytes;
	__u32 qualname_bytes;
	__u8 data[];
};

struct event_code_lines {
	struct event_header header;
	__u64 code_id;
	__u32 offset; /* of the first byte of data in the line table */
	__u32 bytes;
	__u8 data[];
};

/* The debug information took too long to read. A later record may have more frames. */
#define EVENT_SYMBOL_SLOW 1u
/* One more struct event_symbol_frame follows: its file name is that of the mapped file. */
#define EVENT_SYMBOL_FILE 2u
/* A struct event_symbol_binary is the last part: the mapped file is an ELF file. */
#define EVENT_SYMBOL_BINARY 4u

/*
 * Made by the session from the files that the process has mapped. If an address has several frames,
 * the innermost one, which was inlined into the next, comes first. Each is a struct
 * event_symbol_frame with its texts behind it, padded to 8 bytes.
 */
struct event_symbol {
	struct event_header header;
	__u64 address;
	__u32 count; /* of struct event_symbol_frame; 0: it has no name */
	__u32 flags; /* EVENT_SYMBOL_SLOW, EVENT_SYMBOL_FILE, EVENT_SYMBOL_BINARY */
	__u8 data[];
};

struct event_symbol_frame {
	__u32 line;                           /* 0: not known */
	__u16 function_bytes, filename_bytes; /* UTF-8, no NUL; at most EVENT_MAX_TEXT each */
	__u8 data[];
};

/* The segment of the mapped file that the address is in, in whole pages. */
struct event_symbol_binary {
	__u64 start, limit;   /* the file's own addresses (vaddr) */
	__u64 offset;         /* of start in the file */
	__u32 build_id_bytes; /* lower-case hex digits; 0: it has none */
	__u32 reserved;
	__u8 data[]; /* the build ID, padded to 8 bytes */
};

_Static_assert(sizeof(struct event_frame) == 16, "frame");
_Static_assert(sizeof(struct event_stack) == 40, "stack");
_Static_assert(__builtin_offsetof(struct event_code, first_line) == 40, "code.first_line");
_Static_assert(__builtin_offsetof(struct event_code, data) == 64, "code.data");
_Static_assert(sizeof(struct event_unwind_file) == 72, "unwind_file");
_Static_assert(sizeof(struct event_code_lines) == 40, "code_lines");
_Static_assert(sizeof(struct event_symbol) == 40, "symbol");
_Static_assert(sizeof(struct event_symbol_frame) == 8, "symbol_frame");
_Static_assert(sizeof(struct event_symbol_binary) == 32, "symbol_binary");
