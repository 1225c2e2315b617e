/* SPDX-License-Identifier: Apache-2.0 */
#include "cmd/time/line_name.h"

#include <stdlib.h>

#include "util/html.h"
#include "util/json.h"
#include "util/text.h"

const char *line_noun(enum group_by by)
{
	return by == GROUP_FILENAME ? "file"
	       : by == GROUP_THREAD ? "thread"
	       : by == GROUP_TASK   ? "task"
	       : by == GROUP_LABEL  ? "value"
				    : "line";
}

void line_name_print(FILE *out, const struct series_line *line, enum group_by by)
{
	text_print(out, line->filename[0] || by < GROUP_THREAD ? line->filename
			: by == GROUP_TASK                     ? "(no task)"
							       : "(none)");
	if (by == GROUP_LINENO)
		fprintf(out, ":%u", line->line);
	if (line->function[0]) {
		fputs(" in ", out);
		text_print(out, line->function);
	}
}

void line_name_json(struct json *json, const struct series_line *line, enum group_by by)
{
	if (by >= GROUP_THREAD) {
		json_text(json, line_noun(by), line->filename);
		return;
	}
	json_open(json, "traceback", '[');
	json_open(json, NULL, '{');
	json_text(json, "filename", line->filename);
	json_unsigned(json, "lineno", line->line);
	if (line->function[0])
		json_text(json, "function", line->function);
	if (line->native)
		json_text(json, "kind", "native");
	json_close(json, '}');
	json_close(json, ']');
}

void line_by_json(struct json *json, const struct series *series, enum group_by by)
{
	if (by < GROUP_THREAD)
		return;
	json_text(json, "by", line_noun(by));
	if (by == GROUP_LABEL)
		json_text(json, "label", series->last->meta.label);
}

void line_name_html(FILE *out, const struct series_line *line, enum group_by by)
{
	char *text = NULL;
	size_t bytes;
	FILE *name = open_memstream(&text, &bytes);

	if (!name)
		return;
	line_name_print(name, line, by);
	if (!fclose(name))
		html_text(out, text);
	free(text);
}

struct ranked {
	double rank;
	size_t line;
};

/* Equal ones stay in the order of the recording. */
static int ranked_compare(const void *a, const void *b)
{
	const struct ranked *x = a, *y = b;

	if (x->rank > y->rank || x->rank < y->rank)
		return x->rank < y->rank ? 1 : -1;
	return (x->line > y->line) - (x->line < y->line);
}

size_t *lines_rank(const struct series *series, line_rank_fn rank, const void *context)
{
	struct ranked *ranked = calloc(series->line_count + 1, sizeof(*ranked));
	size_t *lines = calloc(series->line_count + 1, sizeof(*lines));

	for (size_t i = 0; ranked && i < series->line_count; i++)
		ranked[i] = (struct ranked){.rank = rank(series, i, context), .line = i};
	if (ranked && lines)
		qsort(ranked, series->line_count, sizeof(*ranked), ranked_compare);
	for (size_t i = 0; ranked && lines && i < series->line_count; i++)
		lines[i] = ranked[i].line;
	if (!ranked) {
		free(lines);
		lines = NULL;
	}
	free(ranked);
	return lines;
}
