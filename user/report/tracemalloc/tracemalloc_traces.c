/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Most of a large file consists of traces whose traceback has occurred before. Their instructions
 * are run here in one step, for speed only: anything that looks different is left to
 * tracemalloc_read.c.
 */
#include "report/tracemalloc/pickle.h"
#include "report/tracemalloc/tracemalloc_machine.h"

/*
 * Decodes a number at *at, and moves *at behind it. 0 if the number has one of the rare encodings.
 */
static inline int number_peek(const unsigned char **at, uint64_t *out)
{
	const unsigned char *p = *at;

	switch (p[0]) {
	case PICKLE_BININT1:
		*out = p[1];
		*at += 2;
		return 1;
	case PICKLE_BININT2:
		*out = p[1] | (uint64_t)p[2] << 8;
		*at += 3;
		return 1;
	case PICKLE_BININT:
		*out = p[1] | (uint64_t)p[2] << 8 | (uint64_t)p[3] << 16 | (uint64_t)p[4] << 24;
		*at += 5;
		return *out <= INT32_MAX;
	}
	return 0;
}

/* Likewise, decodes the memo entry of a GET. 0 if it is not a traceback. */
static inline int traceback_peek(const struct pickle_machine *machine, const unsigned char **at,
				 uint64_t *out)
{
	const unsigned char *p = *at;
	uint64_t index = p[1];

	if (p[0] == PICKLE_LONG_BINGET)
		index |= (uint64_t)p[2] << 8 | (uint64_t)p[3] << 16 | (uint64_t)p[4] << 24;
	else if (p[0] != PICKLE_BINGET)
		return 0;
	*at += p[0] == PICKLE_BINGET ? 2 : 5;
	if (index >= machine->memo_count || value_kind(machine->memo[index]) != VALUE_TRACEBACK)
		return 0;
	*out = value_which(machine->memo[index]);
	return 1;
}

/*
 * Decodes the parts of a trace whose traceback has occurred before, from at least TRACE_LONGEST
 * bytes. Returns the address behind it, or NULL.
 */
enum { TRACE_LONGEST = 24 };
static inline const unsigned char *trace_peek(const struct pickle_machine *machine,
					      const unsigned char *at, uint64_t *domain,
					      struct snapshot_trace *trace, uint64_t *total)
{
	int whole = *at == PICKLE_MARK;
	uint64_t traceback;

	at += whole;
	*total = SNAPSHOT_TOTAL_UNKNOWN;
	if (!number_peek(&at, domain) || !number_peek(&at, &trace->bytes) ||
	    !traceback_peek(machine, &at, &traceback) || (whole && !number_peek(&at, total)) ||
	    *at++ != (whole ? PICKLE_TUPLE : PICKLE_TUPLE3))
		return NULL;
	trace->traceback = (uint32_t)traceback;
	return at;
}

int machine_traces(struct pickle_machine *machine)
{
	struct infile *file = machine->file;
	struct snapshot_trace trace;
	uint64_t domain, total, value;
	int err = 0;

	while (!err) {
		if (file->end - file->at < TRACE_LONGEST)
			err = infile_fill(file, TRACE_LONGEST);
		if (err || file->end - file->at < TRACE_LONGEST)
			break;
		const unsigned char *at =
			trace_peek(machine, file->data + file->at, &domain, &trace, &total);
		if (!at)
			break;
		machine->at = infile_offset(file);
		file->at = (size_t)(at - file->data);
		err = values_trace(&machine->values, (uint32_t)domain, trace.bytes, trace.traceback,
				   (uint32_t)total, &value)
			      ?: machine_push(machine, value);
		if (!err && *at == PICKLE_MEMOIZE) {
			file->at++;
			err = machine_memoize(machine, machine->memo_count);
		}
	}
	return err;
}
