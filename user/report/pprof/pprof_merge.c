/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Functions, locations, mappings and samples are each a sequence of numbers, the strings and ids in
 * them already those of the result. Equal sequences end in the same node of one tree, which has the
 * number of what it stands for.
 */
#include "report/pprof/pprof_merge.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "report/pprof/pprof.h"
#include "report/pprof/pprof_format.h"
#include "report/pprof/profile.pb-c.h"
#include "util/array.h"
#include "util/clock.h"
#include "util/error.h"
#include "util/gzip.h"
#include "util/id_map.h"
#include "util/infile.h"
#include "util/strings.h"

typedef Perftools__Profiles__Profile Profile;
typedef Perftools__Profiles__ValueType ValueType;
typedef Perftools__Profiles__Sample Sample;
typedef Perftools__Profiles__Label Label;
typedef Perftools__Profiles__Mapping Mapping;
typedef Perftools__Profiles__Location Location;
typedef Perftools__Profiles__Line Line;
typedef Perftools__Profiles__Function Function;

/* The roots of the tree. */
enum { OF_FUNCTIONS, OF_LOCATIONS, OF_MAPPINGS, OF_SAMPLES, ROOTS };

/* Copies of messages, with the numbers of the result. Their arrays are theirs. */
struct merged_sample {
	uint64_t *locations;
	Label *labels;
	size_t location_count, label_count;
	int64_t values[MERGE_TYPES];
};

struct pprof_merge {
	struct strings *strings; /* the first is "", as in a profile */
	struct id_map steps;     /* node << 32 | number -> node */
	struct id_map ends;      /* node -> number of what ends there */
	uint32_t node_count;
	ValueType types[MERGE_TYPES];
	size_t type_count;
	Function *functions;
	size_t function_count, function_capacity;
	Mapping *mappings;
	size_t mapping_count, mapping_capacity;
	Location *locations;
	size_t location_count, location_capacity;
	struct merged_sample *samples;
	size_t sample_count, sample_capacity;
	int64_t time_ns, duration_ns;
	ValueType period_type; /* of the last profile added; 0: none */
	int64_t period;        /* 0: the profiles differ, or do not say */
	bool has_period;       /* of one at least */
	uint64_t valued;       /* types of which a sample of a profile has a value */
};

/* What the numbers of one profile are in the result. */
struct merge_from {
	const Profile *profile;
	uint32_t *strings;
	struct id_map functions, mappings, locations; /* id -> index in the result */
	size_t types[MERGE_TYPES];
};

int pprof_merge_new(struct pprof_merge **out)
{
	struct pprof_merge *merge = calloc(1, sizeof(*merge));
	int err = merge ? strings_new(&merge->strings) : -ENOMEM;

	if (err) {
		free(merge);
		return err;
	}
	merge->steps.seed = merge->ends.seed = clock_ns(CLOCK_MONOTONIC);
	merge->node_count = ROOTS;
	perftools__profiles__value_type__init(&merge->period_type);
	*out = merge;
	return 0;
}

void pprof_merge_free(struct pprof_merge *merge)
{
	if (!merge)
		return;
	for (size_t i = 0; i < merge->location_count; i++) {
		if (merge->locations[i].line)
			free(merge->locations[i].line[0]);
		free(merge->locations[i].line);
	}
	for (size_t i = 0; i < merge->sample_count; i++) {
		free(merge->samples[i].locations);
		free(merge->samples[i].labels);
	}
	strings_free(merge->strings);
	id_map_free(&merge->steps);
	id_map_free(&merge->ends);
	free(merge->functions);
	free(merge->mappings);
	free(merge->locations);
	free(merge->samples);
	free(merge);
}

static int malformed(void)
{
	return error_set(-EBADMSG, "the profile is malformed");
}

/* --- the tree --------------------------------------------------------------------------------- */

static int half_step(struct pprof_merge *merge, uint32_t *node, uint32_t number)
{
	uint64_t key = (uint64_t)*node << 32 | number;
	uint32_t next = id_map_find(&merge->steps, key);

	if (next == ID_MAP_NONE) {
		if (merge->node_count == ID_MAP_NONE)
			return error_set(-EFBIG, "the profile is too large");
		next = merge->node_count++;
		int err = id_map_put(&merge->steps, key, next);
		if (err)
			return err;
	}
	*node = next;
	return 0;
}

static int step(struct pprof_merge *merge, uint32_t *node, uint64_t number)
{
	return half_step(merge, node, (uint32_t)(number >> 32))
		       ?: half_step(merge, node, (uint32_t)number);
}

static int steps(struct pprof_merge *merge, uint32_t *node, const uint64_t *numbers, size_t count)
{
	int err = 0;

	for (size_t i = 0; !err && i < count; i++)
		err = step(merge, node, numbers[i]);
	return err;
}

/* --- one profile ------------------------------------------------------------------------------ */

static int string_of(const struct merge_from *from, int64_t index, uint64_t *out)
{
	if (index < 0 || (uint64_t)index >= from->profile->n_string_table)
		return malformed();
	*out = from->strings[index];
	return 0;
}

static int id_of(const struct id_map *ids, uint64_t id, uint64_t *out)
{
	uint32_t index = id_map_find(ids, id);

	if (index == ID_MAP_NONE)
		return malformed();
	*out = index;
	return 0;
}

static int strings_take(struct pprof_merge *merge, struct merge_from *from)
{
	int err = 0;

	from->strings = calloc(from->profile->n_string_table + 1, sizeof(*from->strings));
	if (!from->strings)
		return -ENOMEM;
	for (size_t i = 0; !err && i < from->profile->n_string_table; i++) {
		const char *text = from->profile->string_table[i];

		err = strings_intern(merge->strings, text, strlen(text), &from->strings[i]);
	}
	return err;
}

static int types_take(struct pprof_merge *merge, struct merge_from *from)
{
	if (from->profile->n_sample_type > MERGE_TYPES)
		return malformed();
	for (size_t i = 0; i < from->profile->n_sample_type; i++) {
		uint64_t type = 0, unit = 0;
		size_t at = 0;
		int err = string_of(from, from->profile->sample_type[i]->type, &type)
				  ?: string_of(from, from->profile->sample_type[i]->unit, &unit);

		if (err)
			return err;
		while (at < merge->type_count && (merge->types[at].type != (int64_t)type ||
						  merge->types[at].unit != (int64_t)unit))
			at++;
		if (at == MERGE_TYPES)
			return error_set(-EFBIG, "the profiles have too many types of values");
		if (at == merge->type_count) {
			perftools__profiles__value_type__init(&merge->types[at]);
			merge->types[at].type = (int64_t)type;
			merge->types[at].unit = (int64_t)unit;
			merge->type_count++;
		}
		from->types[i] = at;
	}
	return 0;
}

/* Period and its type are those of all profiles, if they are equal. */
static int period_take(struct pprof_merge *merge, struct merge_from *from)
{
	const ValueType *each = from->profile->period_type;
	uint64_t type = 0, unit = 0;
	int err =
		each ? string_of(from, each->type, &type) ?: string_of(from, each->unit, &unit) : 0;
	bool first = !merge->has_period, same = merge->period == from->profile->period &&
						merge->period_type.type == (int64_t)type &&
						merge->period_type.unit == (int64_t)unit;

	if (err)
		return err;
	merge->period = first || same ? from->profile->period : 0;
	merge->period_type.type = (int64_t)type;
	merge->period_type.unit = (int64_t)unit;
	merge->has_period = true;
	return 0;
}

static int function_take(struct pprof_merge *merge, struct merge_from *from, const Function *each)
{
	uint64_t key[] = {0, 0, 0, (uint64_t)each->start_line};
	uint32_t node = OF_FUNCTIONS, index;
	int err = string_of(from, each->name, &key[0])
			  ?: string_of(from, each->system_name, &key[1])
			  ?: string_of(from, each->filename, &key[2])
			  ?: steps(merge, &node, key, ARRAY_SIZE(key));

	if (err)
		return err;
	index = id_map_find(&merge->ends, node);
	if (index == ID_MAP_NONE) {
		index = (uint32_t)merge->function_count;
		err = ARRAY_GROW(merge->functions, merge->function_capacity, merge->function_count)
			      ?: id_map_put(&merge->ends, node, index);
		if (err)
			return err;
		Function *new = &merge->functions[merge->function_count++];

		perftools__profiles__function__init(new);
		new->id = index + 1;
		new->name = (int64_t)key[0];
		new->system_name = (int64_t)key[1];
		new->filename = (int64_t)key[2];
		new->start_line = each->start_line;
	}
	return id_map_put(&from->functions, each->id, index);
}

static int mapping_take(struct pprof_merge *merge, struct merge_from *from, const Mapping *each)
{
	uint64_t key[] = {each->memory_start, each->memory_limit, each->file_offset, 0, 0};
	uint32_t node = OF_MAPPINGS, index;
	int err = string_of(from, each->filename, &key[3])
			  ?: string_of(from, each->build_id, &key[4])
			  ?: steps(merge, &node, key, ARRAY_SIZE(key));

	if (err)
		return err;
	index = id_map_find(&merge->ends, node);
	if (index == ID_MAP_NONE) {
		index = (uint32_t)merge->mapping_count;
		err = ARRAY_GROW(merge->mappings, merge->mapping_capacity, merge->mapping_count)
			      ?: id_map_put(&merge->ends, node, index);
		if (err)
			return err;
		Mapping *new = &merge->mappings[merge->mapping_count++];

		*new = *each;
		new->base.n_unknown_fields = 0;
		new->id = index + 1;
		new->filename = (int64_t)key[3];
		new->build_id = (int64_t)key[4];
	}
	/* A reader may rely on what holds for all of its locations. */
	Mapping *merged = &merge->mappings[index];

	merged->has_functions &= each->has_functions;
	merged->has_filenames &= each->has_filenames;
	merged->has_line_numbers &= each->has_line_numbers;
	merged->has_inline_frames &= each->has_inline_frames;
	return id_map_put(&from->mappings, each->id, index);
}

/* Adds the location that each is there, with the ids of its lines' functions. 0, -ENOMEM. */
static int location_add(struct pprof_merge *merge, const Location *each, const uint64_t *functions,
			uint64_t mapping_id)
{
	Line **lines = calloc(each->n_line + 1, sizeof(*lines));
	Line *items = calloc(each->n_line + 1, sizeof(*items));
	int err = lines && items ? ARRAY_GROW(merge->locations, merge->location_capacity,
					      merge->location_count)
				 : -ENOMEM;

	if (err) {
		free(lines);
		free(items);
		return err;
	}
	for (size_t i = 0; i < each->n_line; i++) {
		items[i] = *each->line[i];
		items[i].base.n_unknown_fields = 0;
		items[i].function_id = functions[i];
		lines[i] = &items[i];
	}
	lines[0] = items; /* also without any: it is freed there */
	Location *new = &merge->locations[merge->location_count++];

	*new = *each;
	new->base.n_unknown_fields = 0;
	new->id = merge->location_count;
	new->mapping_id = mapping_id;
	new->line = lines;
	return 0;
}

static int location_take(struct pprof_merge *merge, struct merge_from *from, const Location *each)
{
	uint64_t *functions = calloc(each->n_line + 1, sizeof(*functions)), mapping = 0;
	uint32_t node = OF_LOCATIONS, index;
	int err = functions ? 0 : -ENOMEM;

	if (!err && each->mapping_id && !(err = id_of(&from->mappings, each->mapping_id, &mapping)))
		mapping++;
	err = err ?: step(merge, &node, mapping) ?: step(merge, &node, each->address);
	for (size_t i = 0; !err && i < each->n_line; i++) {
		err = id_of(&from->functions, each->line[i]->function_id, &functions[i])
			      ?: step(merge, &node, ++functions[i])
			      ?: step(merge, &node, (uint64_t)each->line[i]->line);
	}
	index = id_map_find(&merge->ends, node);
	if (!err && index == ID_MAP_NONE) {
		index = (uint32_t)merge->location_count;
		err = location_add(merge, each, functions, mapping)
			      ?: id_map_put(&merge->ends, node, index);
	}
	free(functions);
	return err ?: id_map_put(&from->locations, each->id, index);
}

/*
 * Labels that are figures of one snapshot: a mean size, the errors of an estimate. They do not add
 * up, and would keep equal stacks of two snapshots apart.
 */
static bool label_is_left_out(const struct merge_from *from, const Label *label)
{
	static const char *const names[] = {"bytes", "standard_error", PPROF_DEVIATIONS};
	const char *key = from->profile->string_table[label->key];

	for (size_t i = 0; i < ARRAY_SIZE(names); i++)
		if (!strcmp(key, names[i]))
			return true;
	return false;
}

static int sample_label_read(struct pprof_merge *merge, const struct merge_from *from,
			     const Label *each, struct merged_sample *out, uint32_t *node)
{
	uint64_t key[] = {0, 0, (uint64_t)each->num, 0};
	Label *label = &out->labels[out->label_count];
	int err = string_of(from, each->key, &key[0]) ?: string_of(from, each->str, &key[1])
		  ?: string_of(from, each->num_unit, &key[3]);

	if (err || label_is_left_out(from, each))
		return err;
	*label = *each;
	label->base.n_unknown_fields = 0;
	label->key = (int64_t)key[0];
	label->str = (int64_t)key[1];
	label->num_unit = (int64_t)key[3];
	out->label_count++;
	return steps(merge, node, key, ARRAY_SIZE(key));
}

/* The locations and labels of a sample as those of the result, and its node. */
static int sample_read(struct pprof_merge *merge, const struct merge_from *from, const Sample *each,
		       struct merged_sample *out, uint32_t *node)
{
	int err = step(merge, node, each->n_location_id);

	out->location_count = each->n_location_id;
	for (size_t i = 0; !err && i < each->n_location_id; i++)
		err = id_of(&from->locations, each->location_id[i], &out->locations[i])
			      ?: step(merge, node, ++out->locations[i]);
	for (size_t i = 0; !err && i < each->n_label; i++)
		err = sample_label_read(merge, from, each->label[i], out, node);
	return err;
}

/* The sample that ends there: takes the arrays of the one that was read if it is new. */
static int sample_get(struct pprof_merge *merge, struct merged_sample *read, uint32_t node,
		      struct merged_sample **out)
{
	uint32_t index = id_map_find(&merge->ends, node);

	if (index == ID_MAP_NONE) {
		index = (uint32_t)merge->sample_count;
		int err = ARRAY_GROW(merge->samples, merge->sample_capacity, merge->sample_count)
				  ?: id_map_put(&merge->ends, node, index);
		if (err)
			return err;
		merge->samples[merge->sample_count++] = *read;
		*read = (struct merged_sample){0};
	}
	*out = &merge->samples[index];
	return 0;
}

static int sample_take(struct pprof_merge *merge, const struct merge_from *from, const Sample *each,
		       int factor)
{
	struct merged_sample read = {
		.locations = calloc(each->n_location_id + 1, sizeof(*read.locations)),
		.labels = calloc(each->n_label + 1, sizeof(*read.labels))};
	struct merged_sample *sample;
	uint32_t node = OF_SAMPLES;
	int err = each->n_value != from->profile->n_sample_type ? malformed()
		  : !read.locations || !read.labels             ? -ENOMEM
								: 0;

	err = err ?: sample_read(merge, from, each, &read, &node)
			     ?: sample_get(merge, &read, node, &sample);
	for (size_t i = 0; !err && i < each->n_value; i++) {
		int64_t *value = &sample->values[from->types[i]];

		if (each->value[i])
			merge->valued |= 1ull << from->types[i];
		if (__builtin_mul_overflow(each->value[i], (int64_t)factor, &each->value[i]) ||
		    __builtin_add_overflow(*value, each->value[i], value))
			err = malformed();
	}
	free(read.locations);
	free(read.labels);
	return err;
}

static int profile_take(struct pprof_merge *merge, const Profile *profile, int factor)
{
	struct merge_from from = {.profile = profile};
	int err = strings_take(merge, &from)
			  ?: types_take(merge, &from)
			  ?: period_take(merge, &from);

	from.functions.seed = from.mappings.seed = from.locations.seed = merge->steps.seed;
	for (size_t i = 0; !err && i < profile->n_function; i++)
		err = function_take(merge, &from, profile->function[i]);
	for (size_t i = 0; !err && i < profile->n_mapping; i++)
		err = mapping_take(merge, &from, profile->mapping[i]);
	for (size_t i = 0; !err && i < profile->n_location; i++)
		err = location_take(merge, &from, profile->location[i]);
	for (size_t i = 0; !err && i < profile->n_sample; i++)
		err = sample_take(merge, &from, profile->sample[i], factor);
	if (factor > 0) {
		merge->time_ns = profile->time_nanos;
		merge->duration_ns = profile->duration_nanos;
	}
	free(from.strings);
	id_map_free(&from.functions);
	id_map_free(&from.mappings);
	id_map_free(&from.locations);
	return err;
}

/* Unpacks a profile, which perftools__profiles__profile__free_unpacked() frees. */
static int profile_read(const struct buffer *packed, Profile **out)
{
	struct infile file = infile_memory(packed->data, packed->size);
	struct buffer unpacked = {0};
	int err = pprof_unpack(&file, &unpacked);

	if (!err)
		*out = perftools__profiles__profile__unpack(NULL, unpacked.size, unpacked.data);
	buffer_free(&unpacked);
	return err ?: *out ? 0 : malformed();
}

int pprof_merge_add(struct pprof_merge *merge, const struct buffer *packed, int factor)
{
	Profile *profile;
	int err = profile_read(packed, &profile);

	if (err)
		return err;
	err = profile_take(merge, profile, factor);
	perftools__profiles__profile__free_unpacked(profile, NULL);
	return err;
}

/* --- the result ------------------------------------------------------------------------------- */

static int profile_pack(const Profile *profile, struct buffer *out)
{
	_cleanup_free_ unsigned char *plain =
		malloc(perftools__profiles__profile__get_packed_size(profile) + 1);

	return plain ? gzip_append(plain, perftools__profiles__profile__pack(profile, plain), out)
		     : -ENOMEM;
}

/*
 * The figures of what is alive come first, and are always known. Profiles of windows have a place
 * for what was allocated before any of it is known, so that two of them can be compared.
 */
static int default_type_find(const Profile *profile, uint64_t valued, const char *type,
			     int64_t *out)
{
	for (size_t i = 0; i < profile->n_sample_type; i++)
		if (!strcmp(profile->string_table[profile->sample_type[i]->type], type)) {
			if (i >= PPROF_VALUES && !(valued >> i & 1))
				return error_set(-ENOENT, "%s is not known yet", type);
			*out = profile->sample_type[i]->type;
			return 0;
		}
	return error_set(-ENOENT, "%s is not known in this mode of tracing", type);
}

static uint64_t valued_of(const Profile *profile)
{
	uint64_t valued = 0;

	for (size_t i = 0; i < profile->n_sample; i++)
		for (size_t j = 0; j < profile->sample[i]->n_value && j < MERGE_TYPES; j++)
			if (profile->sample[i]->value[j])
				valued |= 1ull << j;
	return valued;
}

int pprof_show_first(const struct buffer *packed, const char *type, struct buffer *out)
{
	Profile *profile;
	int err = profile_read(packed, &profile);

	if (err)
		return err;
	if (profile->n_sample_type > MERGE_TYPES)
		err = malformed();
	for (size_t i = 0; !err && i < profile->n_sample_type; i++)
		if (profile->sample_type[i]->type < 0 ||
		    (size_t)profile->sample_type[i]->type >= profile->n_string_table)
			err = malformed();
	err = err ?: default_type_find(profile, valued_of(profile), type,
				       &profile->default_sample_type)
			     ?: profile_pack(profile, out);
	perftools__profiles__profile__free_unpacked(profile, NULL);
	return err;
}

/* Arrays of pointers to the messages, as the packer wants them. */
struct merge_arrays {
	ValueType *types[MERGE_TYPES];
	Function **functions;
	Mapping **mappings;
	Location **locations;
	Sample **samples, *sample_items;
	Label **labels;
	char **strings;
};

static bool sample_is_nothing(const struct pprof_merge *merge, const struct merged_sample *sample)
{
	for (size_t i = 0; i < merge->type_count; i++)
		if (sample->values[i])
			return false;
	return true;
}

static size_t samples_fill(struct pprof_merge *merge, struct merge_arrays *arrays)
{
	size_t count = 0, labels = 0;

	for (size_t i = 0; i < merge->sample_count; i++) {
		struct merged_sample *from = &merge->samples[i];
		Sample *sample = &arrays->sample_items[count];

		if (sample_is_nothing(merge, from))
			continue;
		perftools__profiles__sample__init(sample);
		sample->n_location_id = from->location_count;
		sample->location_id = from->locations;
		sample->n_value = merge->type_count;
		sample->value = from->values;
		sample->n_label = from->label_count;
		sample->label = &arrays->labels[labels];
		for (size_t j = 0; j < from->label_count; j++)
			arrays->labels[labels++] = &from->labels[j];
		arrays->samples[count++] = sample;
	}
	return count;
}

static int arrays_make(const struct pprof_merge *merge, struct merge_arrays *arrays)
{
	size_t labels = 0, strings = strings_count(merge->strings);

	for (size_t i = 0; i < merge->sample_count; i++)
		labels += merge->samples[i].label_count;
	arrays->functions = calloc(merge->function_count + 1, sizeof(*arrays->functions));
	arrays->mappings = calloc(merge->mapping_count + 1, sizeof(*arrays->mappings));
	arrays->locations = calloc(merge->location_count + 1, sizeof(*arrays->locations));
	arrays->samples = calloc(merge->sample_count + 1, sizeof(*arrays->samples));
	arrays->sample_items = calloc(merge->sample_count + 1, sizeof(*arrays->sample_items));
	arrays->labels = calloc(labels + 1, sizeof(*arrays->labels));
	arrays->strings = calloc(strings + 1, sizeof(*arrays->strings));
	if (!arrays->functions || !arrays->mappings || !arrays->locations || !arrays->samples ||
	    !arrays->sample_items || !arrays->labels || !arrays->strings)
		return -ENOMEM;
	for (size_t i = 0; i < merge->function_count; i++)
		arrays->functions[i] = &merge->functions[i];
	for (size_t i = 0; i < merge->mapping_count; i++)
		arrays->mappings[i] = &merge->mappings[i];
	for (size_t i = 0; i < merge->location_count; i++)
		arrays->locations[i] = &merge->locations[i];
	for (size_t i = 0; i < strings; i++)
		arrays->strings[i] = (char *)strings_get(merge->strings, (uint32_t)i);
	return 0;
}

int pprof_merge_write(struct pprof_merge *merge, const char *type, uint64_t duration_ns,
		      struct buffer *out)
{
	struct merge_arrays arrays = {0};
	Profile profile = PERFTOOLS__PROFILES__PROFILE__INIT;
	int err = arrays_make(merge, &arrays);

	for (size_t i = 0; i < merge->type_count; i++)
		arrays.types[i] = &merge->types[i];
	if (!err) {
		profile.n_sample_type = merge->type_count;
		profile.sample_type = arrays.types;
		profile.n_function = merge->function_count;
		profile.function = arrays.functions;
		profile.n_mapping = merge->mapping_count;
		profile.mapping = arrays.mappings;
		profile.n_location = merge->location_count;
		profile.location = arrays.locations;
		profile.n_sample = samples_fill(merge, &arrays);
		profile.sample = arrays.samples;
		profile.n_string_table = strings_count(merge->strings);
		profile.string_table = arrays.strings;
		profile.period_type = &merge->period_type;
		profile.period = merge->period;
		profile.time_nanos = merge->time_ns;
		profile.duration_nanos = duration_ns ? (int64_t)duration_ns : merge->duration_ns;
		err = default_type_find(&profile, merge->valued, type, &profile.default_sample_type)
			      ?: profile_pack(&profile, out);
	}
	free(arrays.functions);
	free(arrays.mappings);
	free(arrays.locations);
	free(arrays.samples);
	free(arrays.sample_items);
	free(arrays.labels);
	free(arrays.strings);
	return err;
}
