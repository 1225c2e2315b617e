/* SPDX-License-Identifier: Apache-2.0 */
/* The state of pprof_parse(), shared by pprof_read.c and pprof_read_samples.c only. */
#pragma once

#include "report/pprof/pprof_format.h"
#include "report/pprof/pprof_wire.h"
#include "snapshot/builder.h"
#include "util/id_map.h"

#define FRAMES_MAX 65536u /* of one sample */

enum {
	FIELD_SAMPLE = 2,
	FIELD_MAPPING = 3,
	FIELD_LOCATION = 4,
	FIELD_FUNCTION = 5,
	FIELD_STRING = 6,
	FIELD_KEEP_FRAMES = 8,
	FIELD_COMMENT = 13
};

struct function {
	uint32_t name, filename; /* ids in the snapshot's strings */
};

enum label {
	LABEL_BYTES,
	LABEL_DOMAIN,
	LABEL_TOTAL,
	LABEL_PROCESS,
	LABEL_ROUNDED,
	LABEL_INHERITED,
	LABEL_SELF_SAMPLED,
	LABEL_DEVIATIONS,
	LABEL_LIFETIME,
	LABEL_THREAD,
	LABEL_THREAD_NAME,
	LABEL_TASK,
	LABELS
};

struct sample {
	uint32_t nframe, value_count;
	int64_t values[SNAPSHOT_LAYERS * PPROF_VALUES];
	int64_t labels
		/*
		 * -1: the sample has no such label, or pprof wrote the file, which drops labels of
		 * 0
		 */
		[LABELS];
};

/* Frames of one location. */
struct location {
	uint32_t first; /* in location_frames */
	uint32_t count;
};

struct messages {
	struct span *items;
	size_t count, capacity;
};

struct pprof_reader {
	const unsigned char *profile;
	struct messages mapping_messages, function_messages, location_messages;
	uint64_t native_mapping; /* the id of that of native frames; 0: there is none */
	uint32_t *strings;       /* offsets of the strings' length prefixes */
	size_t string_count, string_capacity;
	/* index of the string with the meta data; 0: a file of an older version, or not ours */
	uint64_t lines;
	uint64_t *comments; /* indices of strings */
	size_t comment_count, comment_capacity;
	struct function *functions;
	size_t function_count, function_capacity;
	struct location *locations;
	size_t location_count, location_capacity;
	struct snapshot_frame *location_frames;
	size_t location_frame_count, location_frame_capacity;
	struct id_map function_ids, location_ids;
	struct id_map estimates; /* index of a string with deviations -> snapshot_trace.estimate */
	struct sample sample;    /* the sample being read */
	struct snapshot_frame frames[FRAMES_MAX]; /* the sample's frames */
	struct account *account, snapshot_account;
	/* indices of the labels' names; the last one: of a label that is not ours */
	uint64_t label_keys[LABELS + 1];
	struct builder builder;
};

/* Sets the error "the profile is corrupt: a … cannot be"; returns -EBADMSG. */
int pprof_corrupt(const char *what);
/* The string at an index of the profile's string table. 0, -EBADMSG (error_set). */
int pprof_string_get(const struct pprof_reader *reader, uint64_t index, struct span *out);
/* Its id in the snapshot's strings. 0, -EBADMSG (error_set), -ENOMEM. */
int pprof_string_intern(struct pprof_reader *reader, int64_t index, uint32_t *id);
/* Calls take for each number of a repeated field, packed or not. 0, -EBADMSG, take's error. */
int pprof_numbers_take(struct pprof_reader *reader, struct field *field,
		       int (*take)(struct pprof_reader *reader, uint64_t number));
/*
 * Adds a sample to the snapshot; other fields are ignored. The meta data, functions and locations
 * are known already. 0; -EBADMSG (error_set); -ENOMEM, -EDQUOT.
 */
int pprof_sample_take(struct pprof_reader *reader, struct field *field);
