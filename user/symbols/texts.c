/* SPDX-License-Identifier: Apache-2.0 */
#include "symbols/texts.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "text/text.h"

int texts_forget(struct symbols *symbols)
{
	struct strings *strings;
	int err;

	/* First, since there may be no room for anything new. */
	cache_free(&symbols->cache);
	err = strings_new_in(&strings, &symbols->names);
	if (err)
		return err;
	strings_free(symbols->strings);
	symbols->strings = strings;
	return 0;
}

int texts_keep(struct symbols *symbols, const char *text, const char **out)
{
	char shown[SYMBOLS_TEXT_MAX];
	size_t bytes = text_escape(shown, sizeof(shown), text);
	uint32_t id;
	int err = strings_intern(symbols->strings, shown, bytes, &id);

	if (!err)
		*out = strings_get(symbols->strings, id);
	return err;
}

int texts_keep_location(struct symbols *symbols, const char *path, uint64_t offset,
			const char **out)
{
	const char *slash = strrchr(path, '/');
	char text[SYMBOLS_TEXT_MAX];

	snprintf(text, sizeof(text), "[%.512s+0x%" PRIx64 "]", slash ? slash + 1 : path, offset);
	return texts_keep(symbols, text, out);
}
