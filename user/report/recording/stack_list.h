/* SPDX-License-Identifier: Apache-2.0 */
/* Stacks of several snapshots of one recording, each once: their names have other ids in each. */
#pragma once

#include "snapshot/snapshot.h"
#include "util/buffer.h"

struct json;

struct stack_list {
	size_t count;
	/* a frame by {file, function, line} as text, a stack by its frames */
	struct strings *names, *frame_keys, *stack_keys;
	struct stack_item *items;
	size_t capacity;
	struct buffer frames; /* uint32_t {file, function, line} of each frame */
	struct buffer ids;    /* uint32_t: the frames of each stack, most recent first */
	struct buffer key;
};

int stack_list_init(struct stack_list *list); /* 0, -ENOMEM */
void stack_list_free(struct stack_list *list);
/* The number of a snapshot's traceback, added if it is new. 0, -ENOMEM. */
int stack_list_find(struct stack_list *list, const struct snapshot *snapshot, uint32_t traceback,
		    uint32_t *number);
/*
 * The members "strings", "frames" {file, function, line}, "stacks", "starts" (one more than there
 * are stacks) and "cut" (those whose oldest frames were not kept), of the stacks with these
 * numbers; as in the page of export --format html. 0, -ENOMEM.
 */
int stack_list_json(struct json *json, const struct stack_list *list, const uint32_t *numbers,
		    size_t count);
