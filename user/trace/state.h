/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The inside of struct trace, shared by trace*.c only.
 *
 * Whatever a record mentions before it is described gets its place at first mention: a stack id its
 * slot, a code id its entry. A block names the slot, a stack its frames, a frame its code entry; so
 * a description that comes late, or again, serves everything that mentioned it.
 */
#ifndef TRACER_TRACE_STATE_H
#define TRACER_TRACE_STATE_H

#include "base/address_set.h"
#include "base/id_map.h"
#include "python/lines.h"
#include "snapshot/snapshot.h"
#include "trace/regions.h"
#include "trace/trace.h"

#define TRACE_UNKNOWN   "<unknown>"
#define TRACE_BYTES_MAX ((1ull << 59) - 1) /* what struct block holds */
#define TRACE_LINES_MAX (1u << 20)         /* longest line table that is taken */
#define TRACE_TEXT_MAX  (EVENT_MAX_TEXT * 4)

/*
 * A code object. What could not be read is TRACE_UNKNOWN; lines are usable once have ==
 * lines_bytes.
 */
struct code_entry {
	uint32_t filename, function; /* ids in the process's strings */
	uint32_t first_line;
	uint32_t lines_bytes;                /* of the whole table */
	uint32_t lines_have;                 /* bytes known, from its start */
	uint32_t lines_room;                 /* bytes allocated */
	uint32_t version;                    /* changes with the content */
	uint8_t known;                       /* an EVENT_CODE came */
	uint8_t filename_known, lines_known; /* lines_known: lines_bytes is */
	uint8_t *lines;
	struct lines_mark *marks; /* of the lines, as of marked */
	uint32_t mark_count;
	uint32_t marked; /* version; 0: not yet */
};

/* A distinct {code object, instruction} and, as of version, the frame that it shows as. */
struct frame_entry {
	uint32_t code; /* index in codes */
	int32_t lasti;
	uint32_t version; /* of the code object; 0: not resolved */
	uint32_t unread;  /* its file name or its line table is not known */
	struct trace_frame frame;
};

/* The address of native frames, and what is inlined there, the innermost first. */
struct symbol_entry {
	uint64_t address;
	size_t first;   /* in symbol_frames */
	uint32_t count; /* 0: it has no name */
	uint8_t known;  /* an EVENT_SYMBOL has come, and no more will */
	uint8_t named;  /* it says what the function is called */
	uint8_t slow;   /* EVENT_SYMBOL_SLOW */
};

/* of what processes have together: what those that have ended keep, whoever asks for it */
#define STATE_KEEP_SHARE 4u

#define STACK_NATIVE (1u << 31)

/* A traceback. */
#define STACK_EMPTY   0u /* index of the one without frames */
#define STACK_NO_ROOM 1u /* of that of all for which there was no memory */
struct stack_entry {
	uint64_t first; /* in stack_frames */
	uint32_t nframe;
	uint32_t total;
	uint64_t waiting; /* allocations that name it, while its record has not come */
	uint8_t known;
	uint8_t cut; /* its native frames end early */
};

/* A realloc under way. */
struct pending {
	struct block block;
	/* UNSEEN: of a block not in the table */
	enum { PENDING_NONE, PENDING_UNSEEN, PENDING_TAKEN } state;
};

struct thread_entry {
	struct pending pending[EVENT_LAYER_TABLES];
	/* the native block that it freed last, and has been given none since */
	uint64_t native_freed;
	/*
	 * Of Python's layer: What it did last. A record can be made before the allocator has done
	 * what it tells, so the heap may not show it yet.
	 */
	int last_freed; /* 1: freed last_address; 0: was given it */
	uint64_t last_address;
	/* what it may have been about to be given when the reading began; 0: nothing */
	uint64_t in_flight;
};

/*
 * What readings of the heap have said, and the one under way. A reading flips the epoch: what it
 * shows and what comes to life meanwhile has the new one at its end, and blocks of a pool that
 * still have the other are dead.
 */
struct census_range {
	uint64_t start, end;
};

/*
 * A block as the table had it when its pool was read, and what the object in it says of its size.
 */
struct census_size {
	uint64_t address, bytes;
	uint32_t traceback, told;
};

struct census {
	struct address_set old;  /* on the heap, and no event told of them: from before the trace */
	struct address_set died; /* freed while the heap is read */
	uint64_t *doubtful;      /* shown by this reading and not in the table, packed */
	size_t doubtful_count, doubtful_room;
	struct census_size *sizes;
	size_t size_count, size_room;
	struct census_range *told; /* every pool in there */
	size_t told_count, told_room;
	struct snapshot_coverage counts; /* of this reading */
	uint64_t id;                     /* of the reading under way */
	uint64_t old_large;              /* large blocks from before the trace */
	uint64_t large_low,
		large_high; /* so many the table had at least and at most while the heap was read */
	unsigned int epoch : 1, running : 1;
	unsigned int known : 1; /* old is: there was a reading */
};

/*
 * All that a process holds is charged to its account, which stays where it is when the rest moves.
 */
struct process_state {
	struct trace_process info;
	struct account *account;
	struct strings *strings; /* NULL: of one that has ended */
	struct census census;
	struct blocks *blocks[EVENT_LAYER_TABLES];
	struct regions regions;
	struct id_map stack_ids, frame_ids, code_ids, symbol_ids, tids;
	struct id_map
		/*
		 * a pool's address -> bytes of its blocks, as of the last record of its first one
		 */
		pools;
	struct stack_entry *stacks;
	size_t stack_count, stack_room;
	uint32_t *stack_frames; /* indices in frames; with STACK_NATIVE in symbols */
	size_t stack_frame_count, stack_frame_room;
	struct frame_entry *frames;
	size_t frame_count, frame_room;
	struct symbol_entry *symbols;
	size_t symbol_count, symbol_room;
	struct trace_frame *symbol_frames;
	size_t symbol_frame_count, symbol_frame_room;
	struct code_entry *codes;
	size_t code_count, code_room;
	struct thread_entry *threads;
	size_t thread_count, thread_room;
	uint32_t last_tid, last_thread; /* the thread of the last record, and its index */
	struct snapshot *final;
	size_t final_bytes; /* charged for it */
	int table_kept;     /* it has ended; what its table was is final: */
	uint64_t kept_blocks, kept_bytes;
	uint64_t born_bytes;  /* of the blocks that it began with, its parent's */
	uint64_t ended_bytes; /* charged for all that is kept of it since it has ended; */
	int ended_large;      /* it goes before those that have less */
};

/*
 * A traceback as far as it is known now, inlined functions included, and at most as many frames as
 * the process's limit.
 */
struct traceback_frames {
	struct trace_frame frames[EVENT_MAX_FRAMES];
	uint32_t count; /* at least 1 */
	uint32_t total; /* those cut off included */
	/* native frames of which more would be known if reading their file took less */
	uint32_t slow;
	uint32_t unread,
		/* frames of Python's of which something is not known, native ones without a name */
		unnamed;
};

struct trace {
	struct trace_hooks hooks;
	int in_hook;
	uint64_t seed;
	/* Of the session; and, a part of it, of what is kept of processes. */
	struct account account, tables;
	struct strings *strings; /* of no process */
	uint32_t unknown;        /* id of TRACE_UNKNOWN in these, and in those of each process */
	struct process_state **processes;
	size_t process_count, process_room;
	size_t ended_count; /* of those, with table_kept */
	size_t ended_large; /* of these, with ended_large */
	uint64_t ended_bytes;
	size_t free_count; /* of them, NULL */
	struct trace_dropped dropped;
	struct id_map tgids; /* -> index of the last process of that tgid */
	struct id_map dropped_tgids[2];
	struct process_state *last; /* that of the last record */
	struct event_loss loss;
	struct trace_told told;
	uint64_t orphans;
	struct traceback_frames scratch; /* behind trace_traceback_at() */
};

/* Are there dead blocks in Python's table until a reading of the heap says so? */
static inline int state_heap_tells(const struct trace_process *info)
{
	return info->mode == EVENT_MODE_CENSUS || info->mode == EVENT_MODE_GROWTH;
}

void state_free_process(struct process_state *process); /* NULL is legal */

/*
 * Records, size checked against their fixed part and 8-byte aligned. 0, -EBADMSG; -ENOMEM, -EDQUOT:
 * what the record tells is not kept, and all is as it was.
 */
int state_alloc(struct process_state *process, const struct event_alloc *event);
int state_free(struct process_state *process, const struct event_free *event);
int state_realloc(struct process_state *process, const struct event_free *event);
int state_realloc_done(struct process_state *process, const struct event_alloc *event);
int state_reuse(struct process_state *process, const struct event_alloc *event);
/* As trace_block_containing(). */
const struct block *state_block_containing(const struct process_state *process,
					   enum event_layer layer, uint64_t address);
int state_realloc_fail(struct process_state *process, const struct event_free *event);
int state_census(struct process_state *process, const struct event_census *event);
int state_census_thread(struct process_state *process, const struct event_mark *event);
int state_census_pool(struct process_state *process, const struct event_census_pool *event);
/*
 * What objects say of their sizes; and, once all events of the reading's time are in, whether the
 * table has them so.
 */
int state_census_sizes(struct process_state *process, const struct event_census_sizes *event);
void state_sizes_judge(struct process_state *process);
int state_census_done(struct process_state *process, const struct event_census *event);
/* and UNMAP, REMAP, PROTECT */
int state_map(struct process_state *process, const struct event_map *event);
/* 1 << enum event_layer for each, of the field mode of struct event_target or event_mode_change. */
uint32_t state_layers(uint32_t mode);
int state_mode_change(struct process_state *process, const struct event_mode_change *event);
void state_census_free(struct census *census);
/* A block that has left the table, or would have. */
int state_census_arena(struct process_state *process, const struct event_census_arena *event);
void state_census_died(struct process_state *process, uint64_t address);
/*
 * The block is put into the table, in place of another if need be: the counters follow. 0,
 * -EBADMSG, -ENOMEM.
 */
int state_block_put(struct process_state *process, enum event_layer layer,
		    const struct block *block);
/* The block is gone: the counters follow. */
void state_block_gone(struct process_state *process, enum event_layer layer,
		      const struct block *block);
int state_stack(const struct trace *trace, struct process_state *process,
		const struct event_stack *event);
int state_symbol(struct process_state *process, const struct event_symbol *event);
int state_code(struct trace *trace, struct process_state *process, const struct event_code *event);
int state_code_lines(struct trace *trace, struct process_state *process,
		     const struct event_code_lines *event);

/* An empty table for each layer that has one. 0, -ENOMEM. */
int state_tables_new(struct blocks *tables[EVENT_LAYER_TABLES], struct account *account);
/* Lets every container of a process, which has none yet, charge to its account. */
void state_account(struct process_state *process, struct account *account);
/*
 * As after tracemalloc.clear_traces(). What describes stacks and code stays: it is sent only once.
 * 0, -ENOMEM.
 */
int state_clear(struct process_state *process);

/*
 * Index of the traceback of a stack id, made at first mention; STACK_NO_ROOM where there is none,
 * which is counted.
 */
uint32_t state_stack_index(struct process_state *process, uint64_t stack_id);
/* Index of the code object of a code id, made at first mention. */
int state_code_index(const struct trace *trace, struct process_state *process, uint64_t code_id,
		     uint32_t *code); /* 0, -ENOMEM, -EDQUOT */
/* Index of the symbol at an address, made at first mention. */
int state_symbol_index(struct process_state *process, uint64_t address, uint32_t *symbol);
/* Appends what is at an address, at most room frames; returns how many there are. */
uint32_t state_symbol_frames(struct trace *trace, struct process_state *process, uint32_t symbol,
			     uint32_t room, struct traceback_frames *out);
void state_traceback(struct trace *trace, struct process_state *process, uint32_t traceback,
		     struct traceback_frames *out);
/* Why the most recent frame of a traceback is <unknown>; SNAPSHOT_UNKNOWNS: it is not. */
enum snapshot_unknown state_unknown(struct trace *trace, struct process_state *process,
				    uint32_t traceback);

/*
 * Makes a child, which has no tables yet, begin with a copy of its parent's. 0; -ENOMEM, it has
 * none still.
 */
int state_inherit(struct process_state *child, const struct process_state *parent);
/* The process has ended: what its table was is kept as a snapshot, or nothing of it. 0, -ENOMEM. */
int state_end(struct trace *trace, struct process_state *process, enum trace_end end);
/* Its interpreter shuts down: what its table is now is kept. 0, -ENOMEM. */
int state_finalize(struct trace *trace, struct process_state *process);
/* What was kept at that is let go. */
void state_final_free(struct process_state *process);
void state_tgids_begin(struct trace *trace);
void state_tgids_free(struct trace *trace);
/*
 * There was a process of that tgid, but nothing of it is kept: what it may still say is no error.
 */
void state_tgid_drop(struct trace *trace, uint32_t tgid);
int state_tgid_is_dropped(struct trace *trace, uint32_t tgid);
/* Nothing is kept of it; the process is freed. 0, -ENOMEM. */
int state_discard(struct trace *trace, struct process_state *process);
/* An index for a process that begins. 0, -ENOMEM, -EDQUOT, -EOVERFLOW. */
int state_place(struct trace *trace, size_t *index);
/*
 * One of those that have ended is not kept any more: of the large ones that with the fewest bytes
 * of its own blocks, or of the small ones if there is no large one. 0, -ENOMEM; -ENOENT: there is
 * none.
 */
int state_make_room(struct trace *trace);
/* What the process holds but its info and its final snapshot; its strings are. */
void state_tables_free(struct process_state *process);

/* Of the moment that info.end says. 0, -ENOMEM. */
int state_snapshot(struct trace *trace, struct process_state *process, struct snapshot **out);

#endif
