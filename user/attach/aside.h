/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A question to the kernel that takes a probe of our own: asked by a child in a session of its own,
 * which is not killed with us, and whose end closes the probe. links_holder.h says why neither a
 * link nor a perf event uprobe is made or closed here.
 */
#ifndef TRACER_ATTACH_ASIDE_H
#define TRACER_ATTACH_ASIDE_H

/*
 * What ask() returned in the child: it leaves its probes open. -ECHILD: the child was killed;
 * -errno.
 */
int aside_ask(int (*ask)(void *context), void *context);

#endif
