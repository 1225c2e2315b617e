/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The tables of one process that its records build: code objects, stacks, live blocks, heap walks.
 *
 * Records refer to each other by id, and a reference may precede the description. So a slot is
 * allocated when an id is first seen: one per stack id, one per code id. A block refers to a stack
 * slot, a stack to its frames, a frame to its code slot. A late or repeated description then serves
 * everything that refers to it.
 */
#pragma once

#include <stdbool.h>

#include "abi/events.h"
#include "runtime/cpython/lines.h"
#include "snapshot/snapshot.h"
#include "trace/blocks/block_owners.h"
#include "trace/blocks/pages.h"
#include "trace/blocks/regions.h"
#include "trace/process/activity.h"
#include "trace/process/process_info.h"
#include "trace/process/window_allocs.h"
#include "trace/process/windows.h"
#include "util/address_set.h"
#include "util/id_map.h"
#include "util/strings.h"

struct event_census_large;
struct event_census_kinds;
struct event_census_chunks;

#define TRACE_UNKNOWN    "<unknown>"
#define TRACE_UNREPORTED "<not told>"
#define TRACE_BYTES_MAX  ((1ull << 59) - 1) /* limit of struct block */
#define TRACE_LINES_MAX  (1u << 20)         /* bytes; longer line tables are rejected */
#define TRACE_TEXT_MAX   (EVENT_MAX_TEXT * 4)

/*
 * A code object. Fields that could not be read are TRACE_UNKNOWN. The line table is usable once
 * lines_have == lines_bytes.
 */
struct code_entry {
	uint32_t filename, function; /* ids in the process's strings */
	uint32_t first_line;
	uint32_t lines_bytes;                /* size of the whole table */
	uint32_t lines_have;                 /* bytes received, contiguous from the start */
	uint32_t lines_capacity;             /* bytes allocated */
	uint32_t version;                    /* incremented when the content changes */
	uint8_t known;                       /* an EVENT_CODE was received */
	uint8_t filename_known, lines_known; /* lines_known: lines_bytes is valid */
	uint8_t *lines;
	struct lines_mark *marks; /* decoded from lines at version marked */
	uint32_t mark_count;
	uint32_t marked; /* 0: not decoded yet */
};

/* A distinct {code object, instruction}. frame is what it resolved to at version. */
struct frame_entry {
	uint32_t code; /* index in codes */
	int32_t lasti;
	uint32_t version; /* of the code object when resolved; 0: not resolved */
	uint32_t unread;  /* the file name or the line table is unknown */
	struct trace_frame frame;
};

/* The address of a native frame and its functions, innermost inlined function first. */
struct symbol_entry {
	uint64_t address;
	size_t first;   /* in symbol_frames */
	uint32_t file;  /* string: the mapped file, if it is known */
	uint32_t count; /* 0: no name */
	uint8_t known;  /* an EVENT_SYMBOL was received and is final */
	uint8_t named;  /* the record names the function */
	uint8_t slow;   /* EVENT_SYMBOL_SLOW */
};

#define STACK_NATIVE (1u << 31)

/* A stack. The first two indices are reserved. */
#define STACK_EMPTY     0u /* the stack without frames */
#define STACK_NO_MEMORY 1u /* stands for all stacks that could not be stored */
struct stack_entry {
	uint64_t first; /* in stack_frames */
	uint32_t nframe;
	uint32_t total;
	uint64_t waiting; /* allocations that refer to it while its record is missing */
	uint8_t known;
	uint8_t cut; /* 1 + enum abi_unwind_end: its native frames end early; 0: they do not */
	uint32_t activity; /* 1 + index of the first of its activities; 0: none */
};

/* A realloc in progress. */
struct pending {
	struct block block;
	/* UNSEEN: its old block is not in the table */
	enum { PENDING_NONE, PENDING_UNSEEN, PENDING_TAKEN } state;
};

#define RECENT_BLOCKS 2u

/*
 * The blocks that a thread has allocated last, to tell which of them it frees again soon.
 * Zero-initialise.
 */
struct recent {
	uint64_t blocks[RECENT_BLOCKS]; /* the newest first; 0: it was freed, or there is none */
};

struct thread_entry {
	uint32_t tid;
	char name[EVENT_THREAD_NAME]; /* "": not known yet */
	uint32_t owner; /* of its next blocks: its index in owners; OWNER_NONE: not known yet */
	uint32_t task;  /* that it runs, as trace/trace_threads.c has it; 0: none */
	struct pending pending[EVENT_LAYER_TABLES];
	/* the native block that it freed last; 0 after its next native allocation */
	uint64_t native_freed;
	struct recent recent[EVENT_LAYER_TABLES]; /* blocks of domain 0 */
	/*
	 * The thread's last request in Python's layer. BPF may emit a record just before the
	 * allocator acts, so a heap walk may not show the result yet.
	 */
	int last_freed; /* 1: freed last_address; 0: allocated it */
	uint64_t last_address;
	/* the block that it may have been about to receive when the heap walk began; 0: none */
	uint64_t in_flight;
};

/* A range of addresses that the current heap walk has read completely. */
struct census_range {
	uint64_t start, end;
};

/*
 * A block as the table had it when its pool was read, and the size derived from the object in it.
 */
struct census_size {
	uint64_t address, bytes;
	uint32_t stack, object_bytes;
};

/*
 * The results of past heap walks and the state of the current one. A walk flips the epoch. When it
 * ends, blocks that it showed and blocks allocated meanwhile carry the new epoch; pooled blocks
 * with the other one are dead.
 */
struct census {
	struct address_set old;  /* on the heap without an event: allocated before tracing */
	struct address_set died; /* freed during the heap walk */
	uint64_t *unconfirmed;   /* packed: shown by this walk but not in the table */
	size_t unconfirmed_count, unconfirmed_capacity;
	struct census_size *sizes;
	size_t size_count, size_capacity;
	struct census_range *walked; /* arenas of which every pool was read */
	size_t walked_count, walked_capacity;
	struct snapshot_coverage counts; /* of this walk */
	uint64_t id;                     /* of the current walk */
	uint64_t old_large;              /* large blocks allocated before tracing */
	/* when this walk and the last whole one began, since the process was first traced */
	uint32_t begun_ms, walked_ms;
	/* minimum and maximum of the table's large blocks during the walk */
	uint64_t large_low, large_high;
	unsigned int epoch : 1, running : 1;
	unsigned int known : 1; /* old is valid: a walk has completed */
};

/*
 * Everything that a process owns is charged to its account. The account's address is stable; the
 * rest of the structure may be moved.
 */
struct process_state {
	struct trace_process info;
	struct account *account;
	struct strings *strings; /* NULL once the process has ended */
	uint32_t unknown;        /* id of TRACE_UNKNOWN in strings */
	uint32_t unreported; /* the task of all its threads: TRACE_UNREPORTED; 0: they are told */
	struct census census;
	struct blocks *blocks[EVENT_LAYER_TABLES];
	/*
	 * Of a process that samples itself: for each block of the native layer the bytes that it
	 * stands for, in struct block.bytes. NULL: it does not.
	 */
	struct blocks *weights;
	struct regions regions;
	struct pages pages;
	struct trace_windows windows; /* EVENT_MODE_WINDOWS */
	struct activities activities;
	struct window_allocs *allocs; /* NULL: no windows so far */
	struct id_map stack_ids, frame_ids, code_ids, symbol_ids, tids;
	/* address of a pool -> size of its blocks, from its first block's last record */
	struct id_map pools;
	uint64_t births_ns; /* what struct block.born_ms counts from */
	struct stack_entry *stacks;
	size_t stack_count, stack_capacity;
	uint32_t *stack_frames; /* indices in frames, or with STACK_NATIVE in symbols */
	size_t stack_frame_count, stack_frame_capacity;
	struct frame_entry *frames;
	size_t frame_count, frame_capacity;
	struct symbol_entry *symbols;
	size_t symbol_count, symbol_capacity;
	struct trace_frame *symbol_frames;
	size_t symbol_frame_count, symbol_frame_capacity;
	struct snapshot_binary *binaries; /* of symbol_frames, by native; their strings are ours */
	size_t binary_count, binary_capacity;
	struct code_entry *codes;
	size_t code_count, code_capacity;
	struct thread_entry *threads;
	size_t thread_count, thread_capacity;
	struct block_owners owners;
	uint32_t last_tid, last_thread; /* cached: the thread of the last record and its index */
	struct snapshot *final;
	size_t final_bytes; /* charged for final */
	int table_kept;     /* the process has ended and its last table is in final: */
	uint64_t kept_blocks, kept_bytes;
	uint64_t inherited_bytes; /* blocks that it inherited from its parent */
	uint64_t ended_bytes;     /* charged for everything kept since it ended */
	int ended_large;          /* evicted before those that hold less */
};

/*
 * A traceback as known now, with inlined functions expanded, limited to the process's traceback
 * limit.
 */
struct traceback_frames {
	struct trace_frame frames[EVENT_MAX_FRAMES];
	uint32_t count; /* at least 1 */
	uint32_t total; /* including truncated frames */
	/* native frames whose file is too slow to read completely */
	uint32_t slow;
	/* unread: Python frames with unknown parts; unnamed: native frames without a name */
	uint32_t unread, unnamed;
};

/*
 * Do dead blocks stay in Python's table until a heap walk removes them? In windows without Python's
 * layer it is the native table.
 */
static inline bool state_needs_walk(const struct trace_process *info)
{
	return info->mode == EVENT_MODE_WINDOWS ||
	       ((info->mode == EVENT_MODE_CENSUS || info->mode == EVENT_MODE_GROWTH) &&
		(info->pooled || info->off));
}

/* The layer of which that holds; EVENT_LAYERS: none. */
static inline enum event_layer state_walked_layer(const struct trace_process *info)
{
	if (info->layers & 1u << EVENT_LAYER_PYTHON)
		return state_needs_walk(info) ? EVENT_LAYER_PYTHON : EVENT_LAYERS;
	return info->mode == EVENT_MODE_WINDOWS ? EVENT_LAYER_NATIVE : EVENT_LAYERS;
}

/* The layer whose blocks are seen in windows only, in EVENT_MODE_WINDOWS. */
static inline enum event_layer state_window_layer(const struct trace_process *info)
{
	return info->layers & 1u << EVENT_LAYER_PYTHON ? EVENT_LAYER_PYTHON : EVENT_LAYER_NATIVE;
}

static inline bool state_window_is_native(const struct process_state *process)
{
	return state_window_layer(&process->info) == EVENT_LAYER_NATIVE;
}

/* Are estimates from windows made by who has allocated, too: by thread, or by task? */
static inline bool state_windows_by_owner(const struct trace_process *info)
{
	return info->mode == EVENT_MODE_WINDOWS && (info->threads || info->tasks);
}

/*
 * Is a page with these bits one of the lines? In a sample, those without a known fault are those
 * whose fault was not in it, and the others stand for them.
 */
static inline bool state_pages_count(const struct process_state *process, uint8_t bits)
{
	unsigned int state = bits & PAGE_STATE;

	return state > PAGE_BEFORE && !(state >= PAGE_UNFAULTED && process->info.sample_bytes);
}

/* What a snapshot says of the block: snapshot_trace.flags. */
static inline uint32_t state_block_flags(const struct block *block)
{
	return (block->rounded ? SNAPSHOT_ROUNDED : 0) |
	       (block->inherited ? SNAPSHOT_INHERITED : 0);
}

/* When it was allocated, CLOCK_MONOTONIC; later, if born_ms is at its limit. */
static inline uint64_t state_birth_ns(const struct process_state *process,
				      const struct block *block)
{
	return process->births_ns + block->born_ms * 1000000ull;
}

/* Creates an empty table for each layer that has one. 0, -ENOMEM. */
int state_tables_new(struct blocks *tables[EVENT_LAYER_TABLES], struct account *account);
/* Makes every container of the process charge to the account. The process has no account yet. */
void state_account(struct process_state *process, struct account *account);
/*
 * Equivalent to tracemalloc.clear_traces(). Stacks and code objects stay, since they are sent only
 * once. 0, -ENOMEM.
 */
int state_clear(struct process_state *process);

/*
 * Index of the slot of a stack id, allocated at first use. Without memory returns STACK_NO_MEMORY
 * and counts it.
 */
uint32_t state_stack_index(struct process_state *process, uint64_t stack_id);
void state_traceback(struct process_state *process, uint32_t traceback,
		     struct traceback_frames *out);
/*
 * The mapped file of the outermost native frame of a stack; "": it does not begin with one.
 * Borrowed.
 */
const char *state_native_file(const struct process_state *process, uint32_t traceback);
/* Why the most recent frame of a traceback is <unknown>; SNAPSHOT_UNKNOWNS: it is known. */
enum snapshot_unknown state_unknown(struct process_state *process, uint32_t traceback);

/*
 * The thread of a record, created at first use; NULL: no memory. Borrowed until the next one is
 * created.
 */
struct thread_entry *state_thread_find(struct process_state *process, uint32_t tid);
/* The owner of blocks that the thread allocates now; OWNER_NONE: no memory. */
uint32_t state_owner(struct process_state *process, uint32_t tid);

/* Copies the parent's tables into a child that has none yet. 0; -ENOMEM, the child is unchanged. */
int state_inherit(struct process_state *child, const struct process_state *parent);
/* Frees everything that the process owns, including its strings, except info and final. */
void state_tables_free(struct process_state *process);
/* Frees the snapshot taken by state_finalize(). */
void state_final_free(struct process_state *process);

/*
 * Record handlers. The caller has checked that a record is 8-byte aligned and holds its fixed part.
 * Return 0 or -EBADMSG; on -ENOMEM and -EDQUOT the record is dropped and the state is unchanged.
 */
int state_alloc(struct process_state *process, const struct event_alloc *event);
int state_free(struct process_state *process, const struct event_free *event);
int state_realloc(struct process_state *process, const struct event_free *event);
int state_realloc_done(struct process_state *process, const struct event_alloc *event);
int state_reuse(struct process_state *process, const struct event_alloc *event);
/*
 * The process samples its native blocks itself from here on: the native table is emptied, and
 * records of malloc's probes are ignored (state_is_ignored()). 0, -ENOMEM; -EBADMSG: its native
 * layer is not traced.
 */
int state_self_sampled(struct process_state *process, uint64_t time_ns);
int state_alloc_weighted(struct process_state *process, const struct event_alloc_weighted *event);
bool state_is_ignored(const struct process_state *process, const struct event_alloc *event);
/* Empties the native table of a process that samples itself. 0, -ENOMEM. */
int state_weights_clear(struct process_state *process);
/* The bytes that a native block stands for, as its process says; 0: it does not sample itself. */
uint64_t state_weight(const struct process_state *process, const struct block *block);
/* The same in whole bytes for every block, and the probability with which it was sampled. */
uint64_t state_bytes(const struct process_state *process, enum event_layer layer,
		     const struct block *block);
double state_chance(const struct process_state *process, enum event_layer layer,
		    const struct block *block);
/* As trace_block_containing(). */
const struct block *state_block_containing(const struct process_state *process,
					   enum event_layer layer, uint64_t address);
int state_realloc_fail(struct process_state *process, const struct event_free *event);
int state_census(struct process_state *process, const struct event_census *event);
int state_census_thread(struct process_state *process, const struct event_mark *event);
int state_census_pool(struct process_state *process, const struct event_census_pool *event);
/*
 * state_census_sizes() notes object sizes; state_sizes_judge() compares them with the table once
 * all events from before the end of the walk have been processed.
 */
int state_census_sizes(struct process_state *process, const struct event_census_sizes *event);
void state_sizes_judge(struct process_state *process);
int state_census_done(struct process_state *process, const struct event_census *event);
/* Also for UNMAP, REMAP and PROTECT. */
int state_map(struct process_state *process, const struct event_map *event);
int state_fault(struct process_state *process, const struct event_fault *event);
int state_pages(struct process_state *process, const struct event_pages *event);
/*
 * Bitmask of 1 << enum event_layer, from the mode field of struct event_target or
 * event_mode_change.
 */
uint32_t state_layers(uint32_t mode);
int state_mode_change(struct process_state *process, const struct event_mode_change *event);
void state_census_free(struct census *census);
/* An arena that the walk has read. */
int state_census_arena(struct process_state *process, const struct event_census_arena *event);
/* A block was freed, whether or not it was in the table. */
void state_census_died(struct process_state *process, uint64_t address);
/* Adds the block or replaces the one at its address, and counts. 0, -EBADMSG, -ENOMEM. */
int state_block_put(struct process_state *process, enum event_layer layer,
		    const struct block *block);
/* Updates the counters for a block that was removed from the table. */
void state_block_gone(struct process_state *process, enum event_layer layer,
		      const struct block *block);
int state_stack(struct process_state *process, const struct event_stack *event);
int state_symbol(struct process_state *process, const struct event_symbol *event);
int state_code(struct process_state *process, const struct event_code *event);
int state_code_lines(struct process_state *process, const struct event_code_lines *event);

/*
 * Record handlers: what walks and looks show of the blocks of a process that is traced in windows.
 * They return as those of process_tables.h.
 */

/* What is in the blocks of a pool. */
int state_census_kinds(struct process_state *process, const struct event_census_kinds *event);
/* What is at the addresses of Python's large blocks that were seen in windows. */
int state_census_large(struct process_state *process, const struct event_census_large *event);
/*
 * All allocated blocks, where the windows are those of the native layer. Blocks that were seen, and
 * at whose address it does not show a chunk of the same size, have died.
 */
int state_census_chunks(struct process_state *process, const struct event_census_chunks *event);
