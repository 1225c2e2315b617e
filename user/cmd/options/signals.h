/* SPDX-License-Identifier: Apache-2.0 */
#pragma once

struct launch;

/*
 * on: the signals that would end the process (SIGINT, SIGTERM, SIGHUP) are blocked and read from
 * *fd, a nonblocking signalfd; it is opened if it is -1, and the caller closes it. off: they have
 * their default effect again. Switch on before the message that the session has attached; switch
 * off while a command has not loaded its Python yet, so that the user can give it up. 0, -errno.
 */
int signals_catch(int *fd, int on);

/*
 * Did a signal ask for the end? A command gets the terminal's Ctrl-C itself, so the first signal
 * only waits for it; a SIGTERM is forwarded to it. *interrupts counts signals; the second one ends.
 * launch NULL: there is no command.
 */
int signals_end(int fd, struct launch *launch, int *interrupts);
