/* SPDX-License-Identifier: Apache-2.0 */
#include "proc/container/cgroup.h"

#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "util/array.h"

#define ID_DIGITS (CGROUP_ID_SIZE - 1)

/* "ID:CONTROLLERS:/PATH\n". Only the path may contain colons. */
int cgroup_next(const char **text, struct cgroup_line *out)
{
	while (**text) {
		const char *line = *text, *end = strchrnul(line, '\n');
		const char *first = memchr(line, ':', (size_t)(end - line));
		const char *second =
			first ? memchr(first + 1, ':', (size_t)(end - first) - 1) : NULL;

		*text = *end ? end + 1 : end;
		if (!second || second + 1 == end || second[1] != '/')
			continue;
		*out = (struct cgroup_line){.controllers = first + 1,
					    .controllers_bytes = (size_t)(second - first) - 1,
					    .path = second + 1,
					    .path_bytes = (size_t)(end - second) - 1};
		return 1;
	}
	return 0;
}

static bool is_hex(char c)
{
	return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'f');
}

static bool is_word(const char *text, size_t bytes, const char *word)
{
	return bytes == strlen(word) && !memcmp(text, word, bytes);
}

/*
 * Maps a prefix to a runtime: "docker" of docker-ID, or the last word of "…slice:cri-containerd:".
 * For a bare ID the word is the parent directory.
 */
static enum container_runtime runtime_of(const char *word, size_t bytes)
{
	static const struct {
		const char *word;
		enum container_runtime runtime;
	} known[] = {
		{"docker", CONTAINER_RUNTIME_DOCKER},
		{"libpod", CONTAINER_RUNTIME_PODMAN},
		{"libpod-payload", CONTAINER_RUNTIME_PODMAN},
		{"libpod_parent", CONTAINER_RUNTIME_PODMAN},
		{"crio", CONTAINER_RUNTIME_CRIO},
		{"nerdctl", CONTAINER_RUNTIME_CONTAINERD},
		{"cri-containerd", CONTAINER_RUNTIME_CONTAINERD},
	};

	for (size_t i = 0; i < ARRAY_SIZE(known); i++)
		if (is_word(word, bytes, known[i].word))
			return known[i].runtime;
	return CONTAINER_RUNTIME_UNKNOWN;
}

/* Does a path component name a container? parent is the component before it. */
static int component_parse(const char *text, size_t bytes, const char *parent, size_t parent_bytes,
			   struct cgroup_container *out)
{
	static const char scope[] = ".scope";
	const char *word = text;

	if (bytes > sizeof(scope) - 1 &&
	    is_word(text + bytes - (sizeof(scope) - 1), sizeof(scope) - 1, scope))
		bytes -= sizeof(scope) - 1;
	if (bytes < ID_DIGITS)
		return 0;
	size_t prefix = bytes - ID_DIGITS;
	for (size_t i = prefix; i < bytes; i++)
		if (!is_hex(text[i]))
			return 0;
	if (prefix && text[prefix - 1] != '-' && text[prefix - 1] != ':')
		return 0;
	memcpy(out->id, text + prefix, ID_DIGITS);
	out->id[ID_DIGITS] = '\0';
	if (!prefix && is_word(parent, parent_bytes, "libpod_parent"))
		return 0;
	if (!prefix) {
		out->runtime = runtime_of(parent, parent_bytes);
		return 1;
	}
	prefix--;
	for (size_t i = 0; i < prefix; i++)
		if (text[i] == ':')
			word = text + i + 1;
	prefix -= (size_t)(word - text);
	out->runtime = runtime_of(word, prefix);
	return !is_word(word, prefix, "libpod-conmon") && !is_word(word, prefix, "crio-conmon");
}

/* "podUID", or "…-podUID.slice" from systemd, which replaces '-' by '_'. */
static void pod_parse(const char *text, size_t bytes, char uid[CGROUP_POD_SIZE])
{
	static const char slice[] = ".slice";
	const size_t uid_bytes = CGROUP_POD_SIZE - 1;
	const char *colon = memchr(text, ':', bytes);

	if (colon)
		bytes = (size_t)(colon - text);
	if (bytes > sizeof(slice) - 1 &&
	    is_word(text + bytes - (sizeof(slice) - 1), sizeof(slice) - 1, slice))
		bytes -= sizeof(slice) - 1;
	if (bytes < uid_bytes + 3 || memcmp(text + bytes - uid_bytes - 3, "pod", 3))
		return;
	text += bytes - uid_bytes;
	for (size_t i = 0; i < uid_bytes; i++)
		if (!is_hex(text[i]) && text[i] != '-' && text[i] != '_')
			return;
	for (size_t i = 0; i < uid_bytes; i++)
		uid[i] = text[i] == '_' ? '-' : text[i];
	uid[uid_bytes] = '\0';
}

int cgroup_container_parse(const char *path, size_t bytes, struct cgroup_container *out)
{
	struct cgroup_container found = {0}, here;
	char pod[CGROUP_POD_SIZE] = "";
	const char *parent = path;
	size_t parent_bytes = 0;

	for (size_t start = 0, end; start < bytes; start = end + 1) {
		const char *slash = memchr(path + start, '/', bytes - start);

		end = slash ? (size_t)(slash - path) : bytes;
		pod_parse(path + start, end - start, pod);
		here = (struct cgroup_container){.path_bytes = end};
		if (component_parse(path + start, end - start, parent, parent_bytes, &here)) {
			memcpy(here.pod_uid, pod, sizeof(pod));
			found = here;
		}
		parent = path + start;
		parent_bytes = end - start;
	}
	if (!found.id[0])
		return 0;
	*out = found;
	return 1;
}

int cgroup_container_find(const char *text, struct cgroup_container *out, struct cgroup_line *line)
{
	struct cgroup_line here;

	while (cgroup_next(&text, &here)) {
		if (!cgroup_container_parse(here.path, here.path_bytes, out))
			continue;
		if (line)
			*line = here;
		return 1;
	}
	return 0;
}

/* ID, PREFIX-ID and PREFIX:ID, each optionally followed by ".scope". */
static bool component_is(const char *text, size_t bytes, const char *id)
{
	static const char scope[] = ".scope";
	size_t id_bytes = strlen(id);

	if (bytes > id_bytes && bytes > sizeof(scope) - 1 &&
	    is_word(text + bytes - (sizeof(scope) - 1), sizeof(scope) - 1, scope))
		bytes -= sizeof(scope) - 1;
	if (bytes < id_bytes || !id_bytes || memcmp(text + bytes - id_bytes, id, id_bytes))
		return 0;
	return bytes == id_bytes || text[bytes - id_bytes - 1] == '-' ||
	       text[bytes - id_bytes - 1] == ':';
}

int cgroup_id_find(const char *text, const char *id, struct cgroup_line *line, size_t *path_bytes)
{
	struct cgroup_line here;
	int found = 0;

	while (cgroup_next(&text, &here)) {
		size_t at = 0;

		for (size_t start = 0, end; start < here.path_bytes; start = end + 1) {
			const char *slash = memchr(here.path + start, '/', here.path_bytes - start);

			end = slash ? (size_t)(slash - here.path) : here.path_bytes;
			if (component_is(here.path + start, end - start, id))
				at = end;
		}
		if (!at || (found && here.controllers_bytes))
			continue;
		found = 1;
		*line = here;
		*path_bytes = at;
	}
	return found;
}

int cgroup_ref_holds(const struct cgroup_ref *ref, const char *text)
{
	size_t bytes = strlen(ref->path);
	struct cgroup_line line;

	while (cgroup_next(&text, &line)) {
		if (!is_word(line.controllers, line.controllers_bytes, ref->controllers))
			continue;
		if (bytes == 1) /* the root */
			return 1;
		return line.path_bytes >= bytes && !memcmp(line.path, ref->path, bytes) &&
		       (line.path_bytes == bytes || line.path[bytes] == '/');
	}
	return 0;
}

void cgroup_ref_free(struct cgroup_ref *ref)
{
	free(ref->controllers);
	free(ref->path);
	*ref = (struct cgroup_ref){0};
}
