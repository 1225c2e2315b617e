/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A pattern becomes a sequence of elements, one per character, with stars between them.
 * fnmatch.translate() on a set is reproduced step by step, because its corner cases are visible:
 * "[b-a!x]" loses its empty range and then is "[!x]". Backtracking needs only the last star: what
 * an earlier star matched can stay.
 */
#include "util/pattern.h"

#include <errno.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "util/cleanup.h"
#include "util/utf8.h"

enum element_kind { ELEMENT_CHARACTER, ELEMENT_ANY, ELEMENT_STAR, ELEMENT_SET };

struct pattern_range {
	uint32_t low, high;
};

struct element {
	enum element_kind kind;
	uint32_t character;
	int negated;
	size_t first_range, range_count;
};

/* A character of a set, or the dash that makes a range of its neighbours. */
struct token {
	uint32_t c;
	int dash;
};

struct pattern {
	struct element *elements; /* at most one per character of the text */
	size_t count;
	struct pattern_range *ranges; /* likewise */
	size_t range_count;
};

/* The code points of text, without the c of a final ".pyc". Caller frees. */
static uint32_t *text_decode(const char *text, size_t *count)
{
	size_t bytes = strlen(text), n = 0;
	uint32_t *points = malloc((bytes + 1) * sizeof(*points));

	if (!points)
		return NULL;
	if (bytes >= 4 && !memcmp(text + bytes - 4, ".pyc", 4))
		bytes--;
	for (const char *end = text + bytes; text < end;)
		text += utf8_take(text, &points[n++]);
	*count = n;
	return points;
}

/*
 * Splits [at, end) of a set into chunks at the dashes that make ranges. starts and ends get the
 * bounds of each chunk. As in translate(), a dash makes a range only after the first character and
 * before the last one, and at least three characters after the previous such dash.
 */
static size_t chunks_split(const uint32_t *p, size_t at, size_t end, size_t *starts, size_t *ends)
{
	size_t count = 0, k = p[at] == '!' ? at + 2 : at + 1;

	for (;; k += 3) {
		while (k < end && p[k] != '-')
			k++;
		if (k >= end)
			break;
		starts[count] = at;
		ends[count++] = k;
		at = k + 1;
	}
	if (at < end) {
		starts[count] = at;
		ends[count++] = end;
	} else {
		ends[count - 1]++; /* the dash itself, a character */
	}
	return count;
}

/*
 * Writes the tokens of a set to tokens, which holds end - at of them. Empty ranges are removed
 * together with their bounds.
 */
static size_t tokens_make(const uint32_t *p, size_t at, size_t end, size_t *starts, size_t *ends,
			  struct token *tokens)
{
	size_t count = chunks_split(p, at, end, starts, ends), n = 0;
	/* A chunk that was merged with its successor continues there. */
	for (size_t k = 0; k < count; k++) {
		int empty = k + 1 < count && p[ends[k] - 1] > p[starts[k + 1]];
		size_t last = ends[k] - (empty ? 1 : 0);

		for (size_t i = starts[k]; i < last; i++)
			tokens[n++] = (struct token){.c = p[i]};
		if (empty)
			starts[k + 1]++;
		else if (k + 1 < count)
			tokens[n++] = (struct token){.c = '-', .dash = 1};
	}
	return n;
}

/* Sets element to what the regular expression "[…]" of these tokens matches. */
static void set_parse(struct pattern *pattern, struct element *element, const struct token *tokens,
		      size_t count)
{
	size_t i = 0;

	if (count && tokens[0].c == '!' && !tokens[0].dash) {
		element->negated = 1;
		i = 1;
	}
	element->kind = ELEMENT_SET;
	element->first_range = pattern->range_count;
	while (i < count) {
		struct pattern_range range = {.low = tokens[i].c, .high = tokens[i].c};

		i++;
		if (i + 1 < count && tokens[i].dash) {
			range.high = tokens[i + 1].c;
			i += 2;
		}
		pattern->ranges[pattern->range_count++] = range;
	}
	element->range_count = pattern->range_count - element->first_range;
}

/*
 * Parses the set that begins after the '[' at p[at - 1]. Sets *next to the position after its ']';
 * leaves it when there is none.
 */
static int set_add(struct pattern *pattern, struct element *element, const uint32_t *p, size_t at,
		   size_t n, size_t *next)
{
	size_t end = at;

	if (end < n && p[end] == '!')
		end++;
	if (end < n && p[end] == ']')
		end++;
	while (end < n && p[end] != ']')
		end++;
	if (end >= n) {
		*element = (struct element){.kind = ELEMENT_CHARACTER, .character = '['};
		return 0;
	}
	_cleanup_free_ size_t *bounds = calloc(2 * (end - at + 1), sizeof(*bounds));
	_cleanup_free_ struct token *tokens = calloc(end - at + 1, sizeof(*tokens));
	int err = bounds && tokens ? 0 : -ENOMEM;
	if (!err) {
		size_t count = tokens_make(p, at, end, bounds, bounds + (end - at + 1), tokens);

		set_parse(pattern, element, tokens, count);
		*next = end + 1;
	}
	return err;
}

static int elements_parse(struct pattern *pattern, const uint32_t *p, size_t n)
{
	for (size_t i = 0; i < n;) {
		struct element *element = &pattern->elements[pattern->count];
		uint32_t c = p[i++];

		switch (c) {
		case '*':
			if (pattern->count && element[-1].kind == ELEMENT_STAR)
				continue;
			element->kind = ELEMENT_STAR;
			break;
		case '?':
			element->kind = ELEMENT_ANY;
			break;
		case '[':
			if (set_add(pattern, element, p, i, n, &i))
				return -ENOMEM;
			break;
		default:
			element->kind = ELEMENT_CHARACTER;
			element->character = c;
		}
		pattern->count++;
	}
	return 0;
}

int pattern_new(struct pattern **out, const char *text)
{
	struct pattern *pattern = calloc(1, sizeof(*pattern));
	size_t count = 0;
	uint32_t *points = text_decode(text, &count);
	int err = -ENOMEM;

	if (pattern && points) {
		pattern->elements = calloc(count + 1, sizeof(*pattern->elements));
		pattern->ranges = calloc(count + 1, sizeof(*pattern->ranges));
		if (pattern->elements && pattern->ranges)
			err = elements_parse(pattern, points, count);
	}
	free(points);
	if (err)
		pattern_free(pattern);
	else
		*out = pattern;
	return err;
}

void pattern_free(struct pattern *pattern)
{
	if (!pattern)
		return;
	free(pattern->elements);
	free(pattern->ranges);
	free(pattern);
}

static int element_match(const struct pattern *pattern, const struct element *element, uint32_t c)
{
	switch (element->kind) {
	case ELEMENT_CHARACTER:
		return element->character == c;
	case ELEMENT_SET:
		for (size_t i = 0; i < element->range_count; i++) {
			const struct pattern_range *range =
				&pattern->ranges[element->first_range + i];

			if (c >= range->low && c <= range->high)
				return !element->negated;
		}
		return element->negated;
	default:
		return 1;
	}
}

int pattern_match(const struct pattern *pattern, const char *name)
{
	size_t n = 0, at = 0, element = 0, back_element = SIZE_MAX, back_at = 0;
	_cleanup_free_ uint32_t *points = text_decode(name, &n);

	if (!points)
		return -ENOMEM;
	while (at < n || element < pattern->count) {
		const struct element *next =
			element < pattern->count ? &pattern->elements[element] : NULL;

		if (next && next->kind == ELEMENT_STAR) {
			back_element = ++element;
			back_at = at;
		} else if (next && at < n && element_match(pattern, next, points[at])) {
			element++;
			at++;
		} else if (back_element != SIZE_MAX && back_at < n) {
			element = back_element;
			at = ++back_at;
		} else {
			break;
		}
	}
	return at == n && element == pattern->count;
}
