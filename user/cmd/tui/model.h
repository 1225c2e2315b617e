/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a live view knows of a session: what each stack of each running process holds now, has held
 * at the last refreshes and held at the mark. Built from the answers of session/ctl/sums.h; every
 * bound in them is checked. Pure: no terminal, no time of its own.
 */
#pragma once

#include "session/ctl/request.h"
#include "session/ctl/sums.h"
#include "util/id_map.h"
#include "util/strings.h"

#define WATCH_HISTORY   16u        /* refreshes that are remembered */
#define WATCH_STACKS    (1u << 24) /* of one process, at most */
#define WATCH_NONE      UINT32_MAX
#define WATCH_GROWTH_NS 10000000000ull /* growth is that of the last 10 s */

/* Its text is known when nframe is not 0. */
struct watch_stack {
	uint32_t first, nframe; /* in watch_model.frames, most recent first */
	uint32_t unread;        /* the most recent frame had no name yet */
};

/* What a stack holds, or with watch_model.by what the blocks of one thread, task or age are. */
struct watch_sum {
	uint32_t stack, owner; /* owner: as in struct sums_entry */
	uint32_t group;        /* of the present grouping (groups.h); WATCH_NONE: not looked up */
	uint32_t changed_at;   /* watch_model.serial of the last answer that had it */
	uint32_t lively;       /* it is in watch_process.lively */
	uint32_t renamed;      /* its text is another one since it was grouped */
	/* of groups.h: its neighbours in its group, and what that has of it */
	uint32_t next, next_process, last, last_process;
	uint32_t held;
	double held_size, held_count;
	double size, count;
	double mark_size, mark_count;
	double allocated; /* bytes since the trace began, */
	double fresh;     /* and since the view has known it */
};

/* A sum at an earlier refresh. */
struct watch_past {
	double size, fresh;
};

/* What collectors had done at a refresh; time_ns 0: it was not known. */
struct watch_collected {
	uint64_t time_ns, done, freed, took_ns;
};

struct watch_process {
	struct sums_process info;
	uint32_t *strings; /* the process's strings -> ids in watch_model.strings */
	size_t string_count, string_capacity;
	struct watch_stack *stacks; /* info.stacks of them */
	size_t stack_count, stack_capacity;
	/* by stack alone one for each, at its index; else found by sum_keys */
	struct watch_sum *sums;
	size_t sum_count, sum_capacity;
	/* by slot, for each sum: apart, so that a refresh does not read all of the past */
	struct watch_past *past[WATCH_HISTORY];
	size_t past_capacity;
	struct id_map sum_keys;
	/*
	 * Indices of the sums that an answer has had within the history, or that were renamed. Any
	 * other one has held the same in each slot of it, and has allocated nothing. sum_capacity
	 * of them.
	 */
	uint32_t *lively;
	size_t lively_count;
	double size, count, mark_size, fresh;            /* of all its sums */
	double past_fresh[WATCH_HISTORY];                /* by slot */
	struct watch_collected collected[WATCH_HISTORY]; /* the same */
	struct sums_thread *threads; /* those with a name, by number, in the last answer */
	uint32_t described;          /* so many were read; */
	uint32_t unread_at;          /* from here on a stack without a name is looked for */
	uint64_t retry_ns, retry_pause_ns;
	int seen;    /* in the last answer */
	int counted; /* what it has allocated is known of the answer before, too */
};

struct watch_model {
	struct sums_header now, before; /* the last answer, and the one before it */
	uint32_t serial;                /* of the last answer */
	uint32_t since;                 /* struct request.since of the next request */
	int answers;                    /* 0: none yet; 1; 2: before is valid, too */
	enum request_by by;             /* of the sums */
	struct watch_process *processes;
	size_t process_count, process_capacity;
	struct id_map pids; /* -> index in processes */
	struct strings *strings;
	struct stacks_frame *frames; /* with ids of strings */
	size_t frame_count, frame_capacity;
	uint64_t times_ns[WATCH_HISTORY]; /* of the slots; 0: not used yet */
	float totals[WATCH_HISTORY];
	uint32_t slot; /* of the last answer, */
	/* and what all sums come to there; allocated: bytes a second */
	struct {
		double size, count, mark_size, allocated;
	} all;
	uint64_t mark_ns; /* time of the mark; 0: there is none */
	uint32_t lost;    /* processes that have ended since the mark: it does not hold them */
	/* Changes when more than lively sums did: groups.h adds up all of them again. */
	uint64_t whole;
	/* Changes when processes went or tasks got names: groups.h looks all sums up again. */
	uint64_t version;
};

int watch_model_begin(struct watch_model *model); /* 0, -ENOMEM */
void watch_model_end(struct watch_model *model);
/* Takes an answer to "sums". 0; -EBADMSG: not one (error_set); -ENOMEM. */
int watch_model_sums(struct watch_model *model, const void *data, size_t bytes);
/* Takes an answer to "stacks"; that of a process that is gone has no effect. Errors as above. */
int watch_model_stacks(struct watch_model *model, const void *data, size_t bytes);
/*
 * The next request for stacks whose names are not known: 1 and the process, the first stack and the
 * first string; 0: none is due. Names that the session did not have yet are asked for again, less
 * and less often.
 */
int watch_model_missing(struct watch_model *model, uint64_t now_ns, struct request *request);
/* How many stacks that hold something have no name yet. */
size_t watch_model_unnamed(const struct watch_model *model);
/* Marks the present figures; differences count from here. off: forgets the mark. */
void watch_model_mark(struct watch_model *model, int off);
/*
 * The next answers are of another layer, or by something else: forgets all sums, their history and
 * the mark, and keeps all names.
 */
void watch_model_restart(struct watch_model *model, enum request_by by);
/* Does any process tell its tasks or values (SUMS_TELLS), and values (SUMS_VALUES)? */
bool watch_model_tells(const struct watch_model *model, uint32_t flag);
/* Its name in the last answer; NULL: not known. */
const char *watch_model_thread(const struct watch_process *process, uint32_t tid);
/* The name of a task, which is made in numbered if it has none; NULL: it was not read yet. */
const char *watch_model_task(const struct watch_model *model, const struct watch_process *process,
			     uint32_t task, char numbered[32]);
/*
 * The slot to measure growth from: the oldest within WATCH_GROWTH_NS; *seconds is the time since.
 * WATCH_NONE: there is only one refresh.
 */
uint32_t watch_model_since(const struct watch_model *model, double *seconds);
/* The sum of all processes. */
struct watch_total {
	double size, count, mark_size;
	uint64_t rss_bytes, peak_bytes, new_blocks, seen_blocks;
	uint64_t walk_ns; /* the oldest walk */
	double allocated; /* bytes a second, as in struct watch_group */
	uint32_t flags;   /* of any of them, as in struct sums_process */
	size_t pythons;   /* processes that run Python */
};
struct watch_total watch_model_total(const struct watch_model *model);
/* What the collectors of all processes have done; rates: of the last 10 s, below 0: not known. */
struct watch_collectors {
	size_t processes;              /* in which they were found; of these: */
	size_t off, running;           /* with one that is off; with one that runs now */
	size_t more;                   /* with more interpreters than were read */
	uint64_t done, freed;          /* since the processes began */
	double done_s, freed_s;        /* a second */
	double share;                  /* of the time that collections take, where that is known */
	const struct collections *one; /* of the only process; NULL: there are several */
};
struct watch_collectors watch_model_collectors(const struct watch_model *model);
