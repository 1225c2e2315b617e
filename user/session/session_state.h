/* SPDX-License-Identifier: Apache-2.0 */
/* The inside of a session, shared by session*.c only. */
#ifndef TRACER_SESSION_SESSION_STATE_H
#define TRACER_SESSION_SESSION_STATE_H

#include "attach/attach.h"
#include "attach/features.h"
#include "attach/file_users.h"
#include "attach/map_watch.h"
#include "attach/seccomp.h"
#include "container/container.h"
#include "container/memory_room.h"
#include "plan/plan_target.h"
#include "python/late.h"
#include "session/session.h"
#include "session/session_cost.h"
#include "session/session_governor.h"

#define MEMBER_MODULES 16 /* looks at what is mapped that are kept */

/* Zero-initialise. */
struct member_symbols {
	struct modules *modules[MEMBER_MODULES]; /* the newest last */
	size_t count;
	struct modules *told; /* all that it has mapped since it began; NULL: it was there before */
	/*
	 * trace_unnamed_next()'s cursors: whose files are open, which were looked up ahead of time,
	 * which have names.
	 */
	size_t watched, prepared, named;
	struct symbols_share *share; /* NULL: nothing was asked */
	int late;                    /* some were not waited for: they may be known by now */
	uint64_t looked_ns;
};

/*
 * When a wait for names is over, by either of two clocks: symbols_worker_ns() and CLOCK_MONOTONIC.
 */
struct names_end {
	uint64_t worker_ns, wall_ns;
};

/* How long the session may wait for names. Zero-initialise. */
struct names_time {
	uint64_t left_ns, filled_ns; /* while others are traced: a share of the time that passes */
	int ends;                    /* the session does, and no name is waited for after: */
	struct names_end end;
	size_t turn; /* the member that is looked up for next */
};

struct member {
	pid_t pid;
	int pidfd; /* -1: the process was gone before it could be had */
	int gone;  /* the kernel has told of its end */
	int begun; /* its first record is in the stream, and its index is known */
	/* its table is complete; the trace may have given its index to another */
	int ended;
	int released; /* probes of this process are another member's */
	/* it was forked of a target; whether it needs probes of its own is to be seen */
	int adopted;
	/* a program that BPF has made a target; whether it is one is to be seen */
	int newborn;
	int bare;           /* a newborn in whose files no allocator is found so far */
	uint64_t mapped_ns; /* when it has mapped another file with code; 0: nothing is new */
	size_t index;       /* in the trace */
	struct event_target announced;
	struct python_runtime runtime; /* version_hex 0: there is none */
	uint32_t layers;               /* 1 << enum event_layer for each that is traced */
	struct member_symbols symbols;
	enum event_mode mode;
	int alone;                          /* its probes lie in it, and not in files */
	int contradicted;                   /* what does not agree has been told */
	int large_blocks;                   /* growth mode: they are traced one by one */
	int reuse_unseen, ends_unseen;      /* as in struct plan */
	int heap_unreadable;                /* there will be no census */
	uint64_t rss_ns;                    /* when its memory was looked at last */
	int baseline_due;                   /* what is on the heap when it is read next is older */
	uint64_t census_ns, census_cost_ns; /* when the last one ended, and what it took */
	int off;                            /* its probes are out; mode is the one before */
	struct member_governor governor;
};

/* A process that is watched and not under trace: it may come to run Python. */
struct candidate {
	struct late late;
	/* what it has mapped is known, and is nothing that is wanted; or it is refused */
	int settled;
	int native;       /* it is wanted without Python, too */
	uint64_t born_ns; /* when it appeared, or has last mapped a file with code */
	uint64_t next_ns; /* when it is looked at again */
};

/* A program that has just been called, and of which BPF has not told yet. */
struct newborn {
	uint32_t tgid;
	uint64_t exec_ns;
	struct modules *told;
};

struct session {
	struct session_opts opts;
	struct features features;
	struct attach *attach;
	struct plan_caches plans;
	struct symbols *symbols; /* NULL: no native frame has been seen */
	struct names_time names_time;
	struct trace *trace;
	struct member **members;
	size_t count, member_room;
	int ends; /* epoll, of the members' pidfds */
	uint32_t next_space;
	int capture_error;
	uint64_t limit_ns, limit_duration_ns; /* session_end.c; 0: none */
	/* a heap, whose events are wanted up to the end of that */
	int reading;
	struct session_end end;
	uint64_t records;   /* drained so far */
	size_t census_turn; /* the member whose heap is looked at next */
	int links_lost;     /* it was told that the process that holds the probes is gone */
	struct seccomp_answer seccomp;
	struct hit_cost hit_cost;
	struct session_cost cost;
	uint64_t loss_ns; /* when the loss counters were last read */
	/* Of pick-up: */
	struct candidate *candidates;
	size_t candidate_count, candidate_room;
	size_t adopted;         /* members to be seen to */
	struct map_watch *maps; /* NULL: nobody tells of mapped files */
	uint64_t maps_lost;
	pid_t *expected;
	size_t expected_count;
	struct file_users *users;
	uint64_t users_ns;
	/* what is left to processes, as of room_ns, less what was placed since */
	struct memory_room *room;
	uint64_t room_ns;
	struct container_list containers;
	uint64_t containers_ns; /* when it was read; 0: not yet */
	uint64_t lost;          /* records of processes, as of the last look at all that run */
	int missing_told;       /* what this kernel lacks was */
	size_t told, refused;   /* so far: the first ones are told of one by one */
	/* Of programs traced from their first instruction on: */
	struct newborn *newborns; /* in the order of time */
	size_t newborn_count, newborn_room;
	uint8_t *files_settled; /* by struct file.number: newborn_files_settle() */
	size_t files_settled_room;
	size_t unlooked; /* programs that ended before anything in them was probed */
};

/*
 * Is a record of BPF's for the pick-up alone, and not for the trace? It is taken note of; nothing
 * is attached here.
 */
int pick_up_takes(struct session *session, const void *record);
/* The same of one that the trace has had. */
void pick_up_note(struct session *session, const void *record);
/* What is to be done of all that, when nothing is being drained. */
void pick_up(struct session *session);
/* Its name, or 12 digits of its id; "": in none. */
void session_container(struct session *session, pid_t pid, char *out, size_t room);
int pick_up_new(struct session *session);
/* Valid until the next of these calls; NULL: it is none. */
struct candidate *candidate_find(struct session *session, uint32_t pid);
void candidate_remove(struct session *session, struct candidate *candidate);
/*
 * The process is looked at soon: it is new, or has mapped what was not seen before. NULL: no
 * memory.
 */
struct candidate *candidate_touch(struct session *session, uint32_t pid);
/* The same of a program of which nothing is known yet. parent: whose it is, 0: not known. */
void candidate_renew(struct session *session, uint32_t pid, uint32_t parent);
/* Looks at those whose time has come, as long as it is not until. Returns what time it is. */
uint64_t candidates_look(struct session *session, uint64_t now, uint64_t until);
/* Every process of which nothing is known becomes one. */
void strangers_find(struct session *session);
/* It is not traced; of many, the first ones are told of. */
void refuse(struct session *session, pid_t pid, int err);
/* So many records of processes are lost by now: who has come unseen is looked for. */
void pick_up_lost(struct session *session, uint64_t lost);
void pick_up_free(struct session *session);
/* session_member.c says how a member lives. */
int members_begin(struct session *session);
void members_free(struct session *session);
/* NULL: none that has begun and not ended. */
struct member *member_find(struct session *session, uint32_t tgid);
/* The session owns it. 0, -errno. */
int member_new(struct session *session, pid_t pid, struct member **out);
/* Its first record goes into the stream. 0, -errno. */
int member_begin(struct session *session, struct member *member, const struct event_target *record);
/* It is not to be traced after all. Not valid any more, if it has not begun. */
void member_abandon(struct session *session, struct member *member);
/* The probes of members with this number that have ended go, before another's come. */
void members_release(struct session *session, pid_t pid);
/*
 * Notices who is gone, and lets go of all that have ended: nothing is kept of them but their
 * tables. The one place where members are freed; not for where records are drained or members are
 * gone through.
 */
void members_bury(struct session *session);
/* Ends what is known to be gone, or (EVENT_EXEC) to be another program, in the stream, too. */
void member_end(struct session *session, struct member *member, uint32_t type);
/* The programs trace it no more. */
void member_forget(struct session *session, const struct member *member);
/* What a member has of its plan: the mode, the layers, what the programs are told of it. */
void member_planned(struct member *member, const struct plan_target *target);
/*
 * Places a plan's probes of these groups (enum attach_group): in the member, or, where nobody else
 * has the files, in those.
 */
int member_probe(struct session *session, struct member *member, const struct plan_target *target,
		 unsigned int groups);
/*
 * Where the probes of a file lie: in one process, or -1: in the file, for every process that maps
 * it.
 */
pid_t probe_scope(struct session *session, const struct member *member,
		  const struct elf_file *file);
/* plan_target_each(), of a plan whose runtime the member may have taken over. */
int member_plans_each(const struct member *member, const struct plan_target *target,
		      plan_target_fn each, void *context);
#define MEMBER_WHY 256
/*
 * The text that these probes copy is taken from what is left to the processes that get them: 1 it
 * fits; 0 why says where it does not, with the figures; -ESRCH, -ENOMEM.
 */
int member_text_fits(struct session *session, struct member *member,
		     const struct plan_target *target, unsigned int groups, char why[MEMBER_WHY]);
/* The same of all its probes; nothing is taken yet. */
int member_text_looks(struct session *session, struct member *member,
		      const struct plan_target *target, char why[MEMBER_WHY]);
/* Who maps what, not older than half a second. NULL: it cannot be read. */
struct file_users *session_users(struct session *session);
/*
 * Every record, whether BPF made it or the session, goes the same way: into the capture, then the
 * trace.
 */
int session_feed(struct session *session, const void *record, size_t size);
/* Brings in the records that are there; context is the session. */
void session_pull(void *context);
struct plan_target;
/* Its first record: name as process_info has it, ns_pid 0: not known. 0, -errno. */
int member_announce(struct session *session, struct member *member, const char *name, pid_t ns_pid,
		    int from_start, uint64_t time_ns);
/* EVENT_MODE_* beside the mode, in the records that tell how it is traced. */
uint32_t member_mode_flags(const struct member *member);
/*
 * Reads the member's heap, if it runs and has one. 0; -ENOTSUP it cannot be read, and in census
 * mode it is traced in exact mode from here on; -ENODATA there is none; -errno.
 */
int member_census(struct session *session, struct member *member, int baseline, int freeze);
/* The same; what went wrong is told. */
void member_reconcile(struct session *session, struct member *member, int baseline, int freeze);
/*
 * From census to exact mode, because its heap cannot be read (error_reason(-ENOTSUP) says why):
 * what the table holds may be dead for long, and is dropped.
 */
void member_mode_fall_back(struct session *session, struct member *member);
/* From here on addresses can be named; it is no error that they cannot. 0, -ENOMEM. */
int member_symbols_begin(struct session *session, struct member *member);
/* What is mapped now. 0, -errno. */
int member_symbols_look(struct session *session, struct member *member);
void member_symbols_end(struct member *member);
/* Has the files of addresses that are new opened. */
void member_symbols_watch(struct session *session, struct member *member, uint64_t now);
/*
 * Feeds the names of the addresses that have none yet. 0, -errno. It waits for those that were not
 * looked up ahead of time, but not so long that other processes lose events; the others are fed as
 * what took too long.
 */
int member_symbols_name(struct session *session, struct member *member);
void session_name(struct session *session);
/* Looks names up ahead of time, for some milliseconds. */
void session_names_prepare(struct session *session);
/* The session ends: from here on no name is waited for longer than that. */
void session_names_end(struct session *session, int hurried);

/*
 * BPF traces a process, by this space, that is none of ours: it does no more, and its records are
 * of nobody.
 */
void session_discard(struct session *session, uint32_t pid, uint32_t space);
/*
 * What BPF is to trace of programs that are called from here on: 1 << enum event_layer for each
 * layer; 0: nothing.
 */
uint32_t newborn_layers(const struct session_opts *opts);
/* BPF has made a target of it. 0, -errno. */
int newborn_announce(struct session *session, const struct event_appear *event);
/* Takes note of a program or of what one maps. 1: nothing in it needs a look. */
int newborn_told(struct session *session, const struct map_watch_record *record);
/*
 * Finds out what it is. 1: it is one without Python, and all its probes are placed, or *err says
 * why not, or it is gone, or it is bare; 0: it runs Python: what was traced of it is dropped, and
 * it is to be attached to as that.
 */
int newborn_settle(struct session *session, struct member *member, int *err);
/*
 * A process that maps no others needs no look: they run no Python, and have the probes that they
 * are to have.
 */
void newborn_files_settle(struct session *session, const struct modules *modules);
/* It has ended. 1: nothing of it was probed yet, and it is dropped. */
int newborn_unseen(struct session *session, struct member *member);
/* The session ends: drops those in which nothing was found. */
void newborns_end(struct session *session);
void newborns_free(struct session *session);
/*
 * Reads the heaps that were not read for a while: every half second, or less often if that costs
 * more than 2 % of the time. Of many those that come next, for some milliseconds.
 */
void session_census_due(struct session *session, uint64_t now);
/*
 * What members have in memory is put into the stream, as of that time: of one, of all, of those of
 * which it was not for a while.
 */
void member_rss_read(struct session *session, struct member *member, uint64_t time_ns);
void session_rss_read(struct session *session, uint64_t time_ns);
void session_rss_due(struct session *session, uint64_t now);
/* The last reading of all heaps, as many as there is time for. */
void session_census_last(struct session *session, int hurried);
/* Is something that happens at this time beyond the limit of the session? */
int session_is_beyond(const struct session *session, uint64_t time_ns);

#endif
