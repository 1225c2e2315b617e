/* SPDX-License-Identifier: Apache-2.0 */
#include "probe/links_closer.h"

#include <signal.h>
#include <stdlib.h>

struct closing {
	struct closing *next;
	struct links links;
};

void links_closer_begin(struct links_closer *closer)
{
	*closer = (struct links_closer){.lock = PTHREAD_MUTEX_INITIALIZER};
}

/* The next one; NULL, and the thread counts as gone, if there is none. */
static struct closing *closing_next(struct links_closer *closer)
{
	struct closing *closing;

	pthread_mutex_lock(&closer->lock);
	closing = closer->first;
	if (closing)
		closer->first = closing->next;
	else
		closer->running = 0;
	pthread_mutex_unlock(&closer->lock);
	return closing;
}

static void *closer_run(void *context)
{
	struct closing *closing;

	while ((closing = closing_next(context))) {
		links_free(&closing->links);
		free(closing);
	}
	return NULL;
}

/* Signals are the other thread's. */
static int closer_start(struct links_closer *closer)
{
	sigset_t all, before;
	int err;

	if (closer->started)
		pthread_join(closer->thread, NULL);
	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, &before);
	err = pthread_create(&closer->thread, NULL, closer_run, closer);
	pthread_sigmask(SIG_SETMASK, &before, NULL);
	closer->started = !err;
	return err;
}

void links_closer_take(struct links_closer *closer, struct links *links)
{
	struct closing *closing = malloc(sizeof(*closing));
	int running;

	if (!closing) {
		links_free(links);
		return;
	}
	closing->links = *links;
	*links = (struct links){.backend = links->backend};
	pthread_mutex_lock(&closer->lock);
	closing->next = closer->first;
	closer->first = closing;
	running = closer->running;
	closer->running = 1;
	pthread_mutex_unlock(&closer->lock);
	if (!running && closer_start(closer))
		closer_run(closer);
}

void links_closer_end(struct links_closer *closer)
{
	if (closer->started)
		pthread_join(closer->thread, NULL);
	closer->started = 0;
}
