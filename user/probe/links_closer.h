/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Takes links out aside: the kernel waits for every processor meanwhile, tens of milliseconds for each link, and events must
 * not wait for that. A thread does it, which is there only while there is something to do (and has the rights that
 * its starter has then).
 */
#ifndef TRACER_PROBE_LINKS_CLOSER_H
#define TRACER_PROBE_LINKS_CLOSER_H

#include <pthread.h>

#include "probe/links.h"

struct links_closer {
	pthread_mutex_t lock;
	struct closing *first;
	int running, started; /* started: there is a thread to be joined */
	pthread_t thread;
};

void links_closer_begin(struct links_closer *closer);
/* Takes them over and leaves *links empty. Where no thread can be had it is done at once. */
void links_closer_take(struct links_closer *closer, struct links *links);
/* Waits until all is done. */
void links_closer_end(struct links_closer *closer);

/*
 * For links that are many, where the kernel takes seconds: a child of ours keeps them until we have closed them, which is quick
 * then, and ends. The kernel takes its time with that, and nobody waits for it; no signal comes between. Called while the links
 * are open; links_leave_end() when they are closed. 0 and *left, -errno: nothing was done.
 */
int links_leave_begin(const int *fds, size_t count, int *left);
void links_leave_end(int left);

#endif
