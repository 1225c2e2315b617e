/* SPDX-License-Identifier: Apache-2.0 */
/* The options that choose how native tracebacks are shown (snapshot/frames/view.h). */
#include "cmd/options/options.h"

enum { KEY_ALLOC_WRAPPER = 0x180, KEY_NO_SKIP, KEY_FULL_NAMES };

static const struct argp_option view_options[] = {
	{"alloc-wrapper", KEY_ALLOC_WRAPPER, "PATTERN", 0,
	 "native tracebacks begin at the caller of functions that match, too (* ? [a-z] [!a-z]; "
	 "repeatable)",
	 12},
	{"no-skip", KEY_NO_SKIP, NULL, 0,
	 "native tracebacks begin at malloc's caller, also where that is an allocator's wrapper or "
	 "inside a standard library",
	 12},
	{"full-names", KEY_FULL_NAMES, NULL, 0,
	 "names of C++ and Rust with parameters and template arguments", 12},
	{0},
};

static error_t view_option(int key, char *arg, struct argp_state *state)
{
	struct view_choice *view = state->input;

	switch (key) {
	case KEY_ALLOC_WRAPPER:
		return -view_add_wrapper(view, arg);
	case KEY_NO_SKIP:
		view->no_skip = 1;
		return 0;
	case KEY_FULL_NAMES:
		view->full_names = 1;
		return 0;
	}
	return ARGP_ERR_UNKNOWN;
}

const struct argp cli_view_argp = {.options = view_options, .parser = view_option};
