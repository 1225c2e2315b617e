/* SPDX-License-Identifier: Apache-2.0 */
#include "layouts/signs.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define NAME          "python"
#define MAX_CONSTANTS (64u << 20)
/* least plausible size of _PyRuntime, which has a hundred times as many bytes */
#define MIN_RUNTIME 1024u

int signs_runtime(struct elf_file *file, uint64_t *vaddr)
{
	struct elf_symbol symbol;
	uint64_t bytes;

	if (!elf_file_symbol(file, "_PyRuntime", &symbol) && symbol.vaddr) {
		*vaddr = symbol.vaddr;
		return 0;
	}
	return elf_file_section(file, ".PyRuntime", vaddr, &bytes) || !*vaddr || bytes < MIN_RUNTIME
		       ? -ENOENT
		       : 0;
}

int signs_own_version(struct elf_file *file, uint64_t vaddr, uint32_t *hex, int *free_threaded)
{
	uint64_t words[3];

	if (elf_file_read(file, vaddr, words, sizeof(words)) != (int)sizeof(words) ||
	    memcmp(&words[0], "xdebugpy", sizeof(words[0])) || !words[1] || words[1] > UINT32_MAX)
		return -ENOENT;
	*hex = (uint32_t)words[1];
	*free_threaded = words[2] != 0;
	return 0;
}

int signs_is_old(struct elf_file *file)
{
	struct elf_symbol symbol;

	return !elf_file_symbol(file, "Py_GetVersion", &symbol) && symbol.vaddr != 0;
}

/*
 * Reads the file's constants; the caller frees them. NULL: none, too many, or no memory. *bytes:
 * the size that was read.
 */
static char *constants_read(struct elf_file *file, size_t *bytes)
{
	uint64_t vaddr, size;
	char *data;
	int got;

	if (elf_file_section(file, ".rodata", &vaddr, &size) || size > MAX_CONSTANTS)
		return NULL;
	data = malloc(size + 1);
	if (!data)
		return NULL;
	got = elf_file_read(file, vaddr, data, size);
	*bytes = got > 0 ? (size_t)got : 0;
	return data;
}

/*
 * Whether there is a constant first + rest. It is split so that the tracer itself does not contain
 * it.
 */
static int has_constant(const char *data, size_t bytes, char first, const char *rest)
{
	const char *at = data, *end = data + bytes;

	while ((at = memmem(at, (size_t)(end - at), rest, strlen(rest) + 1))) {
		if (at > data && at[-1] == first)
			return 1;
		at++;
	}
	return 0;
}

int signs_is_hidden(struct elf_file *file)
{
	size_t bytes;
	char *data = constants_read(file, &bytes);
	int found = data && has_constant(data, bytes, 'P', "YTHONHASHSEED") &&
		    has_constant(data, bytes, 'P', "YTHONMALLOC") &&
		    has_constant(data, bytes, '_', "frozen_importlib");

	free(data);
	return found;
}

static const char *number_parse(const char *at, const char *end, unsigned int *out)
{
	const char *start = at;

	for (*out = 0; at < end && *at >= '0' && *at <= '9' && *out < 256; at++)
		*out = *out * 10 + (unsigned int)(*at - '0');
	return at > start && *out < 256 ? at : NULL;
}

/* "python3.13" at `at`: what follows it; NULL: it is none. */
static const char *version_parse(const char *at, const char *end, unsigned int *major,
				 unsigned int *minor)
{
	at = number_parse(at + strlen(NAME), end, major);
	if (!at || at == end || *at != '.' || *major < 2 || *major > 3)
		return NULL;
	return number_parse(at + 1, end, minor);
}

/* "…python3.13t…": 3, 13 and the letter of the build (0: none). 0 or -ENOENT. */
static int name_parse(const char *name, unsigned int *major, unsigned int *minor, char *build)
{
	const char *slash = strrchr(name, '/'), *end = name + strlen(name), *rest;
	const char *at = strstr(slash ? slash + 1 : name, NAME);

	rest = at ? version_parse(at, end, major, minor) : NULL;
	if (!rest)
		return -ENOENT;
	*build = *rest == 't' || *rest == 'd' ? *rest : 0;
	return 0;
}

/*
 * An application that links CPython may have any name, but one of its constants is the name of the
 * module folder: "python3.8" or "lib/python3.8". 0; -ENOENT: none, or contradictory ones.
 */
static int constants_search(struct elf_file *file, unsigned int *major, unsigned int *minor)
{
	const char *at, *end, *rest;
	unsigned int first = 0, second;
	size_t bytes;
	char *data = constants_read(file, &bytes);
	int err = -ENOENT;

	if (!data)
		return -ENOENT;
	end = data + bytes;
	for (at = data; (at = memmem(at, (size_t)(end - at), NAME, strlen(NAME))); at++) {
		rest = version_parse(at, end, &first, &second);
		if (!rest || rest == end || *rest || (at > data && at[-1] && at[-1] != '/'))
			continue;
		if (!err && (*major != first || *minor != second)) {
			err = -ENOENT;
			break;
		}
		*major = first;
		*minor = second;
		err = 0;
	}
	free(data);
	return err;
}

int signs_version(struct elf_file *file, unsigned int *major, unsigned int *minor, char *build)
{
	*build = 0;
	if (!name_parse(elf_file_soname(file), major, minor, build) ||
	    !name_parse(elf_file_path(file), major, minor, build))
		return 0;
	return constants_search(file, major, minor);
}
