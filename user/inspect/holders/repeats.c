/* SPDX-License-Identifier: Apache-2.0 */
/* Parts of paths that follow themselves: the nodes of linked lists and trees. */
#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "inspect/holders/paths.h"
#include "util/cleanup.h"

#define PART_STEPS 8u /* of a text that is looked at for repetitions */

uint32_t *chain_make(const struct paths *paths, uint32_t object, size_t *count, int *cut)
{
	uint32_t *chain = malloc(PATHS_MAX_STEPS * sizeof(*chain)), at = object;
	size_t length = 1;

	if (!chain)
		return NULL;
	while (paths->parent[at] != GRAPH_NONE && length < PATHS_MAX_STEPS) {
		at = paths->parent[at];
		length++;
	}
	*cut = paths->parent[at] != GRAPH_NONE;
	*count = length;
	for (at = object; length; at = paths->parent[at])
		chain[--length] = at;
	return chain;
}

/* A reference of a path without repetitions. Numbers are indexes in the path's chain. */
struct link {
	uint32_t at;
	/* the `part` links up to this one occur `times` times: from first, the last time from last
	 */
	uint32_t part, times, first, last, end;
};

/* The links that the path of chain[i] has less than the one in front of it and chain[i] itself. */
static size_t part_of(const struct paths *paths, uint32_t before, uint32_t object)
{
	uint32_t at = paths->folded[before];
	size_t part = 1;

	while (at != paths->folded[object] && paths->parent[at] != GRAPH_NONE) {
		at = paths->folded[paths->parent[at]];
		part++;
	}
	return part;
}

/* Gives the links of a chain; room for as many as it has objects. Returns how many there are. */
static size_t links_make(const struct paths *paths, const uint32_t *chain, size_t count,
			 struct link *links)
{
	size_t made = 0, part;

	for (size_t i = 0; i < count; i++) {
		struct link *link;

		part = i && paths->folded[chain[i]] != chain[i]
			       ? part_of(paths, chain[i - 1], chain[i])
			       : 0;
		/* The beginning of a path that is cut is missing. */
		if (!part || 2 * part > made) {
			links[made++] = (struct link){.at = (uint32_t)i, .times = 1};
			continue;
		}
		link = &links[made - part];
		uint32_t last = part == 1 ? (uint32_t)i : links[made - part + 1].at;
		if (link->part != part)
			*link = (struct link){.at = link->at,
					      .part = (uint32_t)part,
					      .times = 1,
					      .first = links[made - 2 * part + 1].at};
		link->times++;
		link->last = last;
		link->end = (uint32_t)i;
		made -= part - 1;
	}
	return made;
}

struct folding {
	struct path *path;
	uint32_t *step_of; /* by index in the chain: the steps up to there */
	size_t kept;       /* steps that stay */
	size_t taken;      /* steps that were looked at */
};

static void steps_take(struct folding *folding, size_t end)
{
	while (folding->taken < end)
		folding->path->steps[folding->kept++] = folding->path->steps[folding->taken++];
}

/* Leaves the last repetition of a link's part, or all of them, and writes how many there are. */
static void link_fold(struct folding *folding, const struct link *links, size_t number, size_t part,
		      uint32_t most)
{
	const struct link *link = &links[number];
	uint32_t least = link->part == part ? link->times : 1;
	uint32_t begin = least > 1 ? link->last : links[number - part + 1].at;
	size_t first = folding->step_of[begin - 1];
	size_t end = folding->step_of[least > 1 ? link->end : link->at];

	if (least == most && least < 3)
		return;
	if (least > 1) {
		steps_take(folding, folding->step_of[link->first - 1]);
		folding->taken = first > folding->taken ? first : folding->taken;
	}
	for (size_t i = first; i < end; i++) {
		folding->path->steps[i].least = least;
		folding->path->steps[i].most = most;
	}
}

static void links_fold(struct folding *folding, const struct link *links, size_t count,
		       const struct link *longest, size_t longest_count)
{
	for (size_t i = 0; i < count; i++) {
		const struct link *other = i < longest_count ? &longest[i] : &links[i];
		size_t part = other->part ? other->part : links[i].part;

		if (part && part <= i)
			link_fold(folding, links, i, part,
				  other->part == part ? other->times : links[i].times);
	}
	steps_take(folding, folding->path->count);
	folding->path->count = folding->kept;
}

/* The number of steps that the path has up to each object of the chain. */
static void steps_count(const struct path *path, const uint32_t *chain, size_t count,
			uint32_t *step_of)
{
	uint32_t step = 0;

	for (size_t i = 0; i < count; i++) {
		if (step < path->count && path->steps[step].object == chain[i])
			step++;
		step_of[i] = step;
	}
}

int path_fold(const struct paths *paths, uint32_t object, uint32_t longest, struct path *path)
{
	size_t count = 0, other_count = 0;
	int cut;
	_cleanup_free_ uint32_t *chain = chain_make(paths, object, &count, &cut);
	_cleanup_free_ uint32_t *other = chain_make(paths, longest, &other_count, &cut);
	_cleanup_free_ struct link *links = calloc(count + 1, sizeof(*links));
	_cleanup_free_ struct link *other_links = calloc(other_count + 1, sizeof(*other_links));
	struct folding folding = {.path = path, .step_of = calloc(count + 1, sizeof(uint32_t))};
	int err = chain && other && links && other_links && folding.step_of ? 0 : -ENOMEM;

	if (!err) {
		steps_count(path, chain, count, folding.step_of);
		count = links_make(paths, chain, count, links);
		other_count = links_make(paths, other, other_count, other_links);
		links_fold(&folding, links, count, other_links, other_count);
	}
	free(folding.step_of);
	return err;
}

/* The text of `count` steps from number first on. */
static const char *steps_text(const struct path *path, size_t first, size_t count, size_t *bytes)
{
	size_t begin = first ? path->steps[first - 1].end : 0;

	*bytes = path->steps[first + count - 1].end - begin;
	return (const char *)path->text.data + begin;
}

/* How often the `part` steps from number first on follow one another. */
static size_t steps_times(const struct path *path, size_t first, size_t part)
{
	size_t bytes, other_bytes, times = 1;
	const char *text = steps_text(path, first, part, &bytes), *other;

	while (first + (times + 1) * part <= path->count) {
		other = steps_text(path, first + times * part, part, &other_bytes);
		if (bytes != other_bytes || memcmp(text, other, bytes) != 0)
			break;
		times++;
	}
	return times;
}

int path_write(const struct path *path, struct buffer *out)
{
	int err = 0;

	for (size_t at = 0, taken; at < path->count && !err; at += taken) {
		size_t bytes, part = 1, times = 1;

		for (; part <= PART_STEPS && at + 3 * part <= path->count; part++) {
			times = steps_times(path, at, part);
			if (times >= 3)
				break;
		}
		if (times < 3)
			part = times = 1;
		const char *text = steps_text(path, at, part, &bytes);
		if (times == 1)
			err = buffer_append(out, text, bytes);
		else
			err = buffer_append(out, "(", 1)
			      ?: buffer_append(out, text, bytes)
			      ?: buffer_printf(out, "){%zu}", times);
		taken = part * times;
	}
	return err;
}
