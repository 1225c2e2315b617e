/* SPDX-License-Identifier: Apache-2.0 */
#include "trace/estimate/ages_split.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>

#include "snapshot/ages.h"
#include "util/id_map.h"
#include "util/sorted.h"

/* Of a row, or of its blocks of one age. */
struct age_part {
	uint32_t row, age;
	double blocks, by_group[CALIBRATE_GROUPS]; /* all; by the window that stands for them */
	double seen;
};

struct split {
	const struct ages_input *ages;
	const struct snapshot_trace *rows;
	struct calibrate_result *result;
	uint8_t *groups; /* by window */
	uint32_t group_count;
	struct age_part *wholes; /* by row */
	struct age_part *parts;
	size_t part_count;
	struct id_map index; /* row and age -> part */
	struct snapshot_trace *out;
	struct calibrate_estimate *out_rows, *out_old_rows;
	size_t out_count;
};

static void blocks_add(struct age_part *part, double blocks, uint32_t group, double seen)
{
	part->blocks += blocks;
	part->by_group[group] += blocks;
	part->seen += seen;
}

static int part_add(struct split *split, uint32_t row, uint64_t age_ns, double blocks,
		    uint32_t group, double seen)
{
	uint32_t age = ages_round(age_ns, split->ages->most_ns);
	uint64_t key = (uint64_t)row << 32 | age;
	uint32_t at = id_map_find(&split->index, key);
	int err = 0;

	if (at == ID_MAP_NONE) {
		at = (uint32_t)split->part_count;
		err = id_map_put(&split->index, key, at);
		if (err)
			return err;
		split->parts[split->part_count++] = (struct age_part){.row = row, .age = age};
	}
	blocks_add(&split->parts[at], blocks, group, seen);
	blocks_add(&split->wholes[row], blocks, group, seen);
	return 0;
}

/* A sampled block is one of those that it stands for. */
static uint64_t age_of(const struct block_ages *ages, double blocks)
{
	double own = fmin(1, 1 / blocks);

	return (uint64_t)(own * (double)ages->own_ns + (1 - own) * (double)ages->others_ns);
}

static int parts_find(struct split *split)
{
	const struct ages_input *input = split->ages;
	int err = 0;

	for (size_t i = 0; !err && i < input->sampled_count; i++) {
		const struct calibrate_sampled_block *sampled_block = &input->sampled_blocks[i];
		double blocks = split->result->shares[i];

		if (blocks > 0)
			err = part_add(split, sampled_block->row, age_of(&input->ages[i], blocks),
				       blocks, split->groups[sampled_block->window],
				       !sampled_block->donor);
	}
	for (size_t i = 0; i < input->row_count; i++)
		split->wholes[i].row = split->wholes[i].blocks > 0;
	for (size_t i = 0; !err && i < input->other_count; i++) {
		const struct row_age *other = &input->others[i];

		if (!split->wholes[other->row].row && other->blocks > 0)
			err = part_add(split, other->row, other->age_ns, other->blocks,
				       (uint32_t)i % split->group_count, 0);
	}
	return err;
}

static int part_compare(const void *a, const void *b)
{
	const struct age_part *x = a, *y = b;

	return CMP(x->row, y->row) ?: CMP(x->age, y->age);
}

/* What a part is of its row, without the windows of a group. */
static double share_without(const struct age_part *part, const struct age_part *whole, uint32_t g)
{
	double rest = whole->blocks - whole->by_group[g];

	return rest > whole->blocks * 1e-9 ? (part->blocks - part->by_group[g]) / rest : 0;
}

static void part_estimate(const struct split *split, const struct age_part *part,
			  struct calibrate_estimate *out)
{
	const struct calibrate_estimate *row = &split->result->rows[part->row];
	const struct age_part *whole = &split->wholes[part->row];
	double share = part->blocks / whole->blocks;
	/* If most of the row's blocks were seen, they are no sample. */
	double unsure = sqrt(fmax(0, 1 - whole->seen / fmax(row->blocks, 1)));
	double scale = calibrate_scale(split->group_count) * unsure * row->blocks;

	out->blocks = share * row->blocks;
	for (uint32_t g = 0; g < CALIBRATE_DEVIATIONS; g++)
		out->deviations[g] = (float)(share * (double)row->deviations[g]);
	for (uint32_t g = 0; g < split->group_count; g++)
		out->deviations[g] += (float)(scale * (share_without(part, whole, g) - share));
}

static void out_fill(struct split *split)
{
	const struct age_part *part = split->parts, *end = part + split->part_count;

	for (uint32_t row = 0; row < split->result->row_count; row++) {
		size_t first = split->out_count++;

		split->out[first] = split->rows[row];
		split->out_rows[first] = split->result->rows[row];
		split->out_old_rows[first] = split->result->old_rows[row];
		for (size_t at = first; part < end && part->row == row; part++, at++) {
			split->out[at] = split->rows[row];
			split->out[at].age = part->age;
			part_estimate(split, part, &split->out_rows[at]);
			split->out_count = at + 1;
		}
	}
}

static int split_run(struct split *split)
{
	int err = parts_find(split);

	if (err)
		return err;
	qsort(split->parts, split->part_count, sizeof(*split->parts), part_compare);
	out_fill(split);
	return 0;
}

static int split_begin(struct split *split)
{
	const struct ages_input *input = split->ages;
	size_t parts = input->sampled_count + input->other_count + 1;
	size_t rows = split->result->row_count + parts;

	split->groups = calloc(input->window_count + 1, sizeof(*split->groups));
	split->wholes = calloc(input->row_count + 1, sizeof(*split->wholes));
	split->parts = calloc(parts, sizeof(*split->parts));
	split->out = calloc(rows, sizeof(*split->out));
	split->out_rows = calloc(rows, sizeof(*split->out_rows));
	split->out_old_rows = calloc(rows, sizeof(*split->out_old_rows));
	if (!split->groups || !split->wholes || !split->parts || !split->out || !split->out_rows ||
	    !split->out_old_rows)
		return -ENOMEM;
	split->group_count = calibrate_groups(input->window_count, split->groups);
	return 0;
}

int ages_split(const struct ages_input *ages, const struct snapshot_trace *rows,
	       struct snapshot_trace **out, struct calibrate_result *result)
{
	struct split split = {.ages = ages, .rows = rows, .result = result};
	int err = split_begin(&split) ?: split_run(&split);

	id_map_free(&split.index);
	free(split.groups);
	free(split.wholes);
	free(split.parts);
	if (err) {
		free(split.out);
		free(split.out_rows);
		free(split.out_old_rows);
		return err;
	}
	free(result->rows);
	free(result->old_rows);
	result->rows = split.out_rows;
	result->old_rows = split.out_old_rows;
	result->row_count = split.out_count;
	*out = split.out;
	return 0;
}
