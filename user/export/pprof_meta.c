/* SPDX-License-Identifier: Apache-2.0 */
#include "export/pprof_format.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"

#define SIGNATURE PPROF_COMMENT "snapshot="
#define VERSION   "1"
#define CHANGE    "change" /* its number: the fields of struct snapshot_change */

struct meta_field {
	const char *key;
	size_t offset, size;
	int text; /* else a native unsigned number (int counts as one) */
};

#define NUMBER(field)                                                                                        \
	{                                                                                                    \
#field, offsetof(struct snapshot_meta, field), sizeof(((struct snapshot_meta *)0)->field), 0 \
	}
#define COVERAGE(field)                                                                                      \
	{                                                                                                    \
#field, offsetof(struct snapshot_meta, coverage.field),                                      \
			sizeof(((struct snapshot_meta *)0)->coverage.field), 0                               \
	}
#define TEXT(field)                                                                                          \
	{                                                                                                    \
#field, offsetof(struct snapshot_meta, field), sizeof(((struct snapshot_meta *)0)->field), 1 \
	}

static const struct meta_field meta_fields[] = {
	NUMBER(pid),
	NUMBER(python_version),
	NUMBER(traceback_limit),
	TEXT(name),
	TEXT(mode),
	TEXT(moment),
	NUMBER(taken_realtime_ns),
	NUMBER(duration_ns),
	NUMBER(from_start),
	NUMBER(peak_bytes),
	NUMBER(frees_unknown),
	NUMBER(replaced),
	NUMBER(stacks_unknown),
	NUMBER(frames_unknown),
	NUMBER(records_malformed),
	NUMBER(layer),
	NUMBER(frames_unnamed),
	NUMBER(stacks_cut),
	NUMBER(rounded_blocks),
	NUMBER(sample_bytes),
	NUMBER(changes_dropped),
	NUMBER(unread_ns),
	NUMBER(mapped_known),
	NUMBER(large_skipped),
	NUMBER(pool_bytes),
	NUMBER(regions_dropped),
	NUMBER(coverage_known),
	COVERAGE(new_blocks),
	COVERAGE(new_bytes),
	COVERAGE(seen_blocks),
	COVERAGE(seen_bytes),
	COVERAGE(old_blocks),
	COVERAGE(old_bytes),
	COVERAGE(time_ns),
	COVERAGE(live_blocks),
	COVERAGE(live_bytes),
	COVERAGE(large_blocks),
	COVERAGE(pools_unreadable),
	COVERAGE(dead_blocks),
	COVERAGE(elapsed_ns),
	COVERAGE(frozen_ns),
	COVERAGE(large_new),
	COVERAGE(large_seen),
};

#define FIELDS (sizeof(meta_fields) / sizeof(meta_fields[0]))

static uint64_t number_get(const struct snapshot_meta *meta, const struct meta_field *field)
{
	const char *at = (const char *)meta + field->offset;
	uint32_t half;
	uint64_t whole;

	if (field->size == sizeof(half)) {
		memcpy(&half, at, sizeof(half));
		return half;
	}
	memcpy(&whole, at, sizeof(whole));
	return whole;
}

static int change_comment(const struct snapshot_meta *meta, size_t index, char out[PPROF_COMMENT_MAX])
{
	const struct snapshot_change *change = &meta->changes[index];

	if (index >= meta->change_count)
		return 0;
	snprintf(out, PPROF_COMMENT_MAX, PPROF_COMMENT CHANGE "%zu=%" PRIu64 " %" PRIu64 " %u %u %u", index,
		 change->since_ns, change->sample_bytes, change->mode, change->cost_permille,
		 change->budget_permille);
	return 1;
}

int pprof_meta_comment(const struct snapshot_meta *meta, size_t index, char out[PPROF_COMMENT_MAX])
{
	if (!index) {
		snprintf(out, PPROF_COMMENT_MAX, SIGNATURE VERSION);
		return 1;
	}
	index--;
	if (index >= FIELDS + LOSS_COUNT)
		return change_comment(meta, index - FIELDS - LOSS_COUNT, out);
	if (index >= FIELDS) {
		size_t kind = index - FIELDS;

		snprintf(out, PPROF_COMMENT_MAX, PPROF_COMMENT "loss%zu=%" PRIu64, kind, meta->loss[kind]);
		return 1;
	}
	const struct meta_field *field = &meta_fields[index];
	if (field->text)
		snprintf(out, PPROF_COMMENT_MAX, PPROF_COMMENT "%s=%.*s", field->key, (int)field->size - 1,
			 (const char *)meta + field->offset);
	else
		snprintf(out, PPROF_COMMENT_MAX, PPROF_COMMENT "%s=%" PRIu64, field->key,
			 number_get(meta, field));
	return 1;
}

static int number_parse(const char *key, const char *text, uint64_t max, uint64_t *out)
{
	char *end;

	errno = 0;
	*out = strtoull(text, &end, 10);
	if (*text < '0' || *text > '9' || *end || errno || *out > max)
		return error_set(-EBADMSG, "the profile's comment %s%s is not a number in range",
				 PPROF_COMMENT, key);
	return 0;
}

static int field_set(struct snapshot_meta *meta, const struct meta_field *field, const char *value)
{
	char *at = (char *)meta + field->offset;
	uint64_t number;

	if (field->text) {
		if (strlen(value) >= field->size)
			return error_set(-EBADMSG, "the profile's comment %s%s is too long", PPROF_COMMENT,
					 field->key);
		memset(at, 0, field->size);
		memcpy(at, value, strlen(value));
		return 0;
	}
	int err = number_parse(field->key, value, field->size == sizeof(uint32_t) ? UINT32_MAX : UINT64_MAX,
			       &number);
	if (err)
		return err;
	uint32_t half = (uint32_t)number;
	memcpy(at, field->size == sizeof(half) ? (void *)&half : (void *)&number, field->size);
	return 0;
}

static int loss_set(struct snapshot_meta *meta, const char *key, const char *value)
{
	uint64_t kind;
	char *end;

	kind = strtoull(key + strlen("loss"), &end, 10);
	if (*end || end == key + strlen("loss") || kind >= LOSS_COUNT)
		return 0;
	return number_parse(key, value, UINT64_MAX, &meta->loss[kind]);
}

static int change_set(struct snapshot_meta *meta, const char *key, const char *value)
{
	struct snapshot_change *change;
	uint64_t index;
	int end = 0, err = number_parse(key, key + strlen(CHANGE), SNAPSHOT_CHANGES - 1, &index);

	if (err)
		return err;
	change = &meta->changes[index];
	/* They come in order. */
	if (index != meta->change_count || value[0] < '0' || value[0] > '9' ||
	    sscanf(value, "%" SCNu64 " %" SCNu64 " %u %u %u%n", &change->since_ns, &change->sample_bytes,
		   &change->mode, &change->cost_permille, &change->budget_permille, &end) != 5 ||
	    value[end])
		return error_set(-EBADMSG, "the profile's comment %s%s is no change of mode", PPROF_COMMENT,
				 key);
	meta->change_count++;
	return 0;
}

int pprof_meta_parse(struct snapshot_meta *meta, const char *comment, size_t bytes)
{
	char key[PPROF_COMMENT_MAX];

	if (bytes < strlen(PPROF_COMMENT) || bytes >= sizeof(key) ||
	    memcmp(comment, PPROF_COMMENT, strlen(PPROF_COMMENT)))
		return 0;
	bytes -= strlen(PPROF_COMMENT);
	memcpy(key, comment + strlen(PPROF_COMMENT), bytes);
	key[bytes] = '\0';
	char *value = strchr(key, '=');
	if (!value)
		return 0;
	*value++ = '\0';
	if (!strcmp(key, "snapshot")) {
		if (strcmp(value, VERSION))
			return error_set(-EBADMSG, "a snapshot of version %s; this tracer reads version %s",
					 value, VERSION);
		return 1;
	}
	for (size_t i = 0; i < FIELDS; i++)
		if (!strcmp(key, meta_fields[i].key))
			return field_set(meta, &meta_fields[i], value);
	if (!strncmp(key, CHANGE, strlen(CHANGE)))
		return change_set(meta, key, value);
	return strncmp(key, "loss", strlen("loss")) ? 0 : loss_set(meta, key, value);
}
