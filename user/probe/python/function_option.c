/* SPDX-License-Identifier: Apache-2.0 */
#include "probe/python/function_option.h"

#include <errno.h>
#include <fnmatch.h>
#include <stdlib.h>
#include <string.h>

#include "probe/python/plan_symbol.h"

#define DELETED " (deleted)" /* suffix of an unlinked file's path in /proc/PID/maps */

int function_option_split(const char *text, char **file, char **symbol, const char **rest)
{
	const char *first = strchr(text, ':'), *second = first ? strchr(first + 1, ':') : NULL;
	size_t length = second ? (size_t)(second - first - 1) : first ? strlen(first + 1) : 0;
	char *before, *name;

	if (!length || first == text || length >= PLAN_NAME_SIZE || (second && !second[1]))
		return -EINVAL;
	before = strndup(text, (size_t)(first - text));
	name = strndup(first + 1, length);
	if (!before || !name) {
		free(before);
		free(name);
		return -ENOMEM;
	}
	*file = before;
	*symbol = name;
	*rest = second ? second + 1 : NULL;
	return 0;
}

/* Parses the first key of "size=2,addr=1". Returns the text after it, or NULL. */
static const char *argument_parse(const char *text, const struct function_argument *keys,
				  size_t count)
{
	for (size_t i = 0; i < count; i++) {
		size_t length = strlen(keys[i].key);
		const char *value = text + length + 1;

		if (strncmp(text, keys[i].key, length) || text[length] != '=')
			continue;
		if (*value < '1' || *value > '0' + FUNCTION_ARGUMENTS ||
		    (value[1] && value[1] != ','))
			return NULL;
		*keys[i].value = (unsigned)(*value - '0');
		return value + (value[1] ? 2 : 1);
	}
	return NULL;
}

int function_option_arguments(const char *text, const struct function_argument *keys, size_t count)
{
	while (text && *text)
		text = argument_parse(text, keys, count);
	for (size_t i = 0; text && i < count; i++)
		for (size_t j = 0; j < i; j++)
			if (*keys[i].value && *keys[i].value == *keys[j].value)
				return -EINVAL;
	return text ? 0 : -EINVAL;
}

static int matches(const char *pattern, const char *name)
{
	return !strcmp(pattern, name) || !fnmatch(pattern, name, 0);
}

bool function_option_is_in(const char *file, const char *path)
{
	size_t length = strlen(path), deleted = strlen(DELETED);
	char *plain = NULL;

	if (length > deleted && !strcmp(path + length - deleted, DELETED))
		plain = strndup(path, length - deleted);
	if (plain)
		path = plain;
	const char *slash = strrchr(path, '/');
	int is = matches(file, path) || (slash && matches(file, slash + 1));
	free(plain);
	return is;
}
