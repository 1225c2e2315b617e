/* SPDX-License-Identifier: Apache-2.0 */
/* The rows of a text report on a terminal (util/terminal.h). */
#include <inttypes.h>

#include "report/report_parts.h"
#include "util/size.h"
#include "util/text.h"

/* "±8 %" of a figure; ">100 %" if the error is no smaller than it; nothing if it is exact. */
static void error_cell(FILE *out, uint64_t error, uint64_t figure)
{
	if (error && error >= figure)
		fputs(">100 %", out);
	else if (error)
		fprintf(out, "±%.*f %%", error * 10 < figure ? 1 : 0,
			100.0 * (double)error / (double)figure);
	putc('\t', out);
}

static void count_cell(FILE *out, uint64_t count, int is_known)
{
	char text[32];

	fprintf(out, "%s\t", is_known ? text_count(text, count) : "");
}

static void size_cell(FILE *out, uint64_t size, int is_known)
{
	char text[SIZE_TEXT_MAX];

	fprintf(out, "%s\t", is_known ? size_text(text, size) : "");
}

void report_table_titles(FILE *out, const struct report_opts *opts,
			 const struct statistics *statistics)
{
	static const char *const names[] = {"FILE",    "LINE",    "FUNCTION", "MOST RECENT FRAME",
					    "PROCESS", "COMMAND", "CONTAINER"};
	/* What the rows are sorted by stays. */
	const char *allocated = opts->sort == SORT_ALLOCATED ? "" : "?";
	const char *temporary = opts->sort == SORT_TEMPORARY ? "" : "?";

	if (opts->old)
		fputs("SIZE\tCHANGE\t?ERROR\tCOUNT\tCHANGE\t", out);
	else
		fprintf(out,
			"SIZE\tSHARE\t?ERROR\tCOUNT\t?AVERAGE\t%sALLOCATED\t%s%s\t?PROCESSES\t",
			allocated, temporary,
			statistics->temporary_by_walk ? "SHORT-LIVED" : "TEMPORARY");
	fprintf(out, "%s\n", names[opts->by]);
}

static void changes(FILE *out, const struct statistic *sums)
{
	const struct statistic_error error = report_error_diff(sums);
	int64_t diff = statistic_size_diff(sums);
	char text[SIZE_TEXT_MAX];

	size_cell(out, sums->size, 1);
	fprintf(out, "%s\t", size_format(text, (double)diff, 1));
	error_cell(out, error.size, (uint64_t)(diff < 0 ? -diff : diff));
	count_cell(out, sums->count, 1);
	fprintf(out, "%+" PRId64 "\t", statistic_count_diff(sums));
}

void report_table_figures(FILE *out, const struct report_opts *opts,
			  const struct statistics *statistics, const struct statistic *sums)
{
	const struct statistic_beside *beside = &sums->beside;

	if (opts->old) {
		changes(out, sums);
		return;
	}
	size_cell(out, sums->size, 1);
	if (statistics->total_size)
		fprintf(out, "%.1f %%",
			100.0 * (double)sums->size / (double)statistics->total_size);
	putc('\t', out);
	error_cell(out, sums->error.size, sums->size);
	count_cell(out, sums->count, 1);
	size_cell(out, sums->count ? sums->size / sums->count : 0, sums->count != 0);
	size_cell(out, beside->allocated.size, statistics->allocated_known);
	count_cell(out, beside->temporary.count, statistics->temporary_known);
	count_cell(out, sums->processes, sums->processes > 1);
}
