/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What happened while a recording was made, as far as its snapshots tell: changes of the tracing
 * mode, lost events, emptied tables, full garbage collections, processes that came and ended.
 */
#pragma once

#include "report/recording/recording.h"

struct json;
struct strings;

/* A hostile recording has no more of them than can be shown. */
#define MARKERS_MAX     1000u
#define COLLECTIONS_MAX (MARKERS_MAX / 2) /* of those: there may be one in each snapshot */

enum marker_kind {
	MARKER_MODE,
	/*
	 * these three between the snapshot before, of those that are read, and the one of that time
	 */
	MARKER_LOSS,
	MARKER_EMPTIED,
	MARKER_COLLECTION, /* a full one: of the oldest generation */
	MARKER_FORK,       /* of a traced process */
	MARKER_PROCESS,    /* traced from then on */
	MARKER_EXIT,
};

struct marker {
	enum marker_kind kind;
	uint64_t since_ns;    /* since the recording began */
	uint32_t pid, parent; /* parent: of MARKER_FORK; 0: unknown, or of no process */
	char name[sizeof(((struct snapshot_meta *)0)->name)];
	uint32_t mode, wait_status; /* of MARKER_MODE: enum event_mode; of MARKER_EXIT */
	int oom_killed;             /* of MARKER_EXIT: the kernel's OOM killer had chosen it */
	uint64_t lost, dropped;     /* of MARKER_LOSS: events; blocks, for lack of memory */
	struct snapshot_collections collections; /* of MARKER_COLLECTION: since the one before */
};

/* Zero-initialise; read only from outside. */
struct markers {
	struct marker *items;
	size_t count, capacity;
	size_t collections; /* of these, MARKER_COLLECTION */
	size_t left_out;    /* beyond MARKERS_MAX, or of collections beyond COLLECTIONS_MAX */
	/* of the snapshot before */
	struct strings *names; /* a process is found by its text */
	struct marker_process *processes;
	size_t process_count, process_capacity;
	uint64_t lost, dropped;
	uint32_t emptied;
	int began;
};

/* Adds what a snapshot tells that the one before it did not. 0, -ENOMEM. */
int markers_take(struct markers *markers, const struct snapshot *snapshot,
		 const struct recording_moment *moment);
void markers_sort(struct markers *markers); /* by time */
/* The members "markers" and "markers_left_out". */
void markers_json(struct json *json, const struct markers *markers);
void markers_free(struct markers *markers);
