/* SPDX-License-Identifier: Apache-2.0 */
/*
 * tracer leaks -p PID: what grows in the heaps of running processes, by what holds it. The heaps
 * are read from outside at several moments (growth.h): no probe is placed, so the rates are those
 * of the undisturbed processes.
 */
#ifndef TRACER_HEAP_ANSWERS_HEAP_LEAKS_H
#define TRACER_HEAP_ANSWERS_HEAP_LEAKS_H

#include "heap_answers/growth.h"
#include "series/slope.h"

enum holder_verdict {
	HOLDER_STEADY,
	HOLDER_UNCLEAR,
	HOLDER_LEVELS, /* it grew, and in the second half at less than half the rate of the first */
	HOLDER_GROWS,
};

/* A path that holds something, in all processes that were read. */
struct holder {
	const char *label, *type; /* borrowed from the reading */
	size_t processes;
	uint64_t holders, retained;                            /* at the end, of all processes */
	uint64_t came, stayed;                                 /* growth.h */
	double bytes[GROWTH_MOMENTS], entries[GROWTH_MOMENTS]; /* since the start */
	struct slope slope;                                    /* bytes a second */
	double entries_slope;                                  /* a second */
	enum holder_verdict verdict;
	struct growth_type types[GROWTH_TYPES]; /* names: of the reading */
};

/* One process. */
struct leaking {
	pid_t pid;
	struct heap_source source;
	struct growth growth;
	double rss[GROWTH_MOMENTS], anonymous[GROWTH_MOMENTS];
	int ended; /* it was not there at the last moment */
};

struct heap_leaks {
	struct leaking *processes; /* do not move: graphs refer to them */
	size_t process_count;
	size_t moments;
	double seconds[GROWTH_MOMENTS];                   /* since the first moment */
	double heap[GROWTH_MOMENTS], rss[GROWTH_MOMENTS]; /* of all processes */
	struct strings *names;                            /* of the rows */
	struct holder *holders;                           /* most growth first */
	size_t count, capacity;
	size_t verdicts[HOLDER_GROWS + 1];
	struct slope rss_slope, heap_slope;
	double read_seconds; /* CPU time of the reading */
	int limited;         /* left and used are known */
	uint64_t left;       /* bytes until a limit of a cgroup kills */
	size_t top;
};

struct leaks_choice {
	struct target_set *targets;
	uint64_t duration_ns;
	size_t top;
	int swap_in;
};

/*
 * Reads the processes until the time is over, a signal asks for the end, or all have ended. The
 * caller frees *out in any case. 0, -errno after a message.
 */
int heap_leaks_find(const struct leaks_choice *choice, struct heap_leaks *out);
void heap_leaks_free(struct heap_leaks *leaks);

/* 0, -errno. */
int heap_leaks_text(const void *leaks, FILE *out);
int heap_leaks_json(const void *leaks, FILE *out);

#endif
