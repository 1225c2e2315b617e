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

enum when {
	ALWAYS,
	KNOWN,
	OF_SEVERAL
}; /* KNOWN: if it is not 0 or ""; OF_SEVERAL: then, of one of several */

struct meta_field {
	const char *key;
	size_t offset, size;
	int text; /* else a native unsigned number (int counts as one) */
	enum when when;
};

#define NUMBER(field)                                                                                        \
	{                                                                                                    \
#field, offsetof(struct snapshot_meta, field), sizeof(((struct snapshot_meta *)0)->field),   \
			0, ALWAYS                                                                            \
	}
#define COVERAGE(field)                                                                                      \
	{                                                                                                    \
#field, offsetof(struct snapshot_meta, coverage.field),                                      \
			sizeof(((struct snapshot_meta *)0)->coverage.field), 0, ALWAYS                       \
	}
#define ENDING(field)                                                                                        \
	{                                                                                                    \
		"ending_" #field, offsetof(struct snapshot_meta, ending.field),                              \
			sizeof(((struct snapshot_meta *)0)->ending.field), 0, KNOWN                          \
	}
#define NATIVE(field)                                                                                        \
	{                                                                                                    \
		"native_" #field, offsetof(struct snapshot_meta, native.field),                              \
			sizeof(((struct snapshot_meta *)0)->native.field), 0, ALWAYS                         \
	}
#define TEXT(field)                                                                                          \
	{                                                                                                    \
#field, offsetof(struct snapshot_meta, field), sizeof(((struct snapshot_meta *)0)->field),   \
			1, ALWAYS                                                                            \
	}
#define LATER(field, text, when)                                                                             \
	{                                                                                                    \
#field, offsetof(struct snapshot_meta, field), sizeof(((struct snapshot_meta *)0)->field),   \
			text, when                                                                           \
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
	NUMBER(frames_slow),
	NUMBER(stacks_cut),
	NUMBER(rounded_blocks),
	NUMBER(sample_bytes),
	NUMBER(changes_dropped),
	NUMBER(unread_ns),
	NUMBER(layers),
	NATIVE(peak_bytes),
	NATIVE(frees_unknown),
	NATIVE(replaced),
	NUMBER(large_skipped),
	NUMBER(reuse_unseen),
	NUMBER(pool_bytes),
	NUMBER(regions_dropped),
	NUMBER(blocks_dropped),
	NUMBER(bytes_dropped),
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
	ENDING(pieces),
	ENDING(steps),
	ENDING(slowest_ns),
	ENDING(arenas),
	ENDING(arenas_unread),
	ENDING(failed),
	LATER(stacks_dropped, 0, KNOWN),
	LATER(codes_dropped, 0, KNOWN),
	LATER(symbols_dropped, 0, KNOWN),
	LATER(readings_dropped, 0, KNOWN),
	LATER(ends_unseen, 0, KNOWN),
	LATER(coverage.typed_blocks, 0, KNOWN),
	LATER(coverage.mistyped_blocks, 0, KNOWN),
	LATER(container, 1, KNOWN),
	LATER(ns_pid, 0, OF_SEVERAL),
	LATER(parent, 0, OF_SEVERAL),
	LATER(has_exited, 0, OF_SEVERAL),
	LATER(wait_status, 0, OF_SEVERAL),
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

static int field_wanted(const struct snapshot_meta *meta, const struct meta_field *field, int of_several)
{
	int known = field->text ? ((const char *)meta + field->offset)[0] != 0 : number_get(meta, field) != 0;

	/* The first names the process, whatever else is known of it. */
	if (of_several)
		return known || field == meta_fields;
	return field->when == ALWAYS || (field->when == KNOWN && known);
}

/* prefix: of the key, whose process it is. */
static void field_print(const struct snapshot_meta *meta, const struct meta_field *field, const char *prefix,
			char out[PPROF_COMMENT_MAX])
{
	if (field->text)
		snprintf(out, PPROF_COMMENT_MAX, PPROF_COMMENT "%s%s=%.*s", prefix, field->key,
			 (int)field->size - 1, (const char *)meta + field->offset);
	else
		snprintf(out, PPROF_COMMENT_MAX, PPROF_COMMENT "%s%s=%" PRIu64, prefix, field->key,
			 number_get(meta, field));
}

/* prefix: as with field_print(). */
static void change_print(const struct snapshot_change *change, size_t index, const char *prefix,
			 char out[PPROF_COMMENT_MAX])
{
	snprintf(out, PPROF_COMMENT_MAX, PPROF_COMMENT "%s" CHANGE "%zu=%" PRIu64 " %" PRIu64 " %u %u %u",
		 prefix, index, change->since_ns, change->sample_bytes, change->mode, change->cost_permille,
		 change->budget_permille);
}

static int field_next(struct pprof_comments *comments, const struct snapshot_meta *meta, const char *prefix,
		      char out[PPROF_COMMENT_MAX])
{
	while (comments->next < FIELDS) {
		const struct meta_field *field = &meta_fields[comments->next++];

		if (field_wanted(meta, field, prefix[0] != 0)) {
			field_print(meta, field, prefix, out);
			return 1;
		}
	}
	if (comments->changes >= meta->change_count)
		return 0;
	change_print(&meta->changes[comments->changes], comments->changes, prefix, out);
	comments->changes++;
	return 1;
}

/* Those of the whole: whose file it is, the fields, the losses. */
static int whole_next(struct pprof_comments *comments, const struct snapshot_meta *meta,
		      char out[PPROF_COMMENT_MAX])
{
	size_t kind;

	if (!comments->begun) {
		comments->begun = 1;
		snprintf(out, PPROF_COMMENT_MAX, SIGNATURE VERSION);
		return 1;
	}
	if (field_next(comments, meta, "", out))
		return 1;
	kind = comments->next - FIELDS;
	if (kind >= LOSS_COUNT)
		return 0;
	comments->next++;
	snprintf(out, PPROF_COMMENT_MAX, PPROF_COMMENT "loss%zu=%" PRIu64, kind, meta->loss[kind]);
	return 1;
}

int pprof_comment_next(struct pprof_comments *comments, const struct snapshot *snapshot,
		       char out[PPROF_COMMENT_MAX])
{
	char prefix[24];

	if (!comments->process) {
		if (whole_next(comments, &snapshot->meta, out))
			return 1;
		*comments = (struct pprof_comments){.process = 1};
	}
	for (; comments->process <= snapshot->process_count;
	     *comments = (struct pprof_comments){.process = comments->process + 1}) {
		snprintf(prefix, sizeof(prefix), "%zu.", comments->process);
		if (field_next(comments, &snapshot->processes[comments->process - 1], prefix, out))
			return 1;
	}
	return 0;
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

/* "12.pid": the process's meta data, and the key. Processes come in the order of their numbers. */
static int process_find(struct builder *builder, char **key, struct snapshot_meta **meta)
{
	struct snapshot *snapshot = builder->snapshot;
	char *end;
	unsigned long long number;

	*meta = &snapshot->meta;
	if (**key < '0' || **key > '9')
		return 0;
	number = strtoull(*key, &end, 10);
	if (*end != '.' || !number || number > snapshot->process_count + 1)
		return error_set(-EBADMSG, "the profile's comment %s%s is of no process", PPROF_COMMENT,
				 *key);
	*key = end + 1;
	if (number <= snapshot->process_count) {
		*meta = &snapshot->processes[number - 1];
		return 0;
	}
	return builder_process(builder, meta);
}

static int value_take(struct builder *builder, char *key, const char *value)
{
	struct snapshot_meta *meta;

	if (!strcmp(key, "snapshot")) {
		if (strcmp(value, VERSION))
			return error_set(-EBADMSG, "a snapshot of version %s; this tracer reads version %s",
					 value, VERSION);
		return 1;
	}
	int err = process_find(builder, &key, &meta);
	if (err)
		return err;
	/* Files from before there were several layers say it of mapped memory alone. */
	if (!strcmp(key, "mapped_known"))
		meta->layers |= !strcmp(value, "1") ? 1u << EVENT_LAYER_MMAP : 0;
	for (size_t i = 0; i < FIELDS; i++)
		if (!strcmp(key, meta_fields[i].key))
			return field_set(meta, &meta_fields[i], value);
	if (!strncmp(key, CHANGE, strlen(CHANGE)))
		return change_set(meta, key, value);
	return strncmp(key, "loss", strlen("loss")) ? 0 : loss_set(meta, key, value);
}

int pprof_comment_parse(struct builder *builder, const char *comment, size_t bytes)
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
	return value_take(builder, key, value);
}

int pprof_comments_end(struct builder *builder)
{
	struct snapshot *snapshot = builder->snapshot;

	if (snapshot->process_count == 1)
		return error_set(-EBADMSG, "the profile is corrupt: one of several processes");
	for (size_t i = 0; i < snapshot->process_count; i++)
		memcpy(snapshot->processes[i].loss, snapshot->meta.loss, sizeof(snapshot->meta.loss));
	return 0;
}
