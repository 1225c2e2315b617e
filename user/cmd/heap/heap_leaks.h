/* SPDX-License-Identifier: Apache-2.0 */
/*
 * tracer leaks -p PID: what grows in the heaps of running processes, by what holds it, and which
 * code can fill that. The heaps are read from outside at several moments (growth.h): no probe is
 * placed, so the rates are those of the undisturbed processes.
 */
#pragma once

#include <math.h>
#include <stdbool.h>

#include "cmd/heap/growth.h"
#include "inspect/rss/memory.h"
#include "report/recording/slope.h"

struct json;
#define LEAKS_AIM  0.2 /* half the interval of a rate, by the rate */
#define READS_TELL 8u  /* fewer reads do not tell growth from waves */

enum holder_verdict {
	HOLDER_STEADY,
	HOLDER_UNCLEAR,
	HOLDER_BOUNDED, /* it grows, and reaches its bound within a day at this rate */
	/*
	 * It grew, and in the second half at less than half the rate of the first: of READS_TELL
	 * reads, or of dumps that were chosen.
	 */
	HOLDER_LEVELS,
	HOLDER_GROWS,
};

/* A line that grows, or may, by what probes have seen. */
struct holder_line {
	const char *filename, *function; /* borrowed; function "" where it is not known */
	uint32_t line;
	double slope;   /* bytes a second; NAN: the probes took too much for a rate */
	int unclear;    /* whether it grows */
	double through; /* the share of its bytes that comes through that code */
};

/* A path that holds something, in all processes that were read. */
struct holder {
	const char *label, *type; /* borrowed from the reading */
	size_t processes;
	uint64_t holders, retained;                            /* at the end, of all processes */
	uint64_t came, stayed, weak, all;                      /* growth.h */
	double in_state;                                       /* the same, at the end */
	double bytes[GROWTH_MOMENTS], entries[GROWTH_MOMENTS]; /* since the start */
	double seconds[GROWTH_MOMENTS]; /* of its processes, on average, as in struct leaking */
	struct slope slope;             /* bytes a second */
	double entries_slope;           /* a second */
	enum holder_verdict verdict;
	struct growth_type types[GROWTH_TYPES]; /* names: of the reading */
	/* of the first process that has some; names: in filled_names, which is borrowed */
	struct filler fillers[GROWTH_FILLERS];
	size_t filler_count;
	const struct strings *filled_names;
	struct bound bound; /* as a row has it; of one process only */
	/* with heap_leaks.measured: lines that grow, whose blocks its fillers asked for */
	struct holder_line lines[GROWTH_FILLERS];
	size_t line_count;
};

#define LEAKS_PARTS      24u
#define LEAKS_PART_NAME  64u
#define LEAKS_PART_BYTES 65536.0 /* a part that has grown by less is not told */

/* A part of RSS that is no object of Python: "malloc, free". */
struct leaks_part {
	char name[LEAKS_PART_NAME];
	double first, last; /* bytes, of all processes that are there at the end */
};

/* Most of what came are weak references to what something else keeps: they go with that. */
static inline bool holder_is_weak(const struct holder *holder)
{
	return holder->weak > holder->all / 2;
}

/* The error of its rate, by the rate; INFINITY: it is not known. */
static inline double holder_rate_error(const struct holder *holder)
{
	const struct slope *slope = &holder->slope;

	return slope->has_interval && slope->median > 0
		       ? (slope->high - slope->low) / 2 / slope->median
		       : INFINITY;
}

/* One process. */
struct leaking {
	pid_t pid;
	struct memory_reading *memory; /* NULL: its parts are not read */
	struct leaks_part *parts;      /* LEAKS_PARTS; NULL: the same */
	struct heap_source source;
	struct growth growth;
	double rss[GROWTH_MOMENTS];
	double seconds[GROWTH_MOMENTS]; /* when its heap was copied, since the first copy of all */
	uint64_t copied_ns;             /* the last time: CLOCK_MONOTONIC */
	int64_t astray; /* bytes that no variable holds, of the last copy; -1: none was taken */
	int ended;      /* it was not there at the last moment */
	int by_types;   /* its heap is too large to be copied: its rows are types */
};

struct heap_leaks {
	struct leaking *processes; /* do not move: graphs refer to them */
	size_t process_count;
	size_t moments;
	int to_the_end; /* what stayed was looked for: a process may end before the last moment */
	uint64_t first_ns;                                /* the first moment: CLOCK_MONOTONIC */
	double seconds[GROWTH_MOMENTS];                   /* since the first moment */
	double heap[GROWTH_MOMENTS], rss[GROWTH_MOMENTS]; /* of all processes */
	struct strings *names;                            /* of the rows */
	struct holder *holders;                           /* most growth first */
	size_t count, capacity;
	size_t verdicts[HOLDER_GROWS + 1];
	struct slope rss_slope, heap_slope;
	double read_seconds;                  /* CPU time of the reading */
	struct leaks_part parts[LEAKS_PARTS]; /* the most growth first */
	size_t part_count;
	int limited;   /* left and used are known */
	uint64_t left; /* bytes until a limit of a cgroup kills */
	size_t top;
	size_t brief; /* as in struct report_opts */
	/* probes have measured lines afterwards: one that grows, or none; 0: they have not */
	enum { HOLDERS_LINES_UNCLEAR = 1, HOLDERS_LINES_GROW } measured;
	int dumps;        /* they were read from files: nothing is known of RSS */
	bool chosen;      /* dumps of times that the user chose, not of a bundle */
	const char *file; /* with dumps: the newest one, or what holds them; borrowed */
};

struct leaks_choice {
	struct target_set *targets;
	uint64_t duration_ns;
	int automatic;       /* it is the longest time: the end is when heap_leaks_are_certain() */
	uint64_t most_bytes; /* of a copy of a heap; 0: a third of what is available */
	size_t top;
	size_t brief; /* as in struct report_opts */
	int swap_in;
};

/*
 * Reads the processes until the time is over, a signal asks for the end, or all have ended. The
 * caller frees *out in any case. 0; -ENOENT, without a message: none has a Python; other -errno
 * after a message.
 */
int heap_leaks_find(const struct leaks_choice *choice, struct heap_leaks *out);
/*
 * The same of dumps of one process (tracer heap -o), the oldest first. bundle: the file that they
 * are in, where the first may be of a process that the others' was forked from; NULL: none. 0,
 * -errno after a message.
 */
int heap_leaks_of_dumps(char *const *files, size_t count, const char *bundle, size_t top,
			struct heap_leaks *out);
void heap_leaks_free(struct heap_leaks *leaks);

/* Were the holders of all processes seen until the end? If not, *why is the reason. */
bool heap_leaks_are_complete(const struct heap_leaks *leaks, const char **why);

/* 0, -errno. */
int heap_leaks_text(const void *leaks, FILE *out);
int heap_leaks_json(const void *leaks, FILE *out);
/* The member "holders" alone. */
void heap_leaks_holders_json(const void *leaks, struct json *json);
