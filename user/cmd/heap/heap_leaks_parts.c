/* SPDX-License-Identifier: Apache-2.0 */
/* What of a process's RSS is no object of Python, as tracer memory tells it. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cmd/heap/heap_leaks.h"

/* Objects of Python, which are told by what holds them. */
static int is_objects(const char *name)
{
	return !strcmp(name, "live blocks") || !strcmp(name, "large blocks of Python objects");
}

static void part_add(struct leaks_part *parts, const char *name, double first, double last)
{
	for (size_t i = 0; i < LEAKS_PARTS; i++) {
		if (parts[i].name[0] && strcmp(parts[i].name, name) != 0)
			continue;
		snprintf(parts[i].name, sizeof(parts[i].name), "%s", name);
		parts[i].first += first;
		parts[i].last += last;
		return;
	}
}

/* Each file is one of many; of the others the parts of the parts are told. */
static void node_add(struct leaks_part *parts, const struct memory_node *node, const char *above,
		     unsigned int depth, int last)
{
	double size = (double)node->size;
	char name[LEAKS_PART_NAME];

	if (is_objects(node->name))
		return;
	snprintf(name, sizeof(name), "%s%s%s", above, above[0] ? ", " : "", node->name);
	if (!node->child_count || depth == 3 || !strcmp(node->name, "files") ||
	    !strcmp(node->name, "free")) {
		part_add(parts, name, last ? 0 : size, last ? size : 0);
		return;
	}
	for (size_t i = 0; i < node->child_count; i++)
		node_add(parts, &node->children[i], name, depth + 1, last);
}

void leaks_parts_read(struct leaking *process, int last)
{
	struct memory_report report;

	if (!process->memory)
		return;
	if (!process->parts)
		process->parts = calloc(LEAKS_PARTS, sizeof(*process->parts));
	if (!process->parts || memory_read_report(process->memory, 0, &report)) {
		free(process->parts);
		process->parts = NULL;
		memory_close(process->memory);
		process->memory = NULL;
		return;
	}
	for (size_t i = 0; i < report.root.child_count; i++)
		node_add(process->parts, &report.root.children[i], "", 1, last);
	memory_report_free(&report);
}

static int part_compare(const void *a, const void *b)
{
	const struct leaks_part *x = a, *y = b;
	double grown = (x->last - x->first) - (y->last - y->first);

	return grown < 0 ? 1 : grown > 0 ? -1 : strcmp(x->name, y->name);
}

void leaks_parts_add(struct heap_leaks *leaks)
{
	for (size_t i = 0; i < leaks->process_count; i++) {
		const struct leaking *process = &leaks->processes[i];

		for (size_t k = 0; process->parts && !process->ended && k < LEAKS_PARTS; k++)
			if (process->parts[k].name[0])
				part_add(leaks->parts, process->parts[k].name,
					 process->parts[k].first, process->parts[k].last);
	}
	while (leaks->part_count < LEAKS_PARTS && leaks->parts[leaks->part_count].name[0])
		leaks->part_count++;
	qsort(leaks->parts, leaks->part_count, sizeof(*leaks->parts), part_compare);
}
