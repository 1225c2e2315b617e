/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Where the value is that labels a process's blocks (abi/label.h): the variable, the names of the
 * attributes that are followed, the types that have slots of these names, the code objects of the
 * function. They are objects of the process, found in its heap by their types and texts.
 *
 * A path is NAME, then up to ABI_LABEL_STEPS steps, then the form in which an int is told:
 *
 *	.attribute   an instance's, or a dict's item
 *	.0           an item of a tuple or a list
 *	.prefix*     a dict's item by the only str of the process that begins so
 *	:x :032x     an int in hex digits, as Python's format() has it; up to 99 digits
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>

#include "abi/events.h"
#include "abi/label.h"
#include "runtime/cpython/runtime.h"

#define LABEL_TEXT  128u
#define LABEL_CODES 256u /* limit of a function's code objects, and of types with a slot */

/*
 * What is asked for: "context PATH", "local FUNCTION:PATH", "greenlet"; of ABI_LABEL_TASK the
 * source only.
 */
struct label_spec {
	enum abi_label_source source;
	char text[EVENT_LABEL_TEXT]; /* as above */
	char function[LABEL_TEXT];   /* ABI_LABEL_LOCAL */
	char path[LABEL_TEXT];       /* without the form; a context variable's name may have dots */
	uint16_t hex_digits;         /* at least so many; 0: decimal */
};

struct label_found {
	struct abi_label label; /* codes_of is the process */
	struct abi_label_key keys[LABEL_CODES];
	struct abi_label_code codes[LABEL_CODES];
	size_t code_count;
	size_t dropped; /* functions and types beyond the limit */
};

/* text: behind the first word. 0; -EINVAL: error_set() says what is expected. */
int label_spec_parse(enum abi_label_source source, const char *text, struct label_spec *out);
/* Whether labels_find() reads the process's whole heap. */
bool labels_reads_heap(const struct label_spec *spec);
/*
 * Also sets the types in runtime->target that BPF compares with. 0; -EAGAIN: what is asked for is
 * not there, or not yet (error_set); -EEXIST: there are several variables of that name, or several
 * keys that begin so (error_set); -ENOTSUP: its version or build does not tell (error_set);
 * -ESRCH; -EPERM; -ENOMEM.
 */
int labels_find(struct python_runtime *runtime, const struct label_spec *spec,
		struct label_found *out);
