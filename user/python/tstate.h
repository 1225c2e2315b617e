/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Where the running thread's PyThreadState is kept (enum abi_tstate_source): the part of
 * python_runtime_find() that knows about thread-local storage.
 */
#ifndef TRACER_PYTHON_TSTATE_H
#define TRACER_PYTHON_TSTATE_H

#include <stddef.h>
#include <stdint.h>

#include "python/runtime.h"

/* How a function of CPython's reads the thread-local variable that it returns. */
struct tstate_access {
	int64_t offset; /* from the fs base, or within the module's TLS block */
	/* 0: offset is from the fs base; else the GOT slot's distance from the function */
	int64_t slot;
	int indirect; /* 1: the word after the slot is to be added to offset */
};

/*
 * Decodes the machine code of PyThreadState_GetUnchecked(), pure: the shapes that gcc and clang
 * give "return thread_local_variable;", in an executable and in a shared library. 0 or -ENOENT:
 * none of them.
 */
int tstate_decode(const uint8_t *code, size_t bytes, struct tstate_access *out);

/*
 * Fills tstate_source, tstate_address and tls_module of runtime->target from the rest of *runtime.
 * musl: the process runs on it, whose TLS vector is laid out differently. Whatever cannot be known
 * for sure ends in ABI_TSTATE_MATCH, said by log_debug().
 */
void tstate_find(struct python_runtime *runtime, int musl);

#endif
