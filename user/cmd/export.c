/* SPDX-License-Identifier: Apache-2.0 */
/* tracer export and tracer filter, which differ only in the format: filter writes tracer's own. */
#include <errno.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "cmd/cli.h"
#include "cmd/evidence/bundle.h"
#include "cmd/options/options.h"
#include "cmd/options/source_roots.h"
#include "cmd/serve/serve_file.h"
#include "inspect/dump/dump_file.h"
#include "report/export/exporter.h"
#include "util/array.h"
#include "util/error.h"
#include "util/size.h"

enum { KEY_FORMAT = 0x400, KEY_PYTHON, KEY_WEIGHT, KEY_SOURCE, KEY_NO_SOURCE };

struct export
{
	struct filter_choice filter;
	struct layer_choice layer;
	struct pid_choice pids;
	struct app app;
	struct view_choice view;
	const struct exporter *exporter;
	struct export_opts opts;
	const char *command, *output;
	enum outfile_replace replace;
	int source; /* html: with the lines of source files */
	struct cli_arguments files;
};

static const struct argp_option filter_options[] = {
	{"output", 'o', "FILE", 0, "write it there (-: standard output)", 1},
	CLI_OPTION_FORCE(1),
	{0},
};

static const struct argp_option export_options[] = {
	{"format", KEY_FORMAT, "KIND", 0, "what to write:", 1},
	{"output", 'o', "FILE", 0, "write it there (-: standard output)", 1},
	CLI_OPTION_FORCE(1),
	{"python", KEY_PYTHON, "VERSION", 0,
	 "tracemalloc: the Python that will load it; 3.8 computes statistics only of files without "
	 "total_nframe, later versions only of files with it (default: the version of the "
	 "snapshot)",
	 2},
	{"weight", KEY_WEIGHT, "KIND", 0, "folded, perf, speedscope: size (default) or count", 2},
	{"source", KEY_SOURCE, NULL, 0,
	 "html: with the source lines around each frame's line, of the files as they are now", 2},
	{"no-source", KEY_NO_SOURCE, NULL, 0, "html: without source lines (default)", 2},
	{0},
};

static const struct argp_child filter_children[] = {{&cli_filter_argp, 0, NULL, 0},
						    {&cli_pid_argp, 0, NULL, 0},
						    {&cli_layer_argp, 0, NULL, 0},
						    {&cli_view_argp, 0, NULL, 0},
						    {0}};
static const struct argp_child export_children[] = {
	{&cli_filter_argp, 0, NULL, 0}, {&cli_pid_argp, 0, NULL, 0}, {&cli_layer_argp, 0, NULL, 0},
	{&cli_view_argp, 0, NULL, 0},   {&cli_app_argp, 0, NULL, 0}, {0}};

static error_t parse_format(struct export *export, const char *arg)
{
	struct cli_word words[16];
	size_t count = 0;
	int index;

	while (count < ARRAY_SIZE(words) && exporter_get(count)) {
		words[count] = (struct cli_word){exporter_get(count)->name, (int)count};
		count++;
	}
	error_t err = cli_parse_word("--format", arg, words, count, &index);
	if (!err)
		export->exporter = exporter_get((size_t)index);
	return err;
}

static error_t parse_python(struct export *export, const char *arg)
{
	unsigned int major, minor;
	int end = 0;

	if (sscanf(arg, "%1u.%2u%n", &major, &minor, &end) != 2 || (arg[end] && arg[end] != '.') ||
	    major != 3) {
		error_print(error_set(-EINVAL, "\"%s\" is not a version of Python", arg),
			    "such as 3.8 or 3.13", "--python");
		return CLI_REPORTED;
	}
	export->opts.python_version = major << 24 | minor << 16;
	return 0;
}

static error_t parse(int key, char *arg, struct argp_state *state)
{
	struct export *export = state->input;

	switch (key) {
	case ARGP_KEY_INIT:
		state->child_inputs[0] = &export->filter;
		state->child_inputs[1] = &export->pids;
		state->child_inputs[2] = &export->layer;
		state->child_inputs[3] = &export->view;
		if (!export->exporter) /* tracer export: the format is an option */
			state->child_inputs[4] = &export->app;
		return 0;
	case CLI_KEY_FORCE:
		export->replace = OUTFILE_ANY;
		return 0;
	case 'o':
		export->output = arg;
		return 0;
	case KEY_FORMAT:
		return parse_format(export, arg);
	case KEY_PYTHON:
		return parse_python(export, arg);
	case KEY_WEIGHT:
		export->opts.counts = !strcmp(arg, "count");
		return !export->opts.counts && strcmp(arg, "size")
			       ? cli_reject("--weight", arg, "size or count")
			       : 0;
	case KEY_SOURCE:
	case KEY_NO_SOURCE:
		export->source = key == KEY_SOURCE;
		return 0;
	}
	return cli_parse_arguments(key, state, &export->files);
}

/* Lists the formats under --format in --help. Caller frees; NULL: print the text as it is. */
static char *help_filter(int key, const char *text, void *input)
{
	char *list = NULL;
	size_t bytes;
	FILE *out;

	(void)input;
	if (key != KEY_FORMAT || !(out = open_memstream(&list, &bytes)))
		return (char *)text;
	fputs(text, out);
	for (size_t i = 0; exporter_get(i); i++)
		fprintf(out, "%s %s (%s)", i ? "," : "", exporter_get(i)->name,
			exporter_get(i)->help);
	fclose(out);
	return list;
}

static int usage(const struct export *export, const char *reason)
{
	error_print(error_set(-EINVAL, "%s", reason), "--help lists the options", "%s",
		    export->command);
	return EXIT_USAGE;
}

/* Reports the blocks outside the application, which the exported files do not mark. */
static int outside_tell(const struct export *export, const struct snapshot *snapshot)
{
	const struct statistics_opts how = {
		.by = GROUP_FILENAME, .filters = &export->filter.filters, .app = &export->app};
	struct statistics statistics;
	int err = export->app.asked ? statistics_compute(snapshot, &how, &statistics) : 0;

	if (err || !export->app.asked)
		return err;
	log_info("%s: %s of %s are in tracebacks without a frame of the application, which are "
		 "exported unchanged",
		 export->files.items[0], SIZE_TEXT(statistics.parts[PART_OUTSIDE].size),
		 SIZE_TEXT(statistics.total_size));
	statistics_free(&statistics);
	return 0;
}

/* Rejects what cannot be done before anything is read. 0, or the exit status. */
static int request_check(const struct export *export)
{
	const struct exporter *exporter = export->exporter;
	size_t files = export->files.count;

	if (!exporter)
		return usage(export, "--format KIND is missing");
	if (exporter->compares ? files != 1 && files != 2 : files != 1)
		return usage(export, exporter->compares
					     ? "a snapshot file is needed, or a second, older one "
					       "to compare with"
					     : "one snapshot file is needed");
	if (export->source && exporter != &export_html)
		return usage(export, "--source is for --format html");
	if (!export->output)
		return usage(export, "-o FILE is missing");
	if (!strcmp(export->output, "-") && isatty(STDOUT_FILENO) && exporter != &export_folded)
		return usage(export, "not written to a terminal");
	return 0;
}

/* A file, its chosen layer and the view of that, each of which borrows from the one before. */
struct export_file {
	struct snapshot *snapshot, chosen;
	struct shown shown;
};

static void file_free(struct export_file *file)
{
	shown_free(&file->shown);
	snapshot_free(file->snapshot);
}

/* 0 or -errno, reported. file_free() releases it in either case. */
static int file_read(const struct export *export, const char *path, struct export_file *file)
{
	struct snapshot **snapshot = &file->snapshot;
	int err = cli_snapshot_pick(path, &export->pids, snapshot);

	if (err)
		return err;
	if ((*snapshot)->meta.sample_bytes && export->exporter != &export_pprof)
		log_info("%s: it holds a sample (one block for every %llu bytes allocated): the "
			 "figures are estimates, whose errors %s files do not record",
			 path, (unsigned long long)(*snapshot)->meta.sample_bytes,
			 export->exporter->name);
	if ((*snapshot)->meta.windows.count && export->exporter != &export_pprof)
		log_info("%s: its figures are estimates from windows, whose errors %s files do not "
			 "record",
			 path, export->exporter->name);
	if ((*snapshot)->meta.self_sampled && export->exporter != &export_pprof)
		log_info("%s: native blocks are those that the process has sampled itself: their "
			 "figures are estimates, whose errors %s files do not record",
			 path, export->exporter->name);
	err = cli_layer_choose(*snapshot, &export->layer, &file->chosen)
		      ?: view_apply(&export->view, &file->chosen, &file->shown);
	if (err)
		error_print(err, NULL, "%s", path);
	return err;
}

/*
 * tracemalloc's files have a total_nframe for each block. One is kept of each traceback, so it is
 * only known to be right where the traceback is whole.
 */
static void totals_tell(const struct export *export, const struct snapshot *chosen)
{
	uint32_t version = export->opts.python_version ?: chosen->meta.python_version;
	size_t cut = 0;

	if ((version && version < 0x03090000) || !strcmp(chosen->meta.mode, SNAPSHOT_TRACEMALLOC))
		return;
	for (size_t i = 0; i < chosen->traceback_count; i++)
		cut += chosen->tracebacks[i].total != SNAPSHOT_TOTAL_UNKNOWN &&
		       chosen->tracebacks[i].total > chosen->tracebacks[i].nframe;
	if (cut)
		log_info("%s: %zu of %zu tracebacks were cut at %u frames: their total_nframe is "
			 "that of the first block seen with each, not of every block",
			 export->output, cut, chosen->traceback_count,
			 chosen->meta.traceback_limit);
}

/* Writes the chosen blocks. 0, -errno. */
static int file_write(const struct export *export, const struct snapshot *chosen,
		      const struct export_opts *opts)
{
	struct outfile *file;
	int err = outfile_open(&file, export->output, export->replace);

	if (err)
		return err;
	err = outfile_end(file, exporter_write(export->exporter, chosen, &export->filter.filters,
					       opts, file));
	if (!err && export->exporter == &export_tracemalloc)
		totals_tell(export, chosen);
	else if (!err && chosen->meta.traceback_limit > 1)
		cli_cut_print(chosen);
	return err;
}

/* The same with source lines, if they are asked for. */
static int source_write(const struct export *export, const struct snapshot *chosen,
			struct export_opts *opts)
{
	struct source_roots roots = {0};

	if (!export->source)
		return file_write(export, chosen, opts);
	source_roots_open(chosen, 0, &roots);
	int err = source_new(&opts->source, &roots) ?: file_write(export, chosen, opts);
	if (!err)
		source_missing_print(opts->source, stderr);
	source_free(opts->source);
	source_roots_close(&roots);
	return err;
}

/* A whole bundle of evidence as a page. The exit status. */
static int bundle_export(const struct export *export, const char *path)
{
	struct outfile *file;

	int err = outfile_open(&file, export->output, export->replace);
	if (err)
		return error_print(err, NULL, "%s", export->output), EXIT_FAILED;
	err = outfile_end(file, bundle_html(path, file));
	return err ? (error_print(err, NULL, "%s", path), EXIT_FAILED) : EXIT_DONE;
}

/* A dump of a heap as a page. The exit status. */
static int dump_export(const struct export *export, const char *path)
{
	struct outfile *file;
	bool told = false;

	if (export->exporter != &export_html || export->files.count != 1)
		return usage(export, "a dump of a heap is exported as --format html, one at a "
				     "time");
	int err = outfile_open(&file, export->output, export->replace);
	if (!err)
		err = outfile_end(file, serve_file_write(path, file, export->output, &told));
	if (err && !told)
		error_print(err, NULL, "%s", export->output);
	return err ? EXIT_FAILED : EXIT_DONE;
}

/* Is it asked for as a page, and no option chooses a part of it? */
static bool is_whole(const struct export *export)
{
	const struct pid_choice *pids = &export->pids;
	const struct view_choice *view = &export->view;

	if (export->exporter != &export_html || export->files.count != 1)
		return false;
	if (pids->count || pids->no_inline || ages_any(&pids->ages.ages) ||
	    filters_any(&export->filter.filters))
		return false;
	return export->layer.layer < 0 && !export->layer.at_peak && !view->no_skip &&
	       !view->full_names && !view->count && !export->app.asked && !export->source;
}

/* The file as a page, if it is a recording. The exit status; -1: it is none. */
static int recording_export(const struct export *export, const char *path)
{
	struct serve_recording recording;
	struct outfile *file;
	int err = serve_recording_read(path, &recording);

	if (err)
		return error_print(err, NULL, "%s", path), EXIT_FAILED;
	if (!recording.file.size)
		return -1;
	err = outfile_open(&file, export->output, export->replace)
		      ?: outfile_end(file, serve_file_write_recording(&recording, path, file,
								      export->output));
	serve_recording_free(&recording);
	return err ? (error_print(err, NULL, "%s", export->output), EXIT_FAILED) : EXIT_DONE;
}

/* The exit status. */
static int export_run(struct export *export)
{
	struct export_file file = {0}, old = {0};
	struct export_opts opts = export->opts;
	int status = request_check(export);

	if (status)
		return status;
	opts.name = export->files.items[0];
	if (dump_is(opts.name))
		return dump_export(export, opts.name);
	/* Another format is of the session's snapshot in it. */
	if (export->exporter == &export_html && export->files.count == 1 && bundle_is(opts.name))
		return bundle_export(export, opts.name);
	status = is_whole(export) ? recording_export(export, opts.name) : -1;
	if (status >= 0)
		return status;
	opts.shown = &file.shown.snapshot;
	int err = file_read(export, opts.name, &file);
	if (!err && export->files.count == 2) {
		opts.old_name = export->files.items[1];
		opts.old = &old.shown.snapshot;
		err = file_read(export, opts.old_name, &old);
	}
	if (!err) {
		err = outside_tell(export, opts.shown);
		if (!err)
			err = source_write(
				export, export->exporter->whole ? &file.chosen : opts.shown, &opts);
		if (err)
			error_print(err, NULL, "%s", export->output);
	}
	file_free(&file);
	file_free(&old);
	return err ? EXIT_FAILED : EXIT_DONE;
}

static int command_run(const struct argp *argp, int argc, char **argv,
		       const struct exporter *exporter)
{
	struct export export = {.command = argv[0], .exporter = exporter, .opts.app = &export.app};
	int status = cli_parse(argp, argc, argv, 0, &export);

	export.pids.layer = &export.layer;
	if (!status)
		status = export_run(&export);
	filters_free(&export.filter.filters);
	app_free(&export.app);
	view_free(&export.view);
	pid_choice_free(&export.pids);
	return status < 0 ? EXIT_DONE : status;
}

int cli_export(int argc, char **argv)
{
	static const struct argp argp = {
		.options = export_options,
		.parser = parse,
		.args_doc = "FILE [OLDER] --format KIND -o OUT",
		.doc = "Writes a snapshot in another format. FILE is a snapshot of tracer, a "
		       "file of tracemalloc.Snapshot.dump(), a bundle of evidence (--on-oom): all "
		       "of it for html, else the snapshot in it; a recording: its last "
		       "snapshot, or that of a time (FILE@TIME), but for html, without a time or "
		       "an option that chooses a part, all of it over time; or, for html, a dump "
		       "of a heap: then the page has what retains most of it. OLDER is a "
		       "snapshot to compare with (html).",
		.children = export_children,
		.help_filter = help_filter,
	};

	return command_run(&argp, argc, argv, NULL);
}

int cli_filter(int argc, char **argv)
{
	static const struct argp argp = {
		.options = filter_options,
		.parser = parse,
		.args_doc = "FILE -o OUT",
		.doc = "Writes the snapshot of the blocks that pass the filters, as "
		       "Snapshot.filter_traces() of tracemalloc chooses them. FILE is a snapshot "
		       "of tracer or a file of tracemalloc.Snapshot.dump(); OUT is a snapshot of "
		       "tracer.",
		.children = filter_children,
	};

	return command_run(&argp, argc, argv, &export_pprof);
}
