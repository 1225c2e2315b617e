/* SPDX-License-Identifier: Apache-2.0 */
/* State that the parts of the world share: what BPF and perf have queued, and failures. */
#ifndef FUZZ_SESSION_WORLD_STATE_H
#define FUZZ_SESSION_WORLD_STATE_H

#include "attach/attach.h"
#include "attach/map_watch.h"
#include "session_world.h"

#define RECORDS 4096u /* of either kind: the capacity of the ring buffers */

struct attach {
	struct attach_opts opts;
	struct abi_target execd;
};

/* Any of BPF's records about processes. */
union record {
	struct event_header header;
	struct event_process process;
	struct event_appear appear;
	struct event_alloc alloc;
};

extern struct attach world_attach;
extern union record world_records[RECORDS];
extern size_t world_record_first, world_record_end;
extern struct map_watch_record world_maps[RECORDS];
extern size_t world_map_first, world_map_end;
extern struct process *world_memory_asked; /* the process whose memory was queried last */

/*
 * An error that the input selects for an operation on the process (NULL: on none), or 0. After an
 * error the process's targetship is undetermined, and processes run on.
 */
int world_fails(struct process *process);
/* Processes run on while the session waits for a response. */
void world_meanwhile(void);
void world_target_make(struct process *process, uint32_t space_id, uint64_t program);

#endif
