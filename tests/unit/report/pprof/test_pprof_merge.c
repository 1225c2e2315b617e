/* SPDX-License-Identifier: Apache-2.0 */
/* Sums and differences of profiles that are packed here, as the merge packs its result. */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <zlib.h>

#include <cmocka.h>

#include "report/pprof/pprof.h"
#include "report/pprof/pprof_merge.h"
#include "report/pprof/profile.pb-c.h"
#include "util/infile.h"

typedef Perftools__Profiles__Profile Profile;

static void gzip(const Profile *profile, struct buffer *out)
{
	size_t bytes = perftools__profiles__profile__get_packed_size(profile);
	unsigned char *plain = malloc(bytes);
	z_stream zlib = {0};

	perftools__profiles__profile__pack(profile, plain);
	assert_int_equal(deflateInit2(&zlib, 1, Z_DEFLATED, 16 + MAX_WBITS, 8, 0), Z_OK);
	assert_int_equal(buffer_reserve(out, deflateBound(&zlib, bytes)), 0);
	zlib.next_in = plain;
	zlib.avail_in = (uInt)bytes;
	zlib.next_out = out->data;
	zlib.avail_out = (uInt)out->capacity;
	assert_int_equal(deflate(&zlib, Z_FINISH), Z_STREAM_END);
	out->size = zlib.total_out;
	deflateEnd(&zlib);
	free(plain);
}

/*
 * A profile of one type and two stacks: `leaf` called by `main`, and `main` alone, with the size of
 * a block as a label. order: the strings are in another order, and ids are others.
 */
static struct buffer profile_make(const char *type, int64_t of_leaf, int64_t of_main, int64_t size,
				  int order)
{
	char *strings[] = {"", "", "", "", "", "", ""};
	int64_t at[] = {1, 2, 3, 4, 5, 6};
	const char *texts[] = {"bytes", type, "app.py", "leaf", "main", "pid"};
	Perftools__Profiles__ValueType value = PERFTOOLS__PROFILES__VALUE_TYPE__INIT;
	Perftools__Profiles__Function functions[2] = {PERFTOOLS__PROFILES__FUNCTION__INIT,
						      PERFTOOLS__PROFILES__FUNCTION__INIT};
	Perftools__Profiles__Line lines[2] = {PERFTOOLS__PROFILES__LINE__INIT,
					      PERFTOOLS__PROFILES__LINE__INIT};
	Perftools__Profiles__Location locations[2] = {PERFTOOLS__PROFILES__LOCATION__INIT,
						      PERFTOOLS__PROFILES__LOCATION__INIT};
	Perftools__Profiles__Sample samples[2] = {PERFTOOLS__PROFILES__SAMPLE__INIT,
						  PERFTOOLS__PROFILES__SAMPLE__INIT};
	Perftools__Profiles__Label labels[2] = {PERFTOOLS__PROFILES__LABEL__INIT,
						PERFTOOLS__PROFILES__LABEL__INIT};
	Perftools__Profiles__Mapping mapping = PERFTOOLS__PROFILES__MAPPING__INIT;
	Profile profile = PERFTOOLS__PROFILES__PROFILE__INIT;
	uint64_t ids[] = {order ? 70 : 1, order ? 60 : 2}, stack[] = {ids[0], ids[1]};
	struct buffer out = {0};

	for (int i = 0; i < 6; i++) {
		at[i] = order ? 6 - i : i + 1;
		strings[at[i]] = (char *)texts[i];
	}
	value.unit = at[0];
	value.type = at[1];
	mapping.id = order ? 9 : 1;
	mapping.filename = at[2];
	for (int i = 0; i < 2; i++) {
		functions[i].id = ids[i];
		functions[i].name = at[3 + i];
		functions[i].filename = at[2];
		lines[i].function_id = ids[i];
		lines[i].line = 10 + i;
		locations[i].id = ids[i];
		locations[i].mapping_id = mapping.id;
		locations[i].n_line = 1;
	}
	labels[0].key = at[0];
	labels[0].num = size;
	labels[1].key = at[5];
	labels[1].num = 7;
	locations[0].line = (Perftools__Profiles__Line *[]){&lines[0]};
	locations[1].line = (Perftools__Profiles__Line *[]){&lines[1]};
	samples[0].n_location_id = 2;
	samples[0].location_id = stack;
	samples[0].n_value = samples[1].n_value = 1;
	samples[0].value = &of_leaf;
	samples[1].n_location_id = 1;
	samples[1].location_id = &stack[1];
	samples[1].value = &of_main;
	for (int i = 0; i < 2; i++)
		samples[i].n_label = 2;
	samples[0].label = samples[1].label =
		(Perftools__Profiles__Label *[]){&labels[0], &labels[1]};
	profile.n_string_table = 7;
	profile.string_table = strings;
	profile.n_sample_type = 1;
	profile.sample_type = (Perftools__Profiles__ValueType *[]){&value};
	profile.n_function = profile.n_location = profile.n_sample = 2;
	profile.function = (Perftools__Profiles__Function *[]){&functions[0], &functions[1]};
	profile.location = (Perftools__Profiles__Location *[]){&locations[0], &locations[1]};
	profile.n_mapping = 1;
	profile.mapping = (Perftools__Profiles__Mapping *[]){&mapping};
	profile.sample = (Perftools__Profiles__Sample *[]){&samples[0], &samples[1]};
	profile.time_nanos = 5;
	gzip(&profile, &out);
	return out;
}

static Profile *unpack(const struct buffer *gzip)
{
	struct infile file = infile_memory(gzip->data, gzip->size);
	struct buffer plain = {0};

	assert_int_equal(pprof_unpack(&file, &plain), 0);
	Profile *profile = perftools__profiles__profile__unpack(NULL, plain.size, plain.data);
	assert_non_null(profile);
	buffer_free(&plain);
	return profile;
}

static const char *leaf_name(const Profile *profile, const Perftools__Profiles__Sample *sample)
{
	const Perftools__Profiles__Location *at = profile->location[sample->location_id[0] - 1];

	assert_int_equal(at->id, sample->location_id[0]);
	return profile->string_table[profile->function[at->line[0]->function_id - 1]->name];
}

static void test_difference(void **state)
{
	struct buffer old = profile_make("inuse_space", 100, 30, 16, 0), out = {0};
	struct buffer now = profile_make("inuse_space", 160, 30, 24, 1);
	struct pprof_merge *merge;

	(void)state;
	assert_int_equal(pprof_merge_new(&merge), 0);
	assert_int_equal(pprof_merge_add(merge, &now, 1), 0);
	assert_int_equal(pprof_merge_add(merge, &old, -1), 0);
	assert_int_equal(pprof_merge_write(merge, "inuse_space", 3000, &out), 0);
	Profile *profile = unpack(&out);
	/* main's is nothing, in spite of other ids, strings and sizes of blocks */
	assert_int_equal(profile->n_sample, 1);
	assert_int_equal(profile->n_function, 2);
	assert_int_equal(profile->n_mapping, 1);
	assert_int_equal(profile->sample[0]->value[0], 60);
	assert_string_equal(leaf_name(profile, profile->sample[0]), "leaf");
	assert_int_equal(profile->sample[0]->n_label, 1);
	assert_int_equal(profile->sample[0]->label[0]->num, 7);
	assert_int_equal(profile->duration_nanos, 3000);
	perftools__profiles__profile__free_unpacked(profile, NULL);
	pprof_merge_free(merge);
	buffer_free(&old);
	buffer_free(&now);
	buffer_free(&out);
}

/*
 * A mapping keeps its build ID, and says that it has something only if both profiles have it. The
 * period is that of both, or none.
 */
static void test_mappings(void **state)
{
	const int64_t periods[] = {4096, 4096, 8192};
	struct pprof_merge *merge;

	(void)state;
	assert_int_equal(pprof_merge_new(&merge), 0);
	for (size_t i = 0; i < 3; i++) {
		struct buffer made = profile_make("inuse_space", 100, 30, 16, i & 1), out = {0};
		Perftools__Profiles__ValueType type = PERFTOOLS__PROFILES__VALUE_TYPE__INIT;
		Profile *profile = unpack(&made);
		Perftools__Profiles__Mapping *mapping = profile->mapping[0];

		mapping->build_id = mapping->filename;
		mapping->has_functions = 1;
		mapping->has_line_numbers = i != 1;
		type.type = profile->sample_type[0]->type;
		profile->period_type = &type;
		profile->period = periods[i];
		made.size = 0;
		gzip(profile, &made);
		profile->period_type = NULL;
		perftools__profiles__profile__free_unpacked(profile, NULL);
		assert_int_equal(pprof_merge_add(merge, &made, 1), 0);
		assert_int_equal(pprof_merge_write(merge, "inuse_space", 0, &out), 0);
		profile = unpack(&out);
		mapping = profile->mapping[0];
		assert_int_equal(profile->n_mapping, 1);
		assert_string_equal(profile->string_table[mapping->build_id], "app.py");
		assert_int_equal(mapping->has_functions, 1);
		assert_int_equal(mapping->has_line_numbers, i == 0);
		assert_int_equal(profile->period, i == 2 ? 0 : 4096);
		assert_string_equal(profile->string_table[profile->period_type->type],
				    "inuse_space");
		perftools__profiles__profile__free_unpacked(profile, NULL);
		buffer_free(&made);
		buffer_free(&out);
	}
	pprof_merge_free(merge);
}

static void test_sum_of_types(void **state)
{
	struct buffer one = profile_make("inuse_space", 100, 30, 16, 0), out = {0};
	struct buffer two = profile_make("alloc_space", 5, 6, 16, 1);
	struct pprof_merge *merge;

	(void)state;
	assert_int_equal(pprof_merge_new(&merge), 0);
	assert_int_equal(pprof_merge_add(merge, &one, 1), 0);
	assert_int_equal(pprof_merge_add(merge, &two, 1), 0);
	assert_int_equal(pprof_merge_write(merge, "freed_space", 0, &out), -ENOENT);
	assert_int_equal(pprof_merge_write(merge, "alloc_space", 0, &out), 0);
	Profile *profile = unpack(&out);
	assert_int_equal(profile->n_sample, 2);
	assert_int_equal(profile->n_sample_type, 2);
	assert_int_equal(profile->sample[0]->value[0], 100);
	assert_int_equal(profile->sample[0]->value[1], 5);
	assert_string_equal(profile->string_table[profile->default_sample_type], "alloc_space");
	perftools__profiles__profile__free_unpacked(profile, NULL);
	pprof_merge_free(merge);
	buffer_free(&one);
	buffer_free(&two);
	buffer_free(&out);
}

static void test_show_first(void **state)
{
	struct buffer one = profile_make("alloc_space", 100, 30, 16, 0), out = {0};

	(void)state;
	assert_int_equal(pprof_show_first(&one, "inuse_space", &out), -ENOENT);
	assert_int_equal(pprof_show_first(&one, "alloc_space", &out), 0);
	Profile *profile = unpack(&out);
	assert_string_equal(profile->string_table[profile->default_sample_type], "alloc_space");
	assert_int_equal(profile->sample[0]->n_label, 2);
	perftools__profiles__profile__free_unpacked(profile, NULL);
	buffer_free(&one);
	buffer_free(&out);
}

/* Each byte of the plain profile is changed in turn: an error, or a profile; never a crash. */
static void test_hostile(void **state)
{
	struct buffer one = profile_make("alloc_space", 100, 30, 16, 0), plain = {0};
	struct infile file = infile_memory(one.data, one.size);
	size_t refused = 0;

	(void)state;
	assert_int_equal(pprof_unpack(&file, &plain), 0);
	for (size_t i = 0; i < plain.size; i++) {
		unsigned char byte = plain.data[i];
		struct buffer packed = {0}, out = {0};
		struct pprof_merge *merge;

		plain.data[i] ^= 0x55;
		Profile *profile =
			perftools__profiles__profile__unpack(NULL, plain.size, plain.data);
		plain.data[i] = byte;
		if (!profile)
			continue;
		gzip(profile, &packed);
		perftools__profiles__profile__free_unpacked(profile, NULL);
		assert_int_equal(pprof_merge_new(&merge), 0);
		if (pprof_merge_add(merge, &packed, -1))
			refused++;
		else
			pprof_merge_write(merge, "alloc_space", 0, &out);
		pprof_merge_free(merge);
		buffer_free(&out);
		pprof_show_first(&packed, "alloc_space", &out);
		buffer_free(&packed);
		buffer_free(&out);
	}
	assert_true(refused > 5);
	buffer_free(&one);
	buffer_free(&plain);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_difference),   cmocka_unit_test(test_mappings),
		cmocka_unit_test(test_sum_of_types), cmocka_unit_test(test_show_first),
		cmocka_unit_test(test_hostile),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
