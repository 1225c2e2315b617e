/* SPDX-License-Identifier: Apache-2.0 */
/* Programs that BPF traces from their first instruction, as processes without Python. */
#pragma once

#include <stdint.h>

struct event_appear;
struct map_watch_record;
struct target;
struct modules;
struct session;
struct session_opts;

/* The layers that BPF traces in new programs: 1 << enum event_layer for each; 0: none. */
uint32_t execd_layers(const struct session_opts *opts);
/* Makes a target of a program that BPF has made a target. 0, -errno. */
int execd_announce(struct session *session, const struct event_appear *event);
/* Records an exec or a mapping of an exec'd program. 1: it needs no inspection. */
int execd_mapped(struct session *session, const struct map_watch_record *record);
/*
 * Inspects an exec'd target. 1: it has no Python, and its probes are placed, or *err says why not,
 * or it is gone, or no allocator is in it so far; 0: it runs Python: its records were discarded,
 * and it is to be attached to as a Python process.
 */
int execd_settle(struct session *session, struct target *target, int *err);
/* Marks these files as probed: a process that maps no others needs no inspection. */
void execd_files_settle(struct session *session, const struct modules *modules);
/* A target has ended. 1: nothing in it was probed yet, and it is discarded. */
int execd_ended_unprobed(struct session *session, struct target *target);
/* At the end of the session: discards the targets without an allocator. */
void execs_end(struct session *session);
/* Makes BPF stop tracing this pid with this address-space id, and discards its records. */
void session_discard(struct session *session, uint32_t pid, uint32_t space_id);
void execs_free(struct session *session);
