/* SPDX-License-Identifier: Apache-2.0 */
/* The unwind tables that a session's walks of native stacks ask for. */
#pragma once

struct target;
struct session;

/* Without unwind tables stacks are walked by frame pointers. */
void session_unwind_begin(struct session *session);
/*
 * Loads the unwind tables of the files that it has mapped. Those of large libraries are begun once
 * it is traced: until they are there, stacks through them are cut, and count as cut. Of a Python
 * process those of the standard library's modules are waited for as well, but not for long.
 */
void session_unwind_prepare(struct session *session, const struct target *target);
/* Loads what was asked for, for some milliseconds at most. */
void session_unwind_step(struct session *session);
/* Logs what the tables took: of all files that were met, less those that had to give way. */
void session_unwind_tell(const struct session *session);
