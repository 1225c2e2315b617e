/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The pickle machine's state, for tracemalloc_read.c and tracemalloc_traces.c: a stack, marks on
 * it, a memo.
 */
#pragma once

#include <errno.h>

#include "report/tracemalloc/tracemalloc_values.h"
#include "util/array.h"
#include "util/error.h"
#include "util/infile.h"

#define MARKS_MAX 16u /* a file of tracemalloc nests six deep */

struct pickle_machine {
	struct infile *file;
	struct values values;
	uint64_t *stack, *memo;
	size_t depth, stack_capacity, memo_count, memo_capacity;
	size_t marks[MARKS_MAX], mark_count;
	uint64_t at; /* offset of the instruction */
	int stopped;
};

static inline int machine_corrupt(const char *what)
{
	error_set(-EBADMSG, "%s", what);
	return -EBADMSG; /* never 0, which the compiler can see here */
}

static inline int machine_push(struct pickle_machine *machine, uint64_t value)
{
	if (machine->depth == machine->stack_capacity) {
		int err = ARRAY_GROW(machine->stack, machine->stack_capacity, machine->depth);
		if (err)
			return err;
	}
	machine->stack[machine->depth++] = value;
	return 0;
}

/* The number of values above the last mark, which may be popped. */
static inline size_t machine_depth(const struct pickle_machine *machine)
{
	return machine->depth - (machine->mark_count ? machine->marks[machine->mark_count - 1] : 0);
}

static inline int machine_memoize(struct pickle_machine *machine, uint64_t index)
{
	if (!machine_depth(machine))
		return machine_corrupt("the stack holds too little");
	if (index > machine->memo_count)
		return error_set(-EBADMSG, "entry %llu of a memo of %zu", (unsigned long long)index,
				 machine->memo_count);
	if (index == machine->memo_count) {
		if (machine->memo_count == machine->memo_capacity) {
			int err = ARRAY_GROW(machine->memo, machine->memo_capacity,
					     machine->memo_count);
			if (err)
				return err;
		}
		machine->memo_count++;
	}
	machine->memo[index] = machine->stack[machine->depth - 1];
	return 0;
}

/*
 * Runs the instructions of consecutive traces whose tracebacks have occurred before; machine->at is
 * the offset of the last one. 0, -errno.
 */
int machine_traces(struct pickle_machine *machine);
