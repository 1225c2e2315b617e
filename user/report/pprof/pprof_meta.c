/* SPDX-License-Identifier: Apache-2.0 */
#include "report/pprof/pprof_format.h"

#include <errno.h>
#include <inttypes.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "snapshot/snapshot.h"
#include "util/error.h"

/* --- pprof meta fields ------------------------------------------------------------------------ */

/* The fields of struct snapshot_meta that a profile stores, with their keys. */

/*
 * When a field is written. KNOWN: if it is not 0 or ""; OF_SEVERAL: the same, for one of several
 * processes.
 */
enum when { ALWAYS, KNOWN, OF_SEVERAL };

struct meta_field {
	const char *key;
	size_t offset, size;
	int text; /* otherwise a native unsigned number (int counts as one) */
	enum when when;
};

/* The first one identifies a process. */
extern const struct meta_field pprof_meta_fields[];

extern const size_t pprof_meta_field_count;

#define NUMBER(field)                                                                              \
	{                                                                                          \
#field, offsetof(struct snapshot_meta, field),                                     \
			sizeof(((struct snapshot_meta *)0)->field), 0, ALWAYS                      \
	}
#define COVERAGE(field)                                                                            \
	{                                                                                          \
#field, offsetof(struct snapshot_meta, coverage.field),                            \
			sizeof(((struct snapshot_meta *)0)->coverage.field), 0, ALWAYS             \
	}
#define ENDING(field)                                                                              \
	{                                                                                          \
		"ending_" #field, offsetof(struct snapshot_meta, ending.field),                    \
			sizeof(((struct snapshot_meta *)0)->ending.field), 0, KNOWN                \
	}
#define NATIVE(field)                                                                              \
	{                                                                                          \
		"native_" #field, offsetof(struct snapshot_meta, native.field),                    \
			sizeof(((struct snapshot_meta *)0)->native.field), 0, ALWAYS               \
	}
#define UNKNOWN(name, reason)                                                                      \
	{"unknown_" name, offsetof(struct snapshot_meta, unknown[reason].blocks),                  \
	 sizeof(uint64_t), 0, KNOWN},                                                              \
	{                                                                                          \
		"unknown_" name "_bytes", offsetof(struct snapshot_meta, unknown[reason].bytes),   \
			sizeof(uint64_t), 0, KNOWN                                                 \
	}
#define STACK_END(name, reason, when)                                                              \
	{                                                                                          \
		"stacks_" name, offsetof(struct snapshot_meta, stack_ends.reasons[reason]),        \
			sizeof(uint64_t), 0, when                                                  \
	}
#define STACK_END_FILE(name, index)                                                                \
	{"stacks_" name, offsetof(struct snapshot_meta, stack_ends.files[index].path),             \
	 STACK_ENDS_PATH, 1, KNOWN},                                                               \
	{                                                                                          \
		"stacks_" name "_count",                                                           \
			offsetof(struct snapshot_meta, stack_ends.files[index].stacks),            \
			sizeof(uint64_t), 0, KNOWN                                                 \
	}
#define TEXT(field)                                                                                \
	{                                                                                          \
#field, offsetof(struct snapshot_meta, field),                                     \
			sizeof(((struct snapshot_meta *)0)->field), 1, ALWAYS                      \
	}
#define LATER(field, text, when)                                                                   \
	{                                                                                          \
#field, offsetof(struct snapshot_meta, field),                                     \
			sizeof(((struct snapshot_meta *)0)->field), text, when                     \
	}

const struct meta_field pprof_meta_fields[] = {
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
	STACK_END("cut", ABI_UNWIND_CUT_FRAME, ALWAYS),
	NUMBER(rounded_blocks),
	NUMBER(sample_bytes),
	NUMBER(self_sampled),
	NUMBER(self_sampled_ns),
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
	LATER(walks_dropped, 0, KNOWN),
	UNKNOWN("no_frame", UNKNOWN_NO_FRAME),
	UNKNOWN("no_stack", UNKNOWN_NO_STACK),
	UNKNOWN("no_room", UNKNOWN_NO_MEMORY),
	UNKNOWN("no_code", UNKNOWN_NO_CODE),
	UNKNOWN("no_name", UNKNOWN_NO_NAME),
	UNKNOWN("no_file", UNKNOWN_NO_FILE),
	LATER(of_app, 0, KNOWN),
	LATER(rss_bytes, 0, KNOWN),
	LATER(rss_age_ns, 0, KNOWN),
	LATER(cpu_ns, 0, KNOWN),
	LATER(wait_ns, 0, KNOWN),
	LATER(probes_ns, 0, KNOWN),
	LATER(budget_permille, 0, KNOWN),
	LATER(emptied, 0, KNOWN),
	LATER(ends_unseen, 0, KNOWN),
	LATER(coverage.typed_blocks, 0, KNOWN),
	LATER(coverage.mistyped_blocks, 0, KNOWN),
	LATER(container, 1, KNOWN),
	LATER(ns_pid, 0, KNOWN),
	LATER(parent, 0, OF_SEVERAL),
	LATER(windows.count, 0, KNOWN),
	LATER(windows.on_ns, 0, KNOWN),
	LATER(windows.span_ns, 0, KNOWN),
	LATER(windows.new_blocks, 0, KNOWN),
	LATER(windows.seen_blocks, 0, KNOWN),
	LATER(windows.unseen_blocks, 0, KNOWN),
	LATER(windows.unseen_bytes, 0, KNOWN),
	LATER(windows.old_unseen_blocks, 0, KNOWN),
	LATER(windows.old_unseen_bytes, 0, KNOWN),
	LATER(windows.large, 0, KNOWN),
	LATER(windows.malloc_blocks, 0, KNOWN),
	LATER(windows.pool_blocks, 0, KNOWN),
	LATER(windows.pool_bytes, 0, KNOWN),
	LATER(beside[BESIDE_ALLOCATED].known, 0, KNOWN),
	LATER(beside[BESIDE_ALLOCATED].gaps, 0, KNOWN),
	LATER(beside[BESIDE_FREED].known, 0, KNOWN),
	LATER(beside[BESIDE_FREED].gaps, 0, KNOWN),
	LATER(beside[BESIDE_PEAK].known, 0, KNOWN),
	LATER(beside[BESIDE_PEAK].gaps, 0, KNOWN),
	LATER(beside[BESIDE_THREAD].known, 0, KNOWN),
	LATER(beside[BESIDE_THREAD].gaps, 0, KNOWN),
	LATER(sole_thread[EVENT_LAYER_PYTHON], 0, KNOWN),
	LATER(sole_thread[EVENT_LAYER_NATIVE], 0, KNOWN),
	LATER(sole_thread_name[EVENT_LAYER_PYTHON], 1, KNOWN),
	LATER(sole_thread_name[EVENT_LAYER_NATIVE], 1, KNOWN),
	LATER(tasks, 0, KNOWN),
	LATER(peak_after_ns[EVENT_LAYER_PYTHON], 0, KNOWN),
	LATER(peak_after_ns[EVENT_LAYER_NATIVE], 0, KNOWN),
	LATER(at_peak, 0, KNOWN),
	LATER(allocated_ns, 0, KNOWN),
	LATER(has_exited, 0, KNOWN),
	LATER(wait_status, 0, KNOWN),
	{"stacks_whole", offsetof(struct snapshot_meta, stack_ends.whole), sizeof(uint64_t), 0,
	 KNOWN},
	{"stacks_whole_bytes", offsetof(struct snapshot_meta, stack_ends.whole_bytes),
	 sizeof(uint64_t), 0, KNOWN},
	{"stacks_cut_bytes", offsetof(struct snapshot_meta, stack_ends.cut_bytes), sizeof(uint64_t),
	 0, KNOWN},
	STACK_END("cut_table", ABI_UNWIND_CUT_TABLE, KNOWN),
	STACK_END("cut_row", ABI_UNWIND_CUT_ROW, KNOWN),
	STACK_END("cut_rule", ABI_UNWIND_CUT_RULE, KNOWN),
	STACK_END("cut_code", ABI_UNWIND_CUT_CODE, KNOWN),
	STACK_END("cut_read", ABI_UNWIND_CUT_READ, KNOWN),
	STACK_END("cut_bounds", ABI_UNWIND_CUT_BOUNDS, KNOWN),
	STACK_END("cut_signal", ABI_UNWIND_CUT_SIGNAL, KNOWN),
	STACK_END("cut_return", ABI_UNWIND_CUT_RETURN, KNOWN),
	STACK_END("cut_busy", ABI_UNWIND_CUT_BUSY, KNOWN),
	STACK_END_FILE("cut_in_0", 0),
	STACK_END_FILE("cut_in_1", 1),
	STACK_END_FILE("cut_in_2", 2),
};

const size_t pprof_meta_field_count = sizeof(pprof_meta_fields) / sizeof(pprof_meta_fields[0]);

/* --- pprof meta ------------------------------------------------------------------------------- */

#define SIGNATURE PPROF_SIGN "snapshot="
#define VERSION   "1"
#define CHANGE    "change" /* "changeN": the fields of struct snapshot_change */

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

static int field_wanted(const struct snapshot_meta *meta, const struct meta_field *field,
			int of_several)
{
	int known = field->text ? ((const char *)meta + field->offset)[0] != 0
				: number_get(meta, field) != 0;

	/* The first line of a process is always written: it declares the process. */
	if (of_several)
		return known || field == pprof_meta_fields;
	return field->when == ALWAYS || (field->when == KNOWN && known);
}

/* Appends a line; text is everything but its newline. */
static int line_append(struct buffer *out, const char *text)
{
	int err = 0;

	for (; !err && *text; text++) {
		char escaped[2] = {'\\', *text == '\n' ? 'n' : *text};
		int plain = *text != '\n' && *text != '\\';

		err = buffer_append(out, escaped + plain, sizeof(escaped) - (size_t)plain);
	}
	return err ?: buffer_append(out, "\n", 1);
}

/* prefix: of the key; names the process. */
static int field_append(struct buffer *out, const struct snapshot_meta *meta,
			const struct meta_field *field, const char *prefix)
{
	char line[PPROF_LINE_MAX];

	if (field->text)
		snprintf(line, sizeof(line), PPROF_SIGN "%s%s=%.*s", prefix, field->key,
			 (int)field->size - 1, (const char *)meta + field->offset);
	else
		snprintf(line, sizeof(line), PPROF_SIGN "%s%s=%" PRIu64, prefix, field->key,
			 number_get(meta, field));
	return line_append(out, line);
}

/* prefix: as with field_append(). */
static int change_append(struct buffer *out, const struct snapshot_meta *meta, size_t index,
			 const char *prefix)
{
	const struct snapshot_change *change = &meta->changes[index];

	return buffer_printf(out,
			     PPROF_SIGN "%s" CHANGE "%zu=%" PRIu64 " %" PRIu64 " %u %u %u %u\n",
			     prefix, index, change->since_ns, change->sample_bytes, change->mode,
			     change->cost_permille, change->budget_permille, change->large);
}

static int fields_append(struct buffer *out, const struct snapshot_meta *meta, const char *prefix)
{
	int err = 0;

	for (size_t i = 0; !err && i < pprof_meta_field_count; i++)
		if (field_wanted(meta, &pprof_meta_fields[i], prefix[0] != 0))
			err = field_append(out, meta, &pprof_meta_fields[i], prefix);
	for (size_t i = 0; !err && i < meta->change_count; i++)
		err = change_append(out, meta, i, prefix);
	return err;
}

int pprof_meta_append(const struct snapshot *snapshot, struct buffer *out)
{
	char prefix[24];
	int err = buffer_printf(out, SIGNATURE VERSION "\n")
			  ?: fields_append(out, &snapshot->meta, "");

	for (size_t kind = 0; !err && kind < LOSS_COUNT; kind++)
		err = buffer_printf(out, PPROF_SIGN "loss%zu=%" PRIu64 "\n", kind,
				    snapshot->meta.loss[kind]);
	for (size_t i = 0; !err && i < snapshot->process_count; i++) {
		snprintf(prefix, sizeof(prefix), "%zu.", i + 1);
		err = fields_append(out, &snapshot->processes[i], prefix);
	}
	return err;
}

static int number_parse(const char *key, const char *text, uint64_t max, uint64_t *out)
{
	char *end;

	errno = 0;
	*out = strtoull(text, &end, 10);
	if (*text < '0' || *text > '9' || *end || errno || *out > max)
		return error_set(-EBADMSG, "the profile's line %s%s is not a number in range",
				 PPROF_SIGN, key);
	return 0;
}

static int field_set(struct snapshot_meta *meta, const struct meta_field *field, const char *value)
{
	char *at = (char *)meta + field->offset;
	uint64_t number;

	if (field->text) {
		if (strlen(value) >= field->size)
			return error_set(-EBADMSG, "the profile's line %s%s is too long",
					 PPROF_SIGN, field->key);
		memset(at, 0, field->size);
		memcpy(at, value, strlen(value));
		return 0;
	}
	int err = number_parse(field->key, value,
			       field->size == sizeof(uint32_t) ? UINT32_MAX : UINT64_MAX, &number);
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
	int count, end = 0,
		   err = number_parse(key, key + strlen(CHANGE), SNAPSHOT_CHANGES - 1, &index);

	if (err)
		return err;
	change = &meta->changes[index];
	/* The last number is missing in older files. */
	count = sscanf(value, "%" SCNu64 " %" SCNu64 " %u %u %u%n %u%n", &change->since_ns,
		       &change->sample_bytes, &change->mode, &change->cost_permille,
		       &change->budget_permille, &end, &change->large, &end);
	/* Changes come in order. */
	if (index != meta->change_count || value[0] < '0' || value[0] > '9' || count < 5 ||
	    value[end])
		return error_set(-EBADMSG, "the profile's line %s%s is not a change of mode",
				 PPROF_SIGN, key);
	meta->change_count++;
	return 0;
}

/*
 * Splits "12.pid" into the process's meta data and the key. Processes come in the order of their
 * numbers.
 */
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
		return error_set(-EBADMSG, "the profile's line %s%s belongs to no process",
				 PPROF_SIGN, *key);
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
			return error_set(-EBADMSG,
					 "a snapshot of version %s; this tracer reads version %s",
					 value, VERSION);
		return 1;
	}
	int err = process_find(builder, &key, &meta);
	if (err)
		return err;
	/* Files from before there were several layers use this key for mapped memory alone. */
	if (!strcmp(key, "mapped_known"))
		meta->layers |= !strcmp(value, "1") ? 1u << EVENT_LAYER_MMAP : 0;
	for (size_t i = 0; i < pprof_meta_field_count; i++)
		if (!strcmp(key, pprof_meta_fields[i].key))
			return field_set(meta, &pprof_meta_fields[i], value);
	if (!strncmp(key, CHANGE, strlen(CHANGE)))
		return change_set(meta, key, value);
	return strncmp(key, "loss", strlen("loss")) ? 0 : loss_set(meta, key, value);
}

int pprof_meta_parse_line(struct builder *builder, const char *line, size_t bytes)
{
	char key[PPROF_LINE_MAX];

	if (bytes < strlen(PPROF_SIGN) || bytes >= sizeof(key) ||
	    memcmp(line, PPROF_SIGN, strlen(PPROF_SIGN)))
		return 0;
	bytes -= strlen(PPROF_SIGN);
	memcpy(key, line + strlen(PPROF_SIGN), bytes);
	key[bytes] = '\0';
	char *value = strchr(key, '=');
	if (!value)
		return 0;
	*value++ = '\0';
	return value_take(builder, key, value);
}

/*
 * Takes a line off the text and removes its escapes. Returns its length; a line longer than
 * PPROF_LINE_MAX is cut.
 */
static size_t line_take(const char **at, const char *end, char line[PPROF_LINE_MAX])
{
	size_t length = 0;

	while (*at < end && **at != '\n') {
		char c = *(*at)++;

		if (c == '\\' && *at < end) {
			c = *(*at)++;
			c = c == 'n' ? '\n' : c;
		}
		if (length < PPROF_LINE_MAX)
			line[length++] = c;
	}
	*at += *at < end;
	return length;
}

int pprof_meta_parse(struct builder *builder, const char *lines, size_t bytes)
{
	const char *end = lines + bytes;
	char line[PPROF_LINE_MAX];
	int ours = 0;

	while (lines < end) {
		size_t length = line_take(&lines, end, line);
		int err = pprof_meta_parse_line(builder, line, length);

		if (err < 0)
			return err;
		ours |= err;
	}
	return ours;
}

int pprof_meta_end(struct builder *builder)
{
	struct snapshot *snapshot = builder->snapshot;

	if (snapshot->process_count == 1)
		return error_set(-EBADMSG, "the profile is corrupt: one of several processes");
	for (size_t i = 0; i < snapshot->process_count; i++)
		memcpy(snapshot->processes[i].loss, snapshot->meta.loss,
		       sizeof(snapshot->meta.loss));
	return 0;
}
