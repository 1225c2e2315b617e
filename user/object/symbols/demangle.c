/* SPDX-License-Identifier: Apache-2.0 */
#include "object/symbols/demangle.h"

#include <libiberty/demangle.h>
#include <string.h>

#define CUT         "..."
#define MANGLED_MAX 16384u /* bytes; libiberty uses stack in proportion */

struct demangle_text {
	char *out;
	size_t bytes;
	int cut;
};

static void take(const char *piece, size_t bytes, void *context)
{
	struct demangle_text *text = context;
	size_t capacity = DEMANGLE_MAX - 1 - text->bytes;

	if (bytes > capacity) {
		bytes = capacity;
		text->cut = 1;
	}
	memcpy(text->out + text->bytes, piece, bytes);
	text->bytes += bytes;
}

static size_t text_end(struct demangle_text *text)
{
	if (text->cut)
		memcpy(text->out + DEMANGLE_MAX - sizeof(CUT), CUT, sizeof(CUT) - 1);
	text->out[text->bytes] = '\0';
	return text->bytes;
}

int demangle_wanted(const char *name)
{
	return name[0] == '_' && (name[1] == 'Z' || name[1] == 'R');
}

size_t demangle(const char *name, char out[DEMANGLE_MAX])
{
	const int options = DMGL_PARAMS | DMGL_ANSI;
	struct demangle_text text = {.out = out};
	size_t bytes = strnlen(name, MANGLED_MAX + 1);

	if (demangle_wanted(name) && bytes <= MANGLED_MAX) {
		/*
		 * Rust's legacy names are also C++ names: as C++ they would keep their hash, so
		 * Rust comes first.
		 */
		if (rust_demangle_callback(name, options, take, &text))
			return text_end(&text);
		text = (struct demangle_text){.out = out};
		if (cplus_demangle_v3_callback(name, options, take, &text))
			return text_end(&text);
		text = (struct demangle_text){.out = out};
	}
	take(name, bytes, &text);
	return text_end(&text);
}
