/* SPDX-License-Identifier: Apache-2.0 */
/* tracer heap: what was asked, and the graph that answers it. */
#pragma once

#include <stdbool.h>

#include "cmd/options/options.h"
#include "inspect/dump/capture.h"
#include "inspect/holders/paths.h"
#include "inspect/holders/type_holders.h"
#include "proc/targets/target_set.h"
#include "trace/blocks/block_lines.h"

struct json;

#define HEAP_DEPTH_MAX 100u

enum heap_by { BY_TYPE, BY_CLASS, BY_MODULE, BY_ROOT, BY_CONTAINER, BY_SIZE, BY_LINE, BY_PATH };

struct heap_choice {
	struct report_choice output;
	enum heap_by by;
	int retained, freeze, swap_in;
	uint32_t depth;  /* --depth: levels of the tree of dominators; 0: no tree */
	int values;      /* --values: contents of texts are printed */
	const char *out; /* -o; NULL: no dump is written */
	enum outfile_replace replace;
	const char *core;    /* --core; NULL: none */
	const char *sysroot; /* --sysroot; NULL: "/" */
	const char
		*trace; /* --trace; NULL: the session that traces the process is asked for lines */
	bool by_age;    /* only objects of some ages: */
	struct ages_choice ages;
	struct target_set targets;
	uint64_t session;     /* --session; 0: any */
	pid_t pid;            /* the one process that is read; 0: not known yet, or a dump is */
	uint64_t duration_ns; /* -d: the collector is watched for so long; 0: it is not */
	struct cli_arguments rest;
	const char *what;  /* a type or an address that is asked about; NULL: none */
	struct json *json; /* of the answer; NULL: it is text */
};

/* A graph and what it is made of, for one answer. */
struct heap_graph {
	struct capture capture;
	struct graph *graph;         /* NULL: HEAP_COPY */
	struct block_lines lines;    /* empty unless heap_wants_lines() */
	struct retained *retained;   /* NULL: not asked for */
	struct paths *paths;         /* the same */
	struct type_holders holders; /* the same; empty, too, if there are too many */
	struct space *space;         /* with HEAP_COPY: of the process, if it is one; else NULL */
	uint64_t elapsed_ns;         /* of everything after the copying */
};

/* HEAP_COPY: the copy alone, and of a heap that is too large to be copied its description. */
enum heap_needs { HEAP_RETAINED = 1, HEAP_PATHS = 2, HEAP_COPY = 4, HEAP_HOLDERS = 8 };

/*
 * Copies the memory of choice's process, or reads the dump, and makes the graph with what `needs`
 * says (enum heap_needs, or-ed). With choice->out the dump is written. The graph refers to *out,
 * which must not move; the caller closes it. 0, or -errno after a message.
 */
int heap_graph_open(const struct heap_choice *choice, const char *dump, unsigned int needs,
		    struct heap_graph *out);
void heap_graph_close(struct heap_graph *heap);

/* A process whose heap is read more than once. */
struct heap_source {
	struct python_runtime runtime;
	struct process_info info;
	uint64_t most_bytes; /* of a copy; 0: a third of what is available */
	int hurried;         /* as struct capture_opts has it */
};

/* As python_process_find(). The caller closes it, also after a failure. */
int heap_source_open(struct heap_source *out, pid_t pid, int swap_in);
void heap_source_close(struct heap_source *source);
/*
 * As heap_graph_open(), of what the process has now. 0, -errno as capture_take() (-EDQUOT: it is
 * too large to be copied) and graph_new(), without a message.
 */
int heap_source_read(const struct heap_source *source, unsigned int needs, struct heap_graph *out);

/* The copy alone. 0, errors as above. The caller frees it with capture_free(). */
int heap_source_copy(const struct heap_source *source, struct capture *out);

/* The process and its version: the first line of an answer in text. */
void heap_graph_head(const struct heap_graph *heap);
/* The proof, and what was not seen: the last lines; of a page for a terminal one. */
void heap_graph_foot(const struct report_opts *opts, const struct heap_graph *heap);
/* {"pid": …, "references": {…}: the object stays open. */
void heap_graph_json(struct json *json, const char *key, const struct heap_graph *heap);
/* The first of these, or the last; in JSON, the outermost object. 0, -EIO. */
void heap_answer_begin(const struct heap_choice *choice, const struct heap_graph *heap);
int heap_answer_end(const struct heap_choice *choice, const struct heap_graph *heap);

/* Is it about lines, or ages of blocks, or does it tell the line of an object? */
static inline bool heap_wants_lines(const struct heap_choice *choice)
{
	return choice->by == BY_LINE || choice->by_age;
}
/*
 * Asks the session that traces a process which line allocated each of its blocks; session 0: any.
 * 0, -errno (error_set) as ask_find().
 */
int heap_lines_ask(pid_t pid, pid_t session, struct block_lines *out);
/*
 * Reads which line allocated each block: choice->trace, or what the session that traces choice->pid
 * says. 0, -errno after a message.
 */
int heap_lines_open(const struct heap_choice *choice, struct block_lines *out);

/* The options and arguments of tracer heap; the input is a struct heap_choice. */
extern const struct argp heap_argp;

/* Whether the answer needs a graph. */
bool heap_is_question(const struct heap_choice *choice);
/* The answer. EXIT_DONE; EXIT_FAILED or EXIT_USAGE after a message. */
int heap_answer(struct heap_choice *choice);
/*
 * The answers, to choice->json or to standard output. 0, -errno without a message: -ENOENT
 * (error_set) if there is nothing that choice->what could mean.
 */
int heap_view_print(const struct heap_choice *choice, const struct heap_graph *heap);
int heap_why_print(const struct heap_choice *choice, const struct heap_graph *heap);
int heap_holders_print(const struct heap_choice *choice, const struct heap_graph *heap);
int heap_query_print(const struct heap_choice *choice, const struct heap_graph *heap);
int heap_show_print(const struct heap_choice *choice, const struct heap_graph *heap);
/* The lines that allocated the objects; with heap_graph.lines and HEAP_PATHS. */
int heap_lines_print(const struct heap_choice *choice, const struct heap_graph *heap);
int heap_waste_print(const struct heap_choice *choice, const struct heap_graph *heap);
int heap_gc_print(const struct heap_choice *choice, const struct heap_graph *heap);
int heap_cycles_print(const struct heap_choice *choice, const struct heap_graph *heap);
int heap_tree_print(const struct heap_choice *choice, const struct heap_graph *heap);
/*
 * One level of the same tree, in JSON: what is below the node that the object at the address
 * choice->what belongs to, or, if it is NULL, the outermost level. Its work is that of this level
 * and of those above the node, not of the whole tree.
 */
int heap_level_print(const struct heap_choice *choice, const struct heap_graph *heap);

struct heap_level_node {
	uint32_t object;   /* the one that names it */
	uint64_t retained; /* bytes */
	bool opens;        /* there is a level below it */
};
/*
 * The nodes that heap_level_print() prints, at most `most`, the largest first. object: GRAPH_NONE:
 * of the outermost level. The caller frees *out. 0, -ENOMEM.
 */
int heap_level_read(const struct heap_graph *heap, uint32_t object, size_t most,
		    struct heap_level_node **out, size_t *count);
/*
 * Writes the heap in the format of Chrome DevTools to standard output, by line with the stacks that
 * allocated the objects. 0, -errno without a message.
 */
int heap_snapshot_write(const struct heap_choice *choice, const struct heap_graph *heap);
/* Writes the dominator tree as a profile to standard output. 0, -errno without a message. */
int heap_pprof_write(const struct heap_graph *heap);
/* Compares two heaps, or three. As the answers above. */
int heap_diff_graphs(const struct heap_choice *choice, const struct heap_graph *const *heaps,
		     size_t count);
/* The same of dumps. 0, or -errno after a message. */
int heap_diff_print(const struct heap_choice *choice, char *const *dumps, size_t count);
