/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Where the value is that labels a process's blocks (abi/label.h): the variable, the names of the
 * attributes that are followed, the code objects of the function. They are objects of the process,
 * found in its heap by their types and texts.
 */
#pragma once

#include <stddef.h>

#include "abi/events.h"
#include "abi/label.h"
#include "runtime/cpython/runtime.h"

#define LABEL_TEXT  128u
#define LABEL_CODES 64u /* limit of a function's code objects */

/* What is asked for: "context NAME[.attribute...]", "local FUNCTION:NAME[.attribute...]". */
struct label_spec {
	enum abi_label_source source;
	char text[EVENT_LABEL_TEXT]; /* as above: "context NAME" */
	char function[LABEL_TEXT];   /* ABI_LABEL_LOCAL */
	char path[LABEL_TEXT]; /* NAME[.attribute...]; a context variable's name may have dots */
};

struct label_found {
	struct abi_label label; /* codes_of is the process */
	struct abi_label_key keys[LABEL_CODES];
	struct abi_label_code codes[LABEL_CODES];
	size_t code_count;
};

/* text: behind the first word. 0; -EINVAL: error_set() says what is expected. */
int label_spec_parse(enum abi_label_source source, const char *text, struct label_spec *out);
/*
 * Also sets the types in runtime->target that BPF compares with. 0; -EAGAIN: what is asked for is
 * not there, or not yet (error_set); -EEXIST: there are several variables of that name (error_set);
 * -ENOTSUP: its version or build does not tell (error_set); -ESRCH; -EPERM; -ENOMEM.
 */
int labels_find(struct python_runtime *runtime, const struct label_spec *spec,
		struct label_found *out);
