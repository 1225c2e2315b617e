/* SPDX-License-Identifier: GPL-2.0 OR Apache-2.0 */
/* Records of perf maps and of GDB's JIT interface, from bpf/perfmap.bpf.c. */
#pragma once

#include "abi/event_types.h"

#define EVENT_MAX_MAP_NAME 4096u /* bytes kept of a name in a perf map */

#define EVENT_MAP_MISSED 1u /* the name was not resident; user space may still read name_address */
#define EVENT_MAP_CUT    2u /* the name is longer */
#define EVENT_MAP_MAPPED 4u /* there is memory at address */

struct event_map_text {
	struct event_header header;
	__u64 address;
	__u64 bytes; /* of code */
	__u64 name_address;
	__u32 name_bytes;
	__u32 flags; /* EVENT_MAP_* */
	__u8 name[]; /* no NUL */
};

struct event_map_call {
	struct event_header header;
	__u32 function; /* enum abi_op: ABI_OP_MAP_INIT, _FINI, _COMPILE, _PERSIST */
	__s32 value;    /* INIT: what it returned; PERSIST: its argument */
};

/* <gdb>/gdb/jit.h: struct jit_descriptor and its relevant entry, as they were at the call. */
struct event_map_jit {
	struct event_header header;
	__u32 action; /* 1: the image was registered; 2: it is about to be unregistered */
	__u32 pad;
	__u64 entry;
	__u64 image;
	__u64 image_bytes;
};

_Static_assert(sizeof(struct event_map_text) == 56, "map_text");
_Static_assert(sizeof(struct event_map_call) == 32, "map_call");
_Static_assert(sizeof(struct event_map_jit) == 56, "map_jit");
