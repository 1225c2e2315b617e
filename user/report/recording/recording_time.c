/* SPDX-License-Identifier: Apache-2.0 */
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "report/recording/recording_load.h"
#include "util/array.h"
#include "util/error.h"

#define SECOND_NS  1000000000ull
#define DAY_S      86400u
#define YEAR_FIRST 1970

/* "1h30m", "90", "2.5s". 0, -EINVAL. */
static int duration_parse(const char *text, uint64_t *ns)
{
	static const struct {
		char unit;
		double seconds;
	} units[] = {{'d', DAY_S}, {'h', 3600}, {'m', 60}, {'s', 1}, {'\0', 1}};
	double sum = 0;

	do {
		char *end;
		double number = strtod(text, &end);
		size_t i = 0;

		/* strtod() knows more numbers than people write here. */
		if (*text < '0' || *text > '9' || end[-1] == '.' ||
		    end != text + strspn(text, "0123456789."))
			return -EINVAL;
		while (i < ARRAY_SIZE(units) && units[i].unit != *end)
			i++;
		if (i == ARRAY_SIZE(units))
			return -EINVAL;
		sum += number * units[i].seconds;
		text = end + (*end != '\0');
	} while (*text);
	if (!(sum < 1e9))
		return -EINVAL;
	*ns = (uint64_t)(sum * (double)SECOND_NS);
	return 0;
}

static int daytime_parse(const char *text, struct recording_time *out)
{
	unsigned int hour, minute, second = 0;
	int end = 0;

	if (sscanf(text, "%2u:%2u%n:%2u%n", &hour, &minute, &end, &second, &end) < 2 || text[end] ||
	    hour > 23 || minute > 59 || second > 59)
		return -EINVAL;
	out->kind = RECORDING_DAYTIME;
	out->ns = (hour * 3600ull + minute * 60ull + second) * SECOND_NS;
	return 0;
}

static int date_parse(const char *text, struct recording_time *out)
{
	struct tm tm = {.tm_isdst = -1};
	int end = 0;

	if (sscanf(text, "%4d-%2d-%2d%*1[T ]%2d:%2d%n:%2d%n", &tm.tm_year, &tm.tm_mon, &tm.tm_mday,
		   &tm.tm_hour, &tm.tm_min, &end, &tm.tm_sec, &end) < 5 ||
	    !end || text[end] || tm.tm_year < YEAR_FIRST)
		return -EINVAL;
	tm.tm_year -= 1900;
	tm.tm_mon--;
	time_t seconds = mktime(&tm);
	if (seconds < 0)
		return -EINVAL;
	out->kind = RECORDING_REALTIME;
	out->ns = (uint64_t)seconds * SECOND_NS;
	return 0;
}

int recording_time_parse(const char *text, struct recording_time *out)
{
	*out = (struct recording_time){.kind = RECORDING_START};
	if (!strcmp(text, "start"))
		return 0;
	out->kind = RECORDING_END;
	if (!strcmp(text, "end"))
		return 0;
	out->kind = text[0] == '-' ? RECORDING_BEFORE_END : RECORDING_SINCE;
	if (!duration_parse(text + (text[0] == '-'), &out->ns) || !daytime_parse(text, out) ||
	    !date_parse(text, out))
		return 0;
	return error_set(-EINVAL,
			 "\"%.40s\" is not a time: start, end, 90s, 1h30m, -5m, 02:10 or "
			 "2026-11-24T02:10",
			 text);
}

/* The last moment until last_ns at which clocks show that time of day; 0: none. */
static uint64_t daytime_before(uint64_t last_ns, uint64_t daytime_ns)
{
	time_t last = (time_t)(last_ns / SECOND_NS);
	uint64_t wanted = daytime_ns / SECOND_NS;
	struct tm tm;

	for (int back = 0; back < 2; back++) {
		if (!localtime_r(&last, &tm))
			return 0;
		tm.tm_mday -= back;
		tm.tm_hour = (int)(wanted / 3600);
		tm.tm_min = (int)(wanted / 60 % 60);
		tm.tm_sec = (int)(wanted % 60);
		tm.tm_isdst = -1;
		time_t then = mktime(&tm);

		if (then >= 0 && then <= last)
			return (uint64_t)then * SECOND_NS;
	}
	return 0;
}

int recording_time_resolve(const struct recording_time *time, uint64_t begin_realtime_ns,
			   uint64_t last_ns, uint64_t *since_ns)
{
	uint64_t at = time->ns;

	*since_ns = UINT64_MAX;
	switch (time->kind) {
	case RECORDING_END:
		return 0;
	case RECORDING_START:
	case RECORDING_SINCE:
		*since_ns = at;
		return 0;
	case RECORDING_BEFORE_END:
		if (at > last_ns)
			break;
		*since_ns = last_ns - at;
		return 0;
	case RECORDING_DAYTIME:
		at = daytime_before(begin_realtime_ns + last_ns, at);
		/* fall through */
	default:
		if (at < begin_realtime_ns)
			break;
		*since_ns = at - begin_realtime_ns;
		return 0;
	}
	return error_set(-ERANGE, "the recording begins later");
}

int recording_is_range(const char *text)
{
	return strstr(text, RECORDING_RANGE) != NULL;
}

/* One end of a range; without a text, that of the recording. */
static int range_end(const char *text, size_t bytes, struct recording_time *out)
{
	char end[48];

	if (!bytes)
		return 0;
	if (bytes >= sizeof(end))
		return error_set(-EINVAL, "\"%.40s...\" is too long for a time", text);
	memcpy(end, text, bytes);
	end[bytes] = '\0';
	return recording_time_parse(end, out);
}

int recording_range_resolve(const char *text, uint64_t begin_realtime_ns, uint64_t last_ns,
			    uint64_t *from_ns, uint64_t *until_ns)
{
	struct recording_time from = {.kind = RECORDING_START}, until = {.kind = RECORDING_END};
	const char *dots = strstr(text, RECORDING_RANGE);

	if (!dots)
		return error_set(-EINVAL, "\"%.80s\" is not a range: T1..T2, with two times", text);
	int err = range_end(text, (size_t)(dots - text), &from)
			  ?: range_end(dots + 2, strlen(dots + 2), &until);
	if (!err && recording_time_resolve(&from, begin_realtime_ns, last_ns, from_ns))
		*from_ns = 0; /* it begins before the recording */
	if (!err && from.kind == RECORDING_END)
		*from_ns = last_ns;
	err = err ?: recording_time_resolve(&until, begin_realtime_ns, last_ns, until_ns);
	if (!err && *from_ns > *until_ns)
		err = error_set(-EINVAL, "the range %.80s ends before it begins", text);
	return err;
}

char *recording_duration_text(char text[RECORDING_DURATION_BYTES], uint64_t ns)
{
	uint64_t seconds = ns / SECOND_NS;

	if (seconds < 60)
		snprintf(text, RECORDING_DURATION_BYTES, "%.1f s", (double)ns / SECOND_NS);
	else if (seconds < 3600)
		snprintf(text, RECORDING_DURATION_BYTES, "%" PRIu64 " min %" PRIu64 " s",
			 seconds / 60, seconds % 60);
	else if (seconds < 2 * DAY_S)
		snprintf(text, RECORDING_DURATION_BYTES, "%" PRIu64 " h %" PRIu64 " min",
			 seconds / 3600, seconds / 60 % 60);
	else
		snprintf(text, RECORDING_DURATION_BYTES, "%" PRIu64 " d %" PRIu64 " h",
			 seconds / DAY_S, seconds / 3600 % 24);
	return text;
}

char *recording_clock_text(char text[RECORDING_DURATION_BYTES], uint64_t realtime_ns)
{
	time_t seconds = (time_t)(realtime_ns / SECOND_NS);
	struct tm tm;

	if (!localtime_r(&seconds, &tm) ||
	    !strftime(text, RECORDING_DURATION_BYTES, "%Y-%m-%d %H:%M:%S", &tm))
		strcpy(text, "?");
	return text;
}
