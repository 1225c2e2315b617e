/* SPDX-License-Identifier: Apache-2.0 */
#ifndef TRACER_CLI_SIGNALS_H
#define TRACER_CLI_SIGNALS_H

struct launch;

/*
 * Between on and off the signals that would end us (SIGINT, SIGTERM, SIGHUP) are read from *fd, a
 * signalfd that does not block; it is opened if it is -1, and the caller's to close. On before
 * anybody is told that we have attached; off while a command has not come to its Python yet, so
 * that it can be given up. 0, -errno.
 */
int signals_catch(int *fd, int on);

/*
 * Did a signal ask for the end? A command gets the terminal's Ctrl-C itself and is waited for, the
 * first time: a SIGTERM is handed to it, and *interrupts counts. launch NULL: there is no command.
 */
int signals_end(int fd, struct launch *launch, int *interrupts);

#endif
