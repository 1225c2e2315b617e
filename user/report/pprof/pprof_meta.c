/* SPDX-License-Identifier: Apache-2.0 */
#include "report/pprof/pprof_format.h"

#include <errno.h>
#include <inttypes.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "snapshot/meta.h"
#include "util/array.h"
#include "util/error.h"

#define SIGNATURE PPROF_SIGN "snapshot="
#define VERSION   "1"
#define CHANGE    "change" /* "changeN": the fields of struct snapshot_change */

static int field_wanted(const struct snapshot_meta *meta, const struct meta_field *field,
			int of_several)
{
	/* The first line of a process is always written: it declares the process. */
	if (of_several ? field == meta_fields : field->when == META_ALWAYS)
		return 1;
	return (of_several || field->when == META_KNOWN) && meta_is_known(meta, field);
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

	if (meta_is_text(field))
		snprintf(line, sizeof(line), PPROF_SIGN "%s%s=%.*s", prefix, field->key,
			 (int)field->size - 1, meta_text(meta, field));
	else
		snprintf(line, sizeof(line), PPROF_SIGN "%s%s=%" PRIu64, prefix, field->key,
			 meta_number(meta, field));
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

	for (size_t i = 0; !err && i < meta_field_count; i++)
		if (field_wanted(meta, &meta_fields[i], prefix[0] != 0))
			err = field_append(out, meta, &meta_fields[i], prefix);
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

	if (meta_is_text(field)) {
		if (strlen(value) >= field->size)
			return error_set(-EBADMSG, "the profile's line %s%s is too long",
					 PPROF_SIGN, field->key);
		memset(at, 0, field->size);
		memcpy(at, value, strlen(value));
		return 0;
	}
	int err = number_parse(field->key, value,
			       field->size == sizeof(uint32_t) ? UINT32_MAX : UINT64_MAX, &number);

	if (!err)
		meta_number_set(meta, field, number);
	return err;
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
	for (size_t i = 0; i < meta_field_count; i++)
		if (!strcmp(key, meta_fields[i].key))
			return field_set(meta, &meta_fields[i], value);
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

/* --- functions without names ------------------------------------------------------------------ */

int pprof_unnamed_name(const char *path, uint64_t offset, struct buffer *out)
{
	const char *slash = strrchr(path, '/');

	return buffer_printf(out, "[%s+0x%" PRIx64 "]", slash ? slash + 1 : path, offset)
		       ?: buffer_append(out, "", 1);
}

bool pprof_is_unnamed(const struct snapshot *snapshot, const struct snapshot_frame *frame,
		      uint64_t *offset)
{
	const struct snapshot_binary *binary = snapshot_binary(snapshot, frame);
	const char *name = strings_get(snapshot->strings, frame->function), *plus;
	struct buffer expected = {0};
	bool equal;

	if (!binary || frame->filename != binary->path || frame->line || name[0] != '[')
		return false;
	plus = strrchr(name, '+');
	*offset = plus ? strtoull(plus + 1, NULL, 16) : 0;
	if (*offset < binary->offset || *offset - binary->offset >= binary->limit - binary->start)
		return false;
	equal = !pprof_unnamed_name(strings_get(snapshot->strings, binary->path), *offset,
				    &expected) &&
		!strcmp((const char *)expected.data, name);
	buffer_free(&expected);
	return equal;
}

/* --- pprof label ------------------------------------------------------------------------------ */

void pprof_label_key(const struct snapshot_meta *meta, char key[EVENT_LABEL_TEXT])
{
	static const char *const others[] = {
		"bytes",     "domain",   "pid",    "total_nframe",   "process",
		"comm",      "rounded",  "task",   "standard_error", "container",
		"inherited", "lifetime", "thread", "self_sampled",   "thread_name",
		"allocated", "at_peak",  "age",    PPROF_DEVIATIONS,
	};
	const char *own = meta->label, *colon = strchr(own, ':');

	if (!strncmp(own, "context ", 8))
		own += 8;
	else if (!strncmp(own, "local ", 6) && colon)
		own = colon + 1;
	for (size_t i = 0; i < ARRAY_SIZE(others); i++)
		if (!strcmp(own, others[i]))
			own = meta->label;
	snprintf(key, EVENT_LABEL_TEXT, "%s", own[0] ? own : "task");
}
