/* SPDX-License-Identifier: Apache-2.0 */
/* A profile as Pyroscope's two interfaces take it. */
#pragma once

#include <stddef.h>

#include "util/buffer.h"

/* key: [a-zA-Z_][a-zA-Z0-9_]*, value: UTF-8 */
struct pyroscope_label {
	const char *key, *value;
};

/*
 * Appends a PushRequest, the body of push.v1.PusherService/Push, with one pprof profile. id: a UUID
 * that no other profile has. 0, -ENOMEM.
 */
int pyroscope_push_write(const struct pyroscope_label *labels, size_t count, const char *id,
			 const struct buffer *profile, struct buffer *out);
/*
 * Appends the path and query of /ingest for the same: the application's name, labels in braces, and
 * seconds since 1970. What names of that form cannot have is written as "_". 0, -ENOMEM.
 */
int pyroscope_ingest_path(const char *name, const struct pyroscope_label *labels, size_t count,
			  long long from, long long until, struct buffer *out);
