/* SPDX-License-Identifier: Apache-2.0 */
#include "report/export/pyroscope.h"

#include <errno.h>
#include <stdbool.h>
#include <string.h>

#include "report/export/pyroscope.pb-c.h"
#include "util/array.h"

#define LABELS_MAX 16u

int pyroscope_push_write(const struct pyroscope_label *labels, size_t count, const char *id,
			 const struct buffer *profile, struct buffer *out)
{
	Push__V1__LabelPair pairs[LABELS_MAX], *pair_list[LABELS_MAX];
	Push__V1__RawSample sample = PUSH__V1__RAW_SAMPLE__INIT, *samples[] = {&sample};
	Push__V1__RawProfileSeries series = PUSH__V1__RAW_PROFILE_SERIES__INIT, *all[] = {&series};
	Push__V1__PushRequest request = PUSH__V1__PUSH_REQUEST__INIT;

	if (count > LABELS_MAX)
		return -ENOMEM;
	for (size_t i = 0; i < count; i++) {
		push__v1__label_pair__init(&pairs[i]);
		pairs[i].name = (char *)labels[i].key;
		pairs[i].value = (char *)labels[i].value;
		pair_list[i] = &pairs[i];
	}
	sample.raw_profile = (ProtobufCBinaryData){profile->size, profile->data};
	sample.id = (char *)id;
	series.labels = pair_list;
	series.n_labels = count;
	series.samples = samples;
	series.n_samples = ARRAY_SIZE(samples);
	request.series = all;
	request.n_series = ARRAY_SIZE(all);
	size_t bytes = push__v1__push_request__get_packed_size(&request);
	int err = buffer_reserve(out, bytes);
	if (!err)
		out->size += push__v1__push_request__pack(&request, out->data + out->size);
	return err;
}

/* None of these has a meaning in a URL's query, nor in braces. */
static int plain_append(struct buffer *out, const char *text)
{
	int err = 0;

	for (; *text && !err; text++) {
		bool plain = (*text >= 'a' && *text <= 'z') || (*text >= 'A' && *text <= 'Z') ||
			     (*text >= '0' && *text <= '9') || strchr("._/-", *text);

		err = buffer_append(out, plain ? text : "_", 1);
	}
	return err;
}

int pyroscope_ingest_path(const char *name, const struct pyroscope_label *labels, size_t count,
			  long long from, long long until, struct buffer *out)
{
	int err = buffer_printf(out, "/ingest?format=pprof&from=%lld&until=%lld&name=", from, until)
			  ?: plain_append(out, name);

	for (size_t i = 0; !err && i < count; i++)
		err = buffer_printf(out, "%s%s%%3D", i ? "%2C" : "%7B", labels[i].key)
			      ?: plain_append(out, labels[i].value);
	return err ?: count ? err ?: buffer_printf(out, "%%7D") : err;
}
