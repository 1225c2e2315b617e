/* SPDX-License-Identifier: Apache-2.0 */
/* Which blocks, by age: --older-than, --younger-than, --born. */
#include <errno.h>
#include <string.h>

#include "cmd/options/options.h"
#include "report/recording/recording_load.h"
#include "util/error.h"

enum { KEY_OLDER = 0x1c0, KEY_YOUNGER, KEY_BORN };

#define DAY_NS    86400000000000ull
#define BORN_FORM "FROM..UNTIL, such as 02:10..02:20, 02:10.. or 2026-11-24T02:10..2026-11-25T09:00"

static const struct argp_option ages_options[] = {
	{"older-than", KEY_OLDER, "AGE", 0,
	 "only blocks that were allocated at least so long before, such as 90s, 10m, 1h, 2d; of a "
	 "trace with --ages, or beside a session",
	 11},
	{"younger-than", KEY_YOUNGER, "AGE", 0, "the same, at most so long before it", 11},
	{"born", KEY_BORN, "FROM..UNTIL", 0,
	 "the same, in that time: 02:10..02:20 is the last such time of day, 2026-11-24T02:10 a "
	 "date, local time; either side may be missing",
	 11},
	{0},
};

/* One side of --born. A moment of the day, or of a date; *given 0: it is missing. 0, -EINVAL. */
static int side_parse(const char *text, size_t bytes, struct recording_time *out, int *given)
{
	char copy[48];

	*given = bytes != 0;
	if (!bytes)
		return 0;
	if (bytes >= sizeof(copy))
		return -EINVAL;
	memcpy(copy, text, bytes);
	copy[bytes] = '\0';
	int err = recording_time_parse(copy, out);

	return err                                                                 ? err
	       : out->kind == RECORDING_DAYTIME || out->kind == RECORDING_REALTIME ? 0
										   : -EINVAL;
}

/* The times that --born means in a snapshot of that moment. 0, -EINVAL. */
static int born_resolve(const char *text, uint64_t moment_ns, struct ages *ages)
{
	struct recording_time from, until;
	const char *dots = strstr(text, RECORDING_RANGE);
	int has_from, has_until;
	int err = dots ? side_parse(text, (size_t)(dots - text), &from, &has_from)
				  ?: side_parse(dots + 2, strlen(dots + 2), &until, &has_until)
		       : -EINVAL;

	if (err || (!has_from && !has_until))
		return -EINVAL;
	ages->from_realtime_ns = 0;
	ages->until_realtime_ns = UINT64_MAX;
	if (has_from)
		err = recording_time_resolve(&from, 0, moment_ns, &ages->from_realtime_ns);
	/* A time of day is the first one after FROM. */
	if (!err && has_until)
		err = recording_time_resolve(
			&until, 0, has_from ? ages->from_realtime_ns + DAY_NS - 1 : moment_ns,
			&ages->until_realtime_ns);
	return err || ages->from_realtime_ns > ages->until_realtime_ns ? -EINVAL : 0;
}

static error_t ages_refuse(const char *option, const char *why, const char *remedy)
{
	error_print(error_set(-EINVAL, "%s", why), remedy, "%s", option);
	return CLI_REPORTED;
}

static error_t ages_option(int key, char *arg, struct argp_state *state)
{
	struct ages_choice *choice = state->input;
	struct ages *ages = &choice->ages;

	switch (key) {
	case ARGP_KEY_INIT:
		*choice = (struct ages_choice){.ages = AGES_ALL};
		return 0;
	case KEY_OLDER:
		return cli_take_seconds("--older-than", arg, &ages->least_ns);
	case KEY_YOUNGER:
		return cli_take_seconds("--younger-than", arg, &ages->most_ns);
	case KEY_BORN:
		choice->born = arg;
		/* Any moment does for its form, and for the order of two dates. */
		return born_resolve(arg, 2 * DAY_NS, ages) ? cli_reject("--born", arg, BORN_FORM)
							   : 0;
	case ARGP_KEY_END:
		if (ages->least_ns > ages->most_ns)
			return ages_refuse("--older-than", "no block is older and younger",
					   "exchange the ages of --older-than and "
					   "--younger-than");
		return 0;
	}
	return ARGP_ERR_UNKNOWN;
}

const struct argp cli_ages_argp = {.options = ages_options, .parser = ages_option};

int cli_ages_at(const struct ages_choice *choice, uint64_t moment_ns, struct ages *out)
{
	*out = choice->ages;
	return choice->born && born_resolve(choice->born, moment_ns, out)
		       ? error_set(-EINVAL, "--born ends before it begins")
		       : 0;
}

int cli_ages_keep(struct snapshot *snapshot, const struct ages_choice *choice, const char *name)
{
	struct ages ages = choice->ages;
	int err = 0;

	if (!ages_any(&ages))
		return 0;
	if (snapshot->meta.ages)
		err = cli_ages_at(choice, snapshot->meta.taken_realtime_ns, &ages);
	err = err ?: ages_keep(snapshot, &ages);
	return err ? error_print(err,
				 "tracer --ages -p PID, or tracer ctl PID snapshot --ages "
				 "FILE, tells them",
				 "%s", name)
		   : 0;
}

int cli_ages_report(const struct snapshot *snapshot, const struct report_choice *choice)
{
	struct snapshot *copy;
	int err, status;

	if (!ages_any(&choice->ages.ages))
		return cli_report_print(snapshot, choice);
	err = snapshot_copy(snapshot, &copy);
	if (err)
		return error_print(err, NULL, "report"), EXIT_FAILED;
	status = cli_ages_keep(copy, &choice->ages, "report") ? EXIT_FAILED
							      : cli_report_print(copy, choice);
	snapshot_free(copy);
	return status;
}
