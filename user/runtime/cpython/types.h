/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The static types of an interpreter of which only variables are at hand: tp_name leads to a
 * constant of its file. They are found by their form, and named by what memory says of them.
 */
#pragma once

#include "runtime/cpython/runtime.h"

#define RECOVER_PUBLICS 160u /* names that modules may give a type */

struct recovered_type {
	uint64_t address, base, flags;     /* tp_base, tp_flags */
	uint64_t name_at;                  /* tp_name */
	uint64_t attributes;               /* recover_attribute() of each that it has, a bit each */
	uint64_t describes;                /* of each attribute whose descriptor is of this type */
	uint32_t publics[RECOVER_PUBLICS]; /* how often it has the name recover_public() */
	const char *name;                  /* static; NULL: not known */
};

/* What may still be done for a copy: it is hostile. */
struct recover_limits {
	uint64_t asked_bytes; /* variables that are sought */
	uint64_t data_bytes;  /* of these, that are there */
	uint32_t scans;       /* searches of all memory */
	uint32_t proofs;      /* of layouts */
};

/* What is known of a file that may have an interpreter. */
struct recovery {
	const struct runtime_copy *copy;
	const struct python_offsets *offsets; /* those that are tried */
	uint64_t file_start;                  /* of the file's first map */
	uint64_t data, data_bytes;            /* of its variables, zeros or not */
	uint8_t *content;                     /* a copy of them; owned */
	uint64_t type_type, str, object;      /* types */
	struct recovered_type *types;         /* by address; owned */
	size_t type_count, type_capacity;
	struct recover_limits *limits;
};

/* The number of a name; -1: it is none of those that tell types apart. */
int recover_attribute(const char *text);
int recover_public(const char *text);
/*
 * Gives types their names in the version (major << 8 | minor), each to one at most. object: the
 * address of PyBaseObject_Type. Pure.
 */
void recover_names(struct recovered_type *types, size_t count, uint64_t object, uint32_t version);
