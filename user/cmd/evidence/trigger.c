/* SPDX-License-Identifier: Apache-2.0 */
#include "cmd/evidence/trigger.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "cmd/options/options.h"
#include "util/error.h"

#define RSS_LEAST (1u << 20) /* a number without a unit is a share whose % was forgotten */
#define SPAN_MOST (24 * 3600ull * 1000000000)
#define PRESSURE  "pressure:"

static int share_parse(const char *word, double *value)
{
	double percent;

	if (cli_parse_percent(word, &percent) || !(percent >= 1) || percent > 100)
		return error_set(-EINVAL, "%.20s: from 1%% to 100%%", word);
	*value = percent / 100;
	return 0;
}

static int bytes_parse(const char *word, double *value)
{
	uint64_t bytes;

	if (cli_parse_bytes(word, &bytes) || bytes < RSS_LEAST)
		return error_set(-EINVAL, "%.20s: no size from 1M on", word);
	*value = (double)bytes;
	return 0;
}

static int growth_parse(char *word, char *slash, struct trigger *out)
{
	*slash = '\0';
	if (cli_parse_seconds(slash + 1, &out->span_ns) || out->span_ns < 1000000000 ||
	    out->span_ns > SPAN_MOST)
		return error_set(-EINVAL, "%.20s/%.20s: no time from 1s to 24h", word, slash + 1);
	return bytes_parse(word, &out->value);
}

static int word_take(char *word, struct triggers *out)
{
	char *slash = strchr(word, '/');
	bool is_pressure = !strncmp(word, PRESSURE, strlen(PRESSURE));
	enum trigger_kind kind = is_pressure         ? TRIGGER_PRESSURE
				 : slash             ? TRIGGER_GROWTH
				 : strchr(word, '%') ? TRIGGER_SHARE
						     : TRIGGER_RSS;
	struct trigger trigger = {0}, *place = &out->items[kind];

	if (place->value > 0)
		return error_set(-EINVAL, "%.20s: %s is of the same kind", word, place->text);
	snprintf(trigger.text, sizeof(trigger.text), "%s", word);
	int err = is_pressure         ? share_parse(word + strlen(PRESSURE), &trigger.value)
		  : slash             ? growth_parse(word, slash, &trigger)
		  : strchr(word, '%') ? share_parse(word, &trigger.value)
				      : bytes_parse(word, &trigger.value);
	if (!err)
		*place = trigger;
	return err;
}

int triggers_parse(const char *text, struct triggers *out)
{
	char words[128], *next = words, *word;
	int err = snprintf(words, sizeof(words), "%s", text) < (int)sizeof(words)
			  ? 0
			  : error_set(-EINVAL, "it is too long");

	*out = (struct triggers){0};
	while (!err && (word = strsep(&next, ","))) {
		size_t bytes;

		word += strspn(word, " ");
		for (bytes = strlen(word); bytes && word[bytes - 1] == ' '; bytes--)
			word[bytes - 1] = '\0';
		err = word_take(word, out);
	}
	return err;
}

bool triggers_any(const struct triggers *triggers)
{
	for (size_t i = 0; i < TRIGGER_KINDS; i++)
		if (triggers->items[i].value > 0)
			return 1;
	return 0;
}

uint64_t trigger_past_growth(struct trigger_past *past, const struct trigger *growth, uint64_t rss,
			     uint64_t now_ns)
{
	uint64_t least = rss;

	if (now_ns >= past->next_ns) {
		past->bytes[past->next] = rss;
		past->next = (past->next + 1) % TRIGGER_SAMPLES;
		past->count += past->count < TRIGGER_SAMPLES;
		past->next_ns = now_ns + growth->span_ns / TRIGGER_SAMPLES;
	}
	for (unsigned int i = 0; i < past->count; i++)
		least = past->bytes[i] < least ? past->bytes[i] : least;
	return rss - least;
}
