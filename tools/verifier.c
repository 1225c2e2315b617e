/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Prints what the kernel's verifier reports for every BPF program: instructions processed, stack of
 * the deepest call chain, time. Exits with 1 if a program is refused or exceeds its budget.
 * usage: verifier [-v]    -v: the verifier's log for a program that it refuses
 *
 * The budgets leave room below the kernel's limits (512 bytes of stack over all calls, a million
 * instructions), which older verifiers reach earlier. No function may have a private stack
 * (user/attach/kernel/private_stack.h). The verifier's figures include what it adds after it has
 * decided on a private stack, so the machine code is checked.
 */
#include <bpf/bpf.h>
#include <bpf/libbpf.h>
#include <linux/bpf.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "abi/target.h"
#include "attach/alloc.skel.h"
#include "attach/kernel/private_stack.h"
#include "attach/links/features.h"
#include "attach/links/links.h"
#include "attach/perfmap.skel.h"
#include "util/clock.h"

#define STACK_MAX   384u
#define FRAME_MAX   64u
#define INSNS_MAX   250000ul
#define LOAD_MS_MAX 500.0 /* all programs of an object; printed only, as machines differ */

#define LOG_BYTES  (16u << 20)
#define LOG_STATS  4   /* BPF_LOG_STATS of the kernel's include/linux/bpf_verifier.h */
#define STACK_UNIT 32u /* check_max_stack_depth() rounds each frame up */
#define FUNCTIONS  128

/* The functions of a program: their starts, and the stack that each one uses. */
struct functions {
	size_t count;
	int start[FUNCTIONS];
	unsigned int depth[FUNCTIONS];
};

static int starts_compare(const void *a, const void *b)
{
	return *(const int *)a - *(const int *)b;
}

/*
 * Returns the start of the function that the instruction refers to (by a call, or as the address of
 * a callback), or -1.
 */
static int function_referred(const struct bpf_insn *insns, int i)
{
	const struct bpf_insn *insn = &insns[i];

	if (insn->code == (BPF_JMP | BPF_CALL) && insn->src_reg == BPF_PSEUDO_CALL)
		return i + insn->imm + 1;
	if (insn->code == (BPF_LD | BPF_IMM | BPF_DW) && insn->src_reg == BPF_PSEUDO_FUNC)
		return i + insn->imm + 1;
	return -1;
}

static void functions_find(struct functions *functions, const struct bpf_insn *insns, int count)
{
	functions->count = 1;
	functions->start[0] = 0;
	for (int i = 0; i < count; i++) {
		int start = function_referred(insns, i), known = start < 0;

		for (size_t k = 0; k < functions->count && !known; k++)
			known = functions->start[k] == start;
		if (!known && functions->count < FUNCTIONS)
			functions->start[functions->count++] = start;
	}
	qsort(functions->start, functions->count, sizeof(functions->start[0]), starts_compare);
}

/*
 * The stack depths in the order of the functions: "stack depth 64+16+0"; from 7.0 on one line per
 * function, "subprog 1 (name) … stack 16". Returns whether every function was reported.
 */
static int depths_read(struct functions *functions, const char *log)
{
	const char *sum = strstr(log, "stack depth "), *line = strstr(log, "subprog 0 (");
	size_t found = 0;

	sum = sum ? sum + strlen("stack depth ") : "";
	for (; line && found < functions->count; line = strstr(line, "\nsubprog ")) {
		line = strstr(line, " stack ");
		if (!line)
			break;
		functions->depth[found++] = strtoul(line + strlen(" stack "), NULL, 10);
	}
	for (; found < functions->count && *sum >= '0' && *sum <= '9'; found++) {
		char *end;

		functions->depth[found] = strtoul(sum, &end, 10);
		sum = *end == '+' ? end + 1 : end;
	}
	return found == functions->count;
}

/* The stack of function number which and of its deepest call chain; there is no recursion. */
static unsigned int stack_combined(const struct functions *functions, const struct bpf_insn *insns,
				   int count, size_t which)
{
	int end = which + 1 < functions->count ? functions->start[which + 1] : count;
	unsigned int deepest = 0, own = functions->depth[which] ? functions->depth[which] : 1;

	for (int i = functions->start[which]; i < end; i++) {
		int start = function_referred(insns, i);

		for (size_t k = 0; k < functions->count && start >= 0; k++) {
			unsigned int below = 0;

			if (functions->start[k] == start)
				below = stack_combined(functions, insns, count, k);
			deepest = below > deepest ? below : deepest;
		}
	}
	return (own + STACK_UNIT - 1) / STACK_UNIT * STACK_UNIT + deepest;
}

static unsigned long number_after(const char *log, const char *words)
{
	const char *at = strstr(log, words);

	return at ? strtoul(at + strlen(words), NULL, 10) : 0;
}

/* Prints one line of the table. Returns whether a budget is exceeded. */
static int program_print(struct bpf_program *program, const char *log)
{
	const struct bpf_insn *insns = bpf_program__insns(program);
	int count = (int)bpf_program__insn_cnt(program), over;
	unsigned long seen = number_after(log, "processed ");
	unsigned int stack, frame = 0;
	struct functions functions;
	int private = private_stack_count_fd(bpf_program__fd(program));

	functions_find(&functions, insns, count);
	over = !depths_read(&functions, log);
	stack = stack_combined(&functions, insns, count, 0);
	for (size_t i = 0; i < functions.count; i++)
		frame = functions.depth[i] > frame ? functions.depth[i] : frame;
	over |= stack > STACK_MAX || frame >= FRAME_MAX || seen > INSNS_MAX || !seen || private;
	printf("%-20s %9lu %8d %6u %6u %7d %8.1f%s\n", bpf_program__name(program), seen, count,
	       stack, frame, private, (double)number_after(log, "verification time ") / 1000,
	       over ? "  OVER" : "");
	return over;
}

/* By the program's name: attached at the return, or at both entry and return. */
static enum links_kind program_kind(const char *name)
{
	return strstr(name, "_session")  ? LINKS_BOTH
	       : strstr(name, "_return") ? LINKS_RETURN
					 : LINKS_ENTRY;
}

/* Loads an object with every program that this kernel supports. Returns whether all succeeded. */
static int object_try(struct bpf_object *object, const struct features *features, int verbose)
{
	const struct links links = {.backend = links_choose(features, 0, 0)};
	struct bpf_program *program;
	int failed, over = 0;
	uint64_t start;

	bpf_object__for_each_program(program, object)
	{
		int is_uprobe = bpf_program__type(program) == BPF_PROG_TYPE_KPROBE;
		enum links_kind kind = program_kind(bpf_program__name(program));
		char *log = calloc(1, LOG_BYTES);

		bpf_program__set_autoload(
			program,
			(kind != LINKS_BOTH || links.backend == LINKS_SESSION) &&
				(strcmp(bpf_program__name(program), "process_exec_begin") != 0 ||
				 features->prepare_exec));
		if (is_uprobe)
			links_prepare(&links, program, kind);
		if (!log || bpf_program__set_log_level(program, LOG_STATS) ||
		    bpf_program__set_log_buf(program, log, LOG_BYTES))
			return 0;
	}
	start = clock_ns(CLOCK_MONOTONIC);
	failed = bpf_object__load(object);
	printf("%-20s %9s %8s %6s %6s %7s %8s\n", bpf_object__name(object), "seen", "insns",
	       "stack", "frame", "private", "ms");
	bpf_object__for_each_program(program, object)
	{
		size_t bytes;
		const char *log = bpf_program__log_buf(program, &bytes);

		if (!bpf_program__autoload(program))
			continue;
		if (bpf_program__fd(program) >= 0)
			over |= program_print(program, log);
		else
			printf("%-20s refused%s%s\n", bpf_program__name(program),
			       verbose ? ":\n" : "", verbose ? log : "");
	}
	if (failed)
		printf("not loaded: %s\n", strerror(-failed));
	else
		printf("loaded in %.0f ms (budget: %.0f)\n",
		       (clock_ns(CLOCK_MONOTONIC) - start) / 1e6, LOAD_MS_MAX);
	return !failed && !over;
}

int main(int argc, char **argv)
{
	int verbose = argc > 1 && !strcmp(argv[1], "-v"), well = 1;
	struct alloc_bpf *alloc = alloc_bpf__open();
	struct perfmap_bpf *perfmap = perfmap_bpf__open();
	struct features features;

	if (!verbose)
		links_silence_libbpf();
	if (!alloc || !perfmap || features_probe(&features))
		return 2;
	alloc->rodata->has_loop = features.bpf_loop;
	alloc->rodata->has_native = 1;
	alloc->rodata->has_labels = 1;
	alloc->rodata->watch = ABI_WATCH_ALL;
	alloc->rodata->sampling = 1;
	alloc->rodata->returns_by_call = perfmap->rodata->returns_by_call = 1;
	well &= object_try(alloc->obj, &features, verbose);
	well &= object_try(perfmap->obj, &features, verbose);
	return well ? 0 : 1;
}
