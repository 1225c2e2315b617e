/* SPDX-License-Identifier: Apache-2.0 */
/* OTLP requests as the agent makes them; tests/oracle/test_otlp.py reads whole ones. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "report/export/otlp.h"
#include "report/export/otlp.pb-c.h"
#include "snapshot/group/group.h"
#include "snapshots.h"
#include "util/array.h"

#define FRAMES(...) ((const struct frame_text[]){__VA_ARGS__, {NULL, NULL, 0}})

/* A request, its first resource, and that resource's first profile. */
struct request {
	struct buffer data;
	Otlp__ExportProfilesServiceRequest *whole;
	Otlp__ResourceProfiles *first;
	Otlp__ScopeProfiles *scope;
	Otlp__Profile *profile;
};

#define UNPACK(type, packed) type##__unpack(NULL, (packed).len, (packed).data)

static void request_make(const struct snapshot *snapshot, const struct otlp_opts *opts,
			 struct request *out)
{
	*out = (struct request){.data = {0}};
	assert_int_equal(otlp_write(snapshot, opts, &out->data), 0);
	out->whole =
		otlp__export_profiles_service_request__unpack(NULL, out->data.size, out->data.data);
	assert_non_null(out->whole);
	assert_int_not_equal(out->whole->n_resource_profiles, 0);
	out->first = UNPACK(otlp__resource_profiles, out->whole->resource_profiles[0]);
	assert_non_null(out->first);
	out->scope = UNPACK(otlp__scope_profiles, out->first->scope_profiles[0]);
	assert_non_null(out->scope);
	out->profile = UNPACK(otlp__profile, out->scope->profiles[0]);
	assert_non_null(out->profile);
}

static void request_free(struct request *request)
{
	otlp__profile__free_unpacked(request->profile, NULL);
	otlp__scope_profiles__free_unpacked(request->scope, NULL);
	otlp__resource_profiles__free_unpacked(request->first, NULL);
	otlp__export_profiles_service_request__free_unpacked(request->whole, NULL);
	buffer_free(&request->data);
}

/* The text of a resource's attribute, which it has once; NULL: it has none. */
static const char *attribute(const struct request *request, const char *key)
{
	const Otlp__Resource *resource = request->first->resource;
	const char *found = NULL;

	for (size_t i = 0; i < resource->n_attributes; i++) {
		if (strcmp(resource->attributes[i]->key, key))
			continue;
		assert_null(found);
		found = resource->attributes[i]->value->string_value;
	}
	return found;
}

static struct snapshot *snapshot_named(const char *name, const char *container)
{
	struct builder builder;
	struct snapshot_meta *meta;

	assert_int_equal(builder_begin(&builder), 0);
	meta = &builder.snapshot->meta;
	meta->pid = 7;
	meta->python_version = 0x030b02f0;
	meta->taken_realtime_ns = 1000000;
	snprintf(meta->name, sizeof(meta->name), "%s", name);
	snprintf(meta->container, sizeof(meta->container), "%s", container);
	assert_int_equal(snapshot_add(&builder, FRAMES({"a.py", "f", 1}), 1, 0, 8, 2), 0);
	return builder_finish(&builder);
}

/* How a service is called that nobody has named, and where its container is told. */
static void test_service(void **state)
{
	static const struct {
		const char *name, *container, *service, *id, *container_name;
	} cases[] = {
		{"python3", "", "unknown_service:python3", NULL, NULL},
		{"", "", "unknown_service", NULL, NULL},
		{"caf\xe9", "", "unknown_service:caf\\xe9", NULL, NULL},
		{"python3", "web-1", "web-1", NULL, "web-1"},
		{"python3", "0123456789ab", "unknown_service:python3", "0123456789ab", NULL},
	};

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
		struct snapshot *snapshot = snapshot_named(cases[i].name, cases[i].container);
		struct request request;

		request_make(snapshot, NULL, &request);
		assert_string_equal(attribute(&request, "service.name"), cases[i].service);
		assert_string_equal(attribute(&request, "process.runtime.version"), "3.11.2");
		const char *id = attribute(&request, "container.id");
		const char *name = attribute(&request, "container.name");
		assert_true(cases[i].id ? id && !strcmp(id, cases[i].id) : !id);
		assert_true(cases[i].container_name ? name && !strcmp(name, cases[i].container_name)
						    : !name);
		request_free(&request);
		snapshot_free(snapshot);
	}
}

/* Attributes of the caller replace the snapshot's; the first of the same key counts. */
static void test_attributes(void **state)
{
	static const struct otlp_attribute resource[] = {
		{"service.name", "shop"},
		{"k8s.pod.name", "shop-1"},
		{"service.name", "other"},
		{"process.runtime.name", "x"},
		{"empty", ""},
		{"host.name", "\xff"},
	};
	const struct otlp_opts opts = {resource, ARRAY_SIZE(resource), 0};
	struct snapshot *snapshot = snapshot_named("python3", "web-1");
	struct request request;

	(void)state;
	request_make(snapshot, &opts, &request);
	assert_string_equal(attribute(&request, "service.name"), "shop");
	assert_string_equal(attribute(&request, "k8s.pod.name"), "shop-1");
	assert_string_equal(attribute(&request, "process.runtime.name"), "x");
	assert_string_equal(attribute(&request, "container.name"), "web-1");
	assert_string_equal(attribute(&request, "host.name"), "\\xff");
	assert_null(attribute(&request, "empty"));
	request_free(&request);
	snapshot_free(snapshot);
}

/* The time that a profile covers ends with the snapshot, and begins at 0 at the earliest. */
static void test_time(void **state)
{
	static const struct {
		uint64_t taken, duration, begin, covered;
	} cases[] = {
		{1000000, 0, 1000000, 0},
		{1000000, 1000, 999000, 1000},
		{1000000, UINT64_MAX, 0, 1000000},
		{UINT64_MAX, 1000, 0, 0},
	};
	struct snapshot *snapshot = snapshot_named("python3", "");

	(void)state;
	for (size_t i = 0; i < ARRAY_SIZE(cases); i++) {
		const struct otlp_opts opts = {.duration_ns = cases[i].duration};
		struct request request;

		snapshot->meta.taken_realtime_ns = cases[i].taken;
		request_make(snapshot, &opts, &request);
		assert_int_equal(request.profile->time_unix_nano, cases[i].begin);
		assert_int_equal(request.profile->duration_nano, cases[i].covered);
		request_free(&request);
	}
	snapshot_free(snapshot);
}

/* Many callers of one line: the rounded samples add up to the rounded sum of the line. */
static void test_rounding(void **state)
{
	const struct statistics_opts how = {.by = GROUP_LINENO};
	struct statistics statistics;
	struct builder builder;
	struct request request;
	int64_t size = 0;

	(void)state;
	assert_int_equal(builder_begin(&builder), 0);
	builder.snapshot->meta.sample_bytes = 100;
	for (uint32_t i = 1; i <= 99; i++)
		assert_int_equal(snapshot_add(&builder,
					      FRAMES({"a.py", "f", 7}, {"a.py", "caller", i}), 2, 0,
					      48, 1),
				 0);
	struct snapshot *snapshot = builder_finish(&builder);
	assert_int_equal(statistics_compute(snapshot, &how, &statistics), 0);
	assert_int_equal(statistics.count, 1);
	request_make(snapshot, NULL, &request);
	assert_int_equal(request.profile->n_samples, 99);
	for (size_t i = 0; i < request.profile->n_samples; i++)
		size += request.profile->samples[i]->values[0];
	assert_int_equal(size, statistics.entries[0].size);
	assert_int_not_equal(size, 99 * request.profile->samples[0]->values[0]);
	request_free(&request);
	statistics_free(&statistics);
	snapshot_free(snapshot);
}

/* A buffer may hold something already, which stays, whatever happens. */
static void test_overflow(void **state)
{
	struct snapshot *snapshot = snapshot_named("python3", "");
	struct buffer out = {0};

	(void)state;
	snapshot->meta.sample_bytes = 1ull << 62; /* the two blocks stand for 2^63 bytes */
	assert_int_equal(buffer_append(&out, "before", 6), 0);
	assert_int_equal(otlp_write(snapshot, NULL, &out), -EOVERFLOW);
	assert_int_equal(out.size, 6);
	snapshot->meta.sample_bytes = 1ull << 60;
	assert_int_equal(otlp_write(snapshot, NULL, &out), 0);
	assert_memory_equal(out.data, "before", 6);
	buffer_free(&out);
	snapshot_free(snapshot);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_service),  cmocka_unit_test(test_attributes),
		cmocka_unit_test(test_time),     cmocka_unit_test(test_rounding),
		cmocka_unit_test(test_overflow),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
