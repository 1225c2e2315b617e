/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A copy of a Python process's memory, with what is needed to read its objects: the layout of its
 * CPython, and where its heaps and types begin. All of it is hostile. Pure.
 */
#pragma once

#include <stddef.h>
#include <stdint.h>

#include "runtime/cpython/heap.h"
#include "runtime/cpython/offsets.h"

#define IMAGE_SEGMENTS (1u << 17) /* limit */
#define IMAGE_NAME     256u

enum image_kind {
	IMAGE_HEAP,     /* anonymous memory: heaps, arenas of pymalloc, threads' stacks */
	IMAGE_DATA,     /* variables of a mapped file: .data and .bss */
	IMAGE_CONSTANT, /* constants of a mapped file, which hold names */
	IMAGE_STACK,    /* the first thread's stack */
};

struct image_segment {
	uint64_t start, end;  /* addresses */
	const uint8_t *bytes; /* borrowed */
	enum image_kind kind;
	char file[IMAGE_NAME]; /* of IMAGE_DATA and IMAGE_CONSTANT, cut; "" */
};

struct image {
	struct image_segment *segments; /* by address, without overlap; borrowed */
	size_t count;
	struct python_offsets offsets;
	uint32_t version_hex; /* as in struct python_runtime */
	uint32_t pid;
	char name[64];      /* of the process */
	uint64_t type_type; /* address of PyType_Type */
	/* of the interpreter's .data and .bss: its static types are there */
	uint64_t data, data_bytes;
	uint64_t runtime;              /* address of _PyRuntime */
	uint64_t interpreters;         /* address of the newest interpreter state */
	const struct heap_head *heads; /* of pymalloc's heaps; borrowed */
	uint32_t head_count;
	uint64_t raw_blocks;     /* as in struct heap_walk; 0: not known */
	uint64_t frozen_ns;      /* how long the process was stopped for the copying; 0: it ran */
	uint64_t resident_bytes; /* of its segments, without pages that were never written to */
	uint64_t bytes_lost;     /* of memory that is mapped and could not be copied */
	uint64_t ran;            /* 1: the process ran while it was copied */
	uint64_t bytes_changed;  /* that were copied again, since they changed meanwhile */
	uint64_t bytes_swapped; /* that were left out of its segments, since they are swapped out */
	uint64_t time_ns;       /* CLOCK_REALTIME of the moment that it is a copy of */
	char absent[IMAGE_NAME]; /* a mapped file whose constants are missing, cut; "": none */
};

/* The segment that covers address; NULL: none. */
const struct image_segment *image_segment(const struct image *image, uint64_t address);
/* The copy of bytes at address; NULL unless one segment covers all of them. */
const uint8_t *image_at(const struct image *image, uint64_t address, uint64_t bytes);
/* The word at address; 0 if it is not there. */
uint64_t image_u64(const struct image *image, uint64_t address);
/* Copies the text at address up to its NUL, cut at bytes; "" if there is none. */
void image_text(const struct image *image, uint64_t address, char *out, size_t bytes);
static inline uint64_t word_at(const uint8_t *bytes)
{
	uint64_t value;

	__builtin_memcpy(&value, bytes, sizeof(value));
	return value;
}
