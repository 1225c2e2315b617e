/* SPDX-License-Identifier: Apache-2.0 */
#include <math.h>
#include <string.h>

#include "cmd/heap/heap_leaks.h"
#include "report/recording/recording_load.h"
#include "util/array.h"
#include "util/json.h"
#include "util/one_line.h"
#include "util/size.h"
#include "util/text.h"

#define MINUTE 60

/* Growth that may be none is counted, but has no row. */
static bool is_reported(const struct holder *holder)
{
	return holder->verdict >= HOLDER_BOUNDED ||
	       (holder->verdict == HOLDER_UNCLEAR && holder->slope.low > 0);
}

static const char *const verdicts[] = {
	[HOLDER_STEADY] = "steady",     [HOLDER_UNCLEAR] = "unclear", [HOLDER_BOUNDED] = "bounded",
	[HOLDER_LEVELS] = "levels off", [HOLDER_GROWS] = "grows",
};

/* " +3.1 MiB/min (+2.9 MiB to +3.3 MiB)" */
static void rate_print(FILE *out, const struct slope *slope)
{
	char text[SIZE_TEXT_MAX];

	fprintf(out, "%s/min", size_format(text, slope->median * MINUTE, 1));
	if (!slope->has_interval)
		return;
	fprintf(out, " (%s", size_format(text, slope->low * MINUTE, 1));
	fprintf(out, " to %s)", size_format(text, slope->high * MINUTE, 1));
}

static double stayed_share(const struct holder *holder)
{
	/* What came at first may have grown since. */
	return holder->came ? fmin((double)holder->stayed / (double)holder->came, 1) : -1;
}

static void types_print(FILE *out, const struct heap_leaks *leaks, const struct holder *holder)
{
	fputs("      ", out);
	text_print(out, holder->type);
	for (size_t i = 0; i < GROWTH_TYPES && holder->types[i].bytes; i++) {
		fputs(i ? ", " : " of ", out);
		text_print(out, strings_get(leaks->names, holder->types[i].name));
	}
	if (leaks->process_count > 1)
		fprintf(out, " in %zu processes", holder->processes);
	if (stayed_share(holder) >= 0)
		fprintf(out, "; %.0f %% of what came at first has stayed",
			floor(stayed_share(holder) * 100));
	putc('\n', out);
}

static void bound_print(FILE *out, const struct holder *holder)
{
	const struct bound *bound = &holder->bound;
	char most[32];

	if (bound->most && bound->entries == bound->most)
		fprintf(out, "      bounded: at most %s entries\n", text_count(most, bound->most));
	else if (bound->most)
		fprintf(out, "      fills up to %s entries, and has %s\n",
			text_count(most, bound->most), COUNT_TEXT(bound->entries));
}

static size_t fillers_reported(const struct holder *holder)
{
	return holder->filler_count < GROWTH_FILLERS ? holder->filler_count : GROWTH_FILLERS;
}

/* "filled by shop/cache.py:40 in Handler.do_GET", a line each */
static void fillers_print(FILE *out, const struct holder *holder, int brief)
{
	size_t reported = fillers_reported(holder);

	if (brief && reported > 1)
		reported = 1;
	size_t more = holder->filler_count - reported;
	for (size_t i = 0; i < reported; i++) {
		const struct filler *filler = &holder->fillers[i];
		const char *function = strings_get(holder->filled_names, filler->function);

		fputs(i ? "        or " : "      filled by ", out);
		if (filler->calls) {
			fputs("calls of ", out);
			text_print(out, function);
			fputs(", ", out);
		}
		text_print(out, strings_get(holder->filled_names, filler->filename));
		fprintf(out, ":%u", filler->line);
		if (!filler->calls && function[0]) {
			fputs(" in ", out);
			text_print(out, function);
		}
		putc('\n', out);
	}
	if (more)
		fprintf(out, "        or %zu more place%s\n", more, more > 1 ? "s" : "");
}

/* What probes have measured of that code: "measured: shop/cache.py:40, +3.1 MiB/min". */
static void lines_print(FILE *out, const struct heap_leaks *leaks, const struct holder *holder)
{
	char text[SIZE_TEXT_MAX];

	if (!leaks->measured || !holder->filler_count)
		return;
	if (!holder->line_count)
		fputs(leaks->measured == HOLDERS_LINES_GROW
			      ? "      contradicted: the lines that grow are reached through other "
				"code\n"
			      : "      not confirmed: probes have seen no line that surely grows\n",
		      out);
	for (size_t i = 0; i < holder->line_count; i++) {
		const struct holder_line *line = &holder->lines[i];

		fputs(i ? "        and " : "      measured: ", out);
		text_print(out, line->filename);
		fprintf(out, ":%u", line->line);
		if (!isnan(line->slope))
			fprintf(out, " %s/min", size_format(text, line->slope * MINUTE, 1));
		fprintf(out, ", %.0f %% of it through that code%s\n", line->through * 100,
			line->unclear ? "; unclear" : "");
	}
}

static void holder_print(FILE *out, const struct heap_leaks *leaks, const struct holder *holder)
{
	char count[32];

	fputs("  ", out);
	text_print(out, holder->label);
	if (holder->verdict == HOLDER_LEVELS)
		fputs(" (levels off)", out);
	if (holder->verdict == HOLDER_BOUNDED)
		fputs(" (bounded)", out);
	if (holder->verdict == HOLDER_UNCLEAR)
		fputs(" (unclear)", out);
	fputs("\n      ", out);
	if (fabs(holder->entries_slope) * MINUTE >= 1)
		fprintf(out, "%c%s entries/min, ", holder->entries_slope < 0 ? '-' : '+',
			text_count(count, (uint64_t)(fabs(holder->entries_slope) * MINUTE + 0.5)));
	rate_print(out, &holder->slope);
	if (holder->retained)
		fprintf(out, "; holds %s", SIZE_TEXT(holder->retained));
	putc('\n', out);
	types_print(out, leaks, holder);
	if (holder_is_weak(holder))
		fputs("      weak references: they go with what they refer to\n", out);
	bound_print(out, holder);
	fillers_print(out, holder, leaks->brief != 0);
	lines_print(out, leaks, holder);
}

/* Growth of those that grow, level off or have a bound, bytes a second. */
static double reported_slope(const struct heap_leaks *leaks)
{
	double sum = 0;

	for (size_t i = 0; i < leaks->count; i++)
		if (leaks->holders[i].verdict >= HOLDER_BOUNDED)
			sum += leaks->holders[i].slope.median;
	return sum;
}

static double part_rate(const struct heap_leaks *leaks, const struct leaks_part *part)
{
	return (part->last - part->first) / leaks->seconds[leaks->moments - 1] * MINUTE;
}

/* How many parts are worth telling. */
static size_t parts_reported(const struct heap_leaks *leaks)
{
	size_t reported = 0;

	while (reported < leaks->part_count &&
	       leaks->parts[reported].last - leaks->parts[reported].first >= LEAKS_PART_BYTES)
		reported++;
	return reported;
}

static void parts_print(FILE *out, const struct heap_leaks *leaks)
{
	char text[SIZE_TEXT_MAX];

	for (size_t i = 0; i < parts_reported(leaks); i++)
		fprintf(out, "  %s: %s/min, no object of Python\n", leaks->parts[i].name,
			size_format(text, part_rate(leaks, &leaks->parts[i]), 1));
}

static void rss_print(FILE *out, const struct heap_leaks *leaks)
{
	char text[SIZE_TEXT_MAX], duration[RECORDING_DURATION_BYTES];
	const struct slope *rss = &leaks->rss_slope;
	double reported = reported_slope(leaks);

	fprintf(out, "RSS: %s, ", size_text(text, (uint64_t)leaks->rss[leaks->moments - 1]));
	rate_print(out, rss);
	fprintf(out, "; Python's heap: %s/min\n",
		size_format(text, leaks->heap_slope.median * MINUTE, 1));
	if (rss->median > 0 && reported > 0)
		fprintf(out, "  %.0f %% of RSS's growth is in these holders\n",
			fmin(reported / rss->median, 1) * 100);
	parts_print(out, leaks);
	if (leaks->limited && rss->low > 0)
		fprintf(out,
			"  the limit of the cgroup is %s away: reached in %s if this goes on\n",
			size_text(text, leaks->left),
			recording_duration_text(
				duration,
				(uint64_t)(fmin((double)leaks->left / rss->median, 9e9) * 1e9)));
}

static void head_print(FILE *out, const struct heap_leaks *leaks)
{
	const struct leaking *first = &leaks->processes[0];
	const char *name =
		leaks->dumps ? first->growth.first.capture.image.name : first->source.info.name;

	fputs("tracer: ", out);
	if (leaks->process_count > 1) {
		fprintf(out, "%zu processes", leaks->process_count);
	} else {
		text_print(out, name);
		fprintf(out, " (PID %d)", (int)first->pid);
	}
	if (leaks->dumps) {
		fprintf(out, ", %zu dumps of its heap within %.0f s\n", leaks->moments,
			leaks->seconds[leaks->moments - 1]);
		return;
	}
	fprintf(out, ", heap read %zu times in %.1f s (%.1f s of CPU time); no probe placed\n",
		leaks->moments, leaks->seconds[leaks->moments - 1], leaks->read_seconds);
}

/* Whether a value rather than a thing: many objects of the type have nothing to do with it. */
static bool is_value(const char *type)
{
	static const char *const values[] = {"str", "int", "float", "bytes", "tuple", "bool"};

	for (size_t i = 0; i < ARRAY_SIZE(values); i++)
		if (!strcmp(type, values[i]))
			return 1;
	return 0;
}

/* The type to ask for: rather one of a module than list, and list rather than str. */
static const char *telling_type(const struct heap_leaks *leaks, const struct holder *holder)
{
	const char *best = strings_get(leaks->names, holder->types[0].name);

	for (size_t i = 0; i < GROWTH_TYPES && holder->types[i].bytes; i++) {
		const char *name = strings_get(leaks->names, holder->types[i].name);

		if (strchr(name, '.'))
			return name;
		if (is_value(best))
			best = name;
	}
	return best;
}

/* Which command shows more of the first row. */
static void next_print(FILE *out, const struct heap_leaks *leaks)
{
	const struct holder *holder = leaks->count ? leaks->holders : NULL;
	/* Of running processes more reads tell what is unclear; there will be no other dumps. */
	enum holder_verdict least = leaks->dumps ? HOLDER_UNCLEAR : HOLDER_BOUNDED;
	size_t at = 0;

	if (!holder || holder->verdict < least || !holder->types[0].bytes)
		return;
	while (at < leaks->process_count - 1 && leaks->processes[at].ended)
		at++;
	fputs("next: tracer heap why ", out);
	text_print(out, telling_type(leaks, holder));
	if (leaks->dumps) {
		putc(' ', out);
		text_print(out, leaks->file);
		putc('\n', out);
	} else {
		fprintf(out, " -p %d\n", (int)leaks->processes[at].pid);
	}
}

/* "3 holders grow, 1 levels off, of 2 it is unclear" */
static void verdicts_print(FILE *out, const struct heap_leaks *leaks)
{
	const size_t *count = leaks->verdicts;

	if (count[HOLDER_GROWS])
		fprintf(out, "%zu holder%s", count[HOLDER_GROWS],
			count[HOLDER_GROWS] > 1 ? "s grow" : " grows");
	else
		fputs("No holder grows", out);
	if (count[HOLDER_LEVELS])
		fprintf(out, ", %zu level%s off", count[HOLDER_LEVELS],
			count[HOLDER_LEVELS] > 1 ? "" : "s");
	if (count[HOLDER_BOUNDED])
		fprintf(out, ", %zu %s bounded", count[HOLDER_BOUNDED],
			count[HOLDER_BOUNDED] > 1 ? "are" : "is");
	if (count[HOLDER_UNCLEAR])
		fprintf(out, ", of %zu it is unclear", count[HOLDER_UNCLEAR]);
	putc('\n', out);
}

/* Numbers of processes. */
struct unseen {
	size_t ended; /* or could not be read again */
	size_t cut;   /* with more holders than are told apart */
	size_t types; /* whose types alone were compared */
};

static struct unseen unseen_count(const struct heap_leaks *leaks)
{
	struct unseen unseen = {0};

	for (size_t i = 0; i < leaks->process_count; i++) {
		unseen.ended += leaks->processes[i].ended != 0;
		unseen.cut += leaks->processes[i].growth.cut != 0;
		unseen.types += leaks->processes[i].by_types != 0;
	}
	return unseen;
}

bool heap_leaks_are_complete(const struct heap_leaks *leaks, const char **why)
{
	const struct unseen unseen = unseen_count(leaks);

	*why = unseen.types   ? "a heap is too large to copy (--memory): types alone were compared"
	       : unseen.ended ? "a process ended, or could not be read again"
	       : unseen.cut   ? "there are more holders than can be told apart"
			      : NULL;
	return !*why;
}

static void not_seen_print(FILE *out, const struct heap_leaks *leaks)
{
	const struct unseen unseen = unseen_count(leaks);
	size_t ended = unseen.ended, cut = unseen.cut, types = unseen.types;

	if (types)
		fprintf(out,
			"Not seen: what holds the objects of %zu process%s, whose heap%s too large "
			"to be copied (--memory): types alone were compared\n",
			types, types > 1 ? "es" : "", types > 1 ? "s are" : " is");
	if (leaks->moments < READS_TELL && leaks->dumps)
		fputs("Few dumps may take a wave for growth; more of them tell\n", out);
	else if (leaks->moments < READS_TELL)
		fprintf(out, "Only %zu reads: they may take a wave for growth; a longer -d tells\n",
			leaks->moments);
	if (cut)
		fprintf(out, "Not seen: holders beyond the limit in %zu process%s, told as one\n",
			cut, cut > 1 ? "es" : "");
	if (ended)
		fprintf(out, "Not seen: %zu process%s that ended, or could not be read again%s\n",
			ended, ended > 1 ? "es" : "",
			leaks->to_the_end ? "" : "; so what stayed, and what fills it");
}

/* How good the rates are, in one line. */
static void figures_print(FILE *out, const struct heap_leaks *leaks, int filled)
{
	struct one_line line = {0};
	const struct unseen unseen = unseen_count(leaks);
	double worst = 0;

	for (size_t i = 0; i < leaks->count; i++) {
		double error = holder_rate_error(&leaks->holders[i]);

		if (leaks->holders[i].verdict == HOLDER_GROWS && !isinf(error))
			worst = fmax(worst, error);
	}
	if (unseen.types)
		one_line_add(&line, "types alone, a heap is too large to copy (--memory)");
	if (leaks->moments < READS_TELL)
		one_line_add(&line, "only %zu reads may take a wave for growth%s", leaks->moments,
			     leaks->dumps ? "" : " (-d auto tells)");
	else if (worst > LEAKS_AIM)
		one_line_add(&line, "rates ±%.0f %% (-d auto: ±%.0f %%)", worst * 100,
			     LEAKS_AIM * 100);
	else if (worst > 0)
		one_line_add(&line, "rates ±%.0f %%", ceil(worst * 100));
	if (unseen.ended)
		one_line_add(&line, "%zu process%s ended", unseen.ended,
			     unseen.ended > 1 ? "es" : "");
	if (unseen.cut)
		one_line_add(&line, "more holders than can be told apart");
	if (!line.count)
		one_line_add(&line, "complete");
	if (filled && !leaks->measured)
		one_line_add(&line, "filled by code that can, not seen doing it");
	one_line_print(out, "Figures", &line, leaks->brief, 0);
}

int heap_leaks_text(const void *context, FILE *out)
{
	const struct heap_leaks *leaks = context;
	size_t reported = 0, filled = 0, most = leaks->top ? leaks->top : leaks->count;
	size_t left = 0;

	head_print(out, leaks);
	verdicts_print(out, leaks);
	for (size_t i = 0; i < leaks->count; i++) {
		if (!is_reported(&leaks->holders[i]))
			continue;
		if (reported == most) {
			left++;
			continue;
		}
		holder_print(out, leaks, &leaks->holders[i]);
		filled += leaks->holders[i].filler_count;
		reported++;
	}
	if (left && leaks->brief)
		fprintf(out, "  %zu more (--top 0)\n", left);
	if (filled && !leaks->brief && !leaks->measured)
		fputs("Filled by: lines whose code can, found in the heap; "
		      "whether they did is not seen\n",
		      out);
	if (!leaks->dumps)
		rss_print(out, leaks);
	if (leaks->brief)
		figures_print(out, leaks, filled != 0);
	else
		not_seen_print(out, leaks);
	next_print(out, leaks);
	return ferror(out) ? -EIO : 0;
}

static void types_json(struct json *json, const struct heap_leaks *leaks,
		       const struct holder *holder)
{
	json_open(json, "types", '[');
	for (size_t i = 0; i < GROWTH_TYPES && holder->types[i].bytes; i++) {
		json_open(json, NULL, '{');
		json_text(json, "type", strings_get(leaks->names, holder->types[i].name));
		json_numbers(json, {"count", holder->types[i].count},
			     {"size", holder->types[i].bytes});
		json_close(json, '}');
	}
	json_close(json, ']');
}

static void filled_by_json(struct json *json, const char *filename, uint32_t line,
			   const char *function, const char *how)
{
	json_open(json, NULL, '{');
	json_text(json, "filename", filename);
	json_unsigned(json, "lineno", line);
	json_text(json, "function", function);
	json_text(json, "how", how);
}

static void fillers_json(struct json *json, const struct holder *holder)
{
	const struct strings *names = holder->filled_names;
	size_t reported = fillers_reported(holder);

	json_open(json, "filled_by", '[');
	for (size_t i = 0; i < reported; i++) {
		const struct filler *filler = &holder->fillers[i];

		filled_by_json(json, strings_get(names, filler->filename), filler->line,
			       strings_get(names, filler->function), "code");
		if (filler->calls)
			json_bool(json, "calls", 1);
		json_close(json, '}');
	}
	for (size_t i = 0; i < holder->line_count; i++) {
		const struct holder_line *line = &holder->lines[i];

		filled_by_json(json, line->filename, line->line, line->function, "measured");
		if (!isnan(line->slope))
			json_fixed(json, "per_minute", line->slope * MINUTE, 1);
		json_fixed(json, "through", line->through, 4);
		json_bool(json, "unclear", line->unclear);
		json_close(json, '}');
	}
	json_close(json, ']');
	if (holder->filler_count > reported)
		json_unsigned(json, "filled_by_more", holder->filler_count - reported);
}

static void holder_json(struct json *json, const struct heap_leaks *leaks,
			const struct holder *holder)
{
	json_open(json, NULL, '{');
	json_text(json, "path", holder->label);
	json_text(json, "type", holder->type);
	json_unsigned(json, "processes", holder->processes);
	json_fixed(json, "entries_per_minute", holder->entries_slope * MINUTE, 1);
	json_fixed(json, "retained_per_minute", holder->slope.median * MINUTE, 1);
	if (holder->slope.has_interval) {
		json_fixed(json, "low", holder->slope.low * MINUTE, 1);
		json_fixed(json, "high", holder->slope.high * MINUTE, 1);
	}
	json_unsigned(json, "retained", holder->retained);
	if (stayed_share(holder) >= 0)
		json_fixed(json, "stayed", stayed_share(holder), 4);
	json_text(json, "verdict", verdicts[holder->verdict]);
	if (holder->bound.most)
		json_unsigned(json, "bound", holder->bound.most);
	if (holder_is_weak(holder))
		json_bool(json, "weak", 1);
	types_json(json, leaks, holder);
	fillers_json(json, holder);
	json_close(json, '}');
}

void heap_leaks_holders_json(const void *context, struct json *json)
{
	const struct heap_leaks *leaks = context;
	size_t reported = 0, most = leaks->top ? leaks->top : leaks->count;

	json_open(json, "holders", '[');
	for (size_t i = 0; i < leaks->count && reported < most; i++) {
		if (leaks->holders[i].verdict == HOLDER_STEADY)
			continue;
		reported++;
		holder_json(json, leaks, &leaks->holders[i]);
	}
	json_close(json, ']');
}

static void rss_json(struct json *json, const struct heap_leaks *leaks)
{
	const struct slope *rss = &leaks->rss_slope;

	json_open(json, "rss", '{');
	json_fixed(json, "per_minute", rss->median * MINUTE, 1);
	if (rss->median > 0)
		json_fixed(json, "explained", fmin(fmax(reported_slope(leaks) / rss->median, 0), 1),
			   4);
	json_open(json, "others", '[');
	for (size_t i = 0; i < parts_reported(leaks); i++) {
		json_open(json, NULL, '{');
		json_text(json, "name", leaks->parts[i].name);
		json_fixed(json, "per_minute", part_rate(leaks, &leaks->parts[i]), 1);
		json_close(json, '}');
	}
	json_close(json, ']');
	json_close(json, '}');
	if (!leaks->limited || rss->low <= 0)
		return;
	json_open(json, "limit", '{');
	json_unsigned(json, "bytes", leaks->left);
	json_fixed(json, "seconds", (double)leaks->left / rss->median, 0);
	json_fixed(json, "low", (double)leaks->left / rss->high, 0);
	json_fixed(json, "high", (double)leaks->left / rss->low, 0);
	json_close(json, '}');
}

int heap_leaks_json(const void *context, FILE *out)
{
	const struct heap_leaks *leaks = context;
	struct json json = {.out = out};

	json_open(&json, NULL, '{');
	json_bool(&json, "undisturbed", 1);
	json_fixed(&json, "seconds", leaks->seconds[leaks->moments - 1], 3);
	json_unsigned(&json, "reads", leaks->moments);
	heap_leaks_holders_json(leaks, &json);
	json_open(&json, "lines", '[');
	json_close(&json, ']');
	if (!leaks->dumps)
		rss_json(&json, leaks);
	json_end(&json);
	return ferror(out) ? -EIO : 0;
}
