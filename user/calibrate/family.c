/* SPDX-License-Identifier: Apache-2.0 */
/* Which types of a family are strata of their own. */
#include "calibrate/state.h"

/* Of the blocks of a family so many may be of types that windows have hardly shown. */
#define SPARSE_SHARE 0.1
/*
 * So many windows must have shown a type. Fewer than of a cohort: types mostly have few lines, so
 * that what division gains is more than what so few windows may miss.
 */
#define ENOUGH_OF_TYPE 6

/* Is the cell of the same family and size class? Such cells are neighbours. */
static int is_sibling(const struct calibration *calibration, size_t cell, size_t other)
{
	const struct calibrate_stratum *x = stratum_at(calibration,
						       calibration->cells[cell].strata),
				       *y = stratum_at(calibration,
						       calibration->cells[other].strata);

	return x->family && x->family == y->family && x->class_bytes == y->class_bytes;
}

static int is_sparse(struct calibration *calibration, const struct cell *cell)
{
	return weights_sum(calibration, cell->sightings, cell->dead).windows < ENOUGH_OF_TYPE;
}

/* Joins those of the siblings [begin, end) of which too few windows have shown any. */
static void sparse_join(struct calibration *calibration, size_t begin, size_t end)
{
	for (size_t i = begin; i < end; i++)
		if (is_sparse(calibration, &calibration->cells[i]))
			level_set(calibration, &calibration->cells[i], LEVEL_FAMILY);
}

static double cell_blocks(const struct calibration *calibration, const struct cell *cell)
{
	double blocks = 0;

	for (size_t rank = cell->strata; rank < cell->strata_end; rank++)
		blocks += (double)stratum_at(calibration, rank)->new_blocks +
			  (double)stratum_at(calibration, rank)->old_blocks;
	return blocks;
}

/* If that is not enough for a part that matters, all of them are joined. */
static void siblings_join(struct calibration *calibration, size_t begin, size_t end)
{
	double sparse = 0, blocks = 0;

	for (size_t i = begin; i < end; i++) {
		double part = cell_blocks(calibration, &calibration->cells[i]);

		blocks += part;
		sparse += is_sparse(calibration, &calibration->cells[i]) ? part : 0;
	}
	for (size_t i = begin; i < end && sparse > SPARSE_SHARE * blocks; i++)
		level_set(calibration, &calibration->cells[i], LEVEL_FAMILY);
}

static void siblings_each(struct calibration *calibration,
			  void (*join)(struct calibration *, size_t begin, size_t end))
{
	for (size_t begin = 0, end; begin < calibration->cell_count; begin = end) {
		for (end = begin + 1;
		     end < calibration->cell_count && is_sibling(calibration, begin, end);)
			end++;
		if (end > begin + 1)
			join(calibration, begin, end);
	}
	strata_arrange(calibration);
}

void families_divide(struct calibration *calibration)
{
	for (size_t i = 0; i < calibration->input->stratum_count; i++)
		calibration->levels[i] = LEVEL_TYPE;
	strata_arrange(calibration);
	siblings_each(calibration, sparse_join);
	siblings_each(calibration, siblings_join);
}
