/* SPDX-License-Identifier: Apache-2.0 */
/* The state of pprof_write(), shared by pprof_write.c and pprof_write_samples.c only. */
#ifndef TRACER_REPORT_PPROF_PPROF_WRITER_H
#define TRACER_REPORT_PPROF_PPROF_WRITER_H

#include <zlib.h>

#include "report/pprof/pprof_format.h"
#include "report/pprof/profile.pb-c.h"
#include "util/buffer.h"
#include "util/id_map.h"
#include "util/outfile.h"

/* of a sample: those of the first layer, and of the others */
#define VALUES (SNAPSHOT_LAYERS * PPROF_VALUES)

typedef Perftools__Profiles__Profile Profile;
typedef Perftools__Profiles__ValueType ValueType;
typedef Perftools__Profiles__Sample Sample;
typedef Perftools__Profiles__Label Label;
typedef Perftools__Profiles__Mapping Mapping;
typedef Perftools__Profiles__Location Location;
typedef Perftools__Profiles__Line Line;
typedef Perftools__Profiles__Function Function;

/* Our own strings, which follow the snapshot's; the meta data and the comments come after them. */
enum {
	TEXT_OBJECTS,
	TEXT_COUNT,
	TEXT_SPACE,
	TEXT_BYTES,
	TEXT_PYTHON_OBJECTS,
	TEXT_PYTHON_SPACE,
	TEXT_NATIVE_OBJECTS,
	TEXT_NATIVE_SPACE,
	TEXT_REGIONS,
	TEXT_MAPPED,
	TEXT_DOMAIN,
	TEXT_PID,
	TEXT_TOTAL,
	TEXT_ROUNDED,
	TEXT_INHERITED,
	TEXT_SELF_SAMPLED,
	TEXT_NATIVE,
	TEXT_ALLOC_OBJECTS, /* from here on in the order of enum snapshot_besides */
	TEXT_ALLOC_SPACE,
	TEXT_FREED_OBJECTS,
	TEXT_FREED_SPACE,
	TEXT_PEAK_OBJECTS,
	TEXT_PEAK_SPACE,
	TEXT_THREAD_OBJECTS,
	TEXT_THREAD_SPACE,
	TEXT_PYTHON_ALLOC_OBJECTS, /* the same by enum event_layer */
	TEXT_PYTHON_ALLOC_SPACE,
	TEXT_PYTHON_FREED_OBJECTS,
	TEXT_PYTHON_FREED_SPACE,
	TEXT_PYTHON_PEAK_OBJECTS,
	TEXT_PYTHON_PEAK_SPACE,
	TEXT_PYTHON_THREAD_OBJECTS,
	TEXT_PYTHON_THREAD_SPACE,
	TEXT_NATIVE_ALLOC_OBJECTS,
	TEXT_NATIVE_ALLOC_SPACE,
	TEXT_NATIVE_FREED_OBJECTS,
	TEXT_NATIVE_FREED_SPACE,
	TEXT_NATIVE_PEAK_OBJECTS,
	TEXT_NATIVE_PEAK_SPACE,
	TEXT_NATIVE_THREAD_OBJECTS,
	TEXT_NATIVE_THREAD_SPACE,
	TEXT_ALLOCATED,
	TEXT_AT_PEAK,
	TEXT_THREAD,
	TEXT_THREAD_NAME,
	TEXT_TASK,
	TEXT_LIFETIME,
	TEXT_LIFETIMES,
	TEXT_LIFETIMES_LAST = TEXT_LIFETIMES + LIFETIMES - 1,
	TEXT_NAME,
	TEXTS
};

/* In a trace with windows, after the above; the deviations of its estimates follow. */
enum { WINDOW_OLDER_OBJECTS, WINDOW_OLDER_SPACE, WINDOW_DEVIATIONS, WINDOW_ERROR, WINDOW_TEXTS };

/*
 * With several processes, after the above: the names of labels, then the command and the container
 * of each process.
 */
enum { MORE_PROCESS, MORE_COMM, MORE_CONTAINER, MORE_TEXTS };
#define MORE_PER_PROCESS 2

struct pprof_writer {
	const struct snapshot *snapshot;
	struct outfile *file;
	z_stream zlib;
	struct buffer *unpacked; /* in place of the two: the profile as it is; NULL: none */
	struct buffer packed;    /* the part being written */
	uint32_t text_base;      /* index of TEXT_OBJECTS in the profile's string table */
	/* the next free index; once the samples are written, that of MORE_PROCESS */
	int64_t more_base;
	int64_t thread_base;     /* the first of the threads' names */
	struct id_map threads;   /* number -> index in the snapshot's */
	struct id_map functions; /* file name << 32 | function -> id - 1 */
	/* function id - 1 << 32 | native << 31 | line -> number of a frame */
	struct id_map places;
	/*
	 * The frames of a location, one by one: number of the previous one's entry + 1 << 32 |
	 * number of the frame, and LOCATION_MORE if more follow -> id - 1
	 */
	struct id_map locations;
	uint64_t *ids; /* location ids of one sample */
};

#define LOCATION_MORE (1ull << 63)

static inline int64_t text_index(const struct pprof_writer *writer, int text)
{
	return (int64_t)writer->text_base + text;
}

/*
 * Layers beside the first have values only if they were traced; other files stay as they were
 * before layers.
 */
static inline size_t value_count(const struct snapshot *snapshot)
{
	size_t count = 1;

	for (uint32_t which = 0; which < SNAPSHOT_LAYERS; which++)
		count += snapshot_has_beside(&snapshot->meta, which) != 0;
	return PPROF_VALUES * count;
}

/* Writes a part of the profile. 0, -ENOMEM, -EIO and other errors of outfile_write(). */
int pprof_piece_write(struct pprof_writer *writer, const Profile *piece);
/*
 * Writes the samples of all layers, with the locations and functions that they name, each before
 * its first use. The strings are written already. Errors as above; -EOVERFLOW.
 */
int pprof_samples_write(struct pprof_writer *writer);

#endif
