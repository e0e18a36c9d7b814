/* SPDX-License-Identifier: MIT
 *
 * A munged of the test's own, with a key of its own: as the user who runs the test. */
#ifndef TESTS_MUNGED_H
#define TESTS_MUNGED_H

#include "launcher/munge.h"
#include "launcher/proof.h"

#include <check.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

static pid_t munged;
static char munge_socket[80];

/* Its files go into the folder, its socket into the environment. False: there is no munged, or it
 * cannot start here. */
static inline bool start_munged(const char *folder)
{
    char key[80], arguments[5][120], why[256] = "";
    unsigned char bytes[128];
    struct munge *munge;
    snprintf(key, sizeof key, "%s/munge.key", folder);
    snprintf(munge_socket, sizeof munge_socket, "%s/socket", folder);
    proof_random(bytes, sizeof bytes);
    int fd = open(key, O_WRONLY | O_CREAT | O_CLOEXEC, 0400);
    ck_assert_int_eq(write(fd, bytes, sizeof bytes), sizeof bytes);
    close(fd);
    snprintf(arguments[0], sizeof arguments[0], "--key-file=%s", key);
    snprintf(arguments[1], sizeof arguments[1], "--socket=%s", munge_socket);
    snprintf(arguments[2], sizeof arguments[2], "--pid-file=%s/pid", folder);
    snprintf(arguments[3], sizeof arguments[3], "--log-file=%s/log", folder);
    snprintf(arguments[4], sizeof arguments[4], "--seed-file=%s/seed", folder);
    munged = fork();
    if (munged == 0) {
        int null = open("/dev/null", O_RDWR);
        dup2(null, STDERR_FILENO);
        execlp("munged", "munged", "--foreground", "--force", "--num-threads=1", arguments[0],
               arguments[1], arguments[2], arguments[3], arguments[4], (char *)NULL);
        execl("/usr/sbin/munged", "munged", "--foreground", "--force", "--num-threads=1",
              arguments[0], arguments[1], arguments[2], arguments[3], arguments[4], (char *)NULL);
        _exit(127);
    }
    setenv(MUNGE_SOCKET_VARIABLE, munge_socket, 1);
    for (int i = 0; i < 100; i++) {
        if (waitpid(munged, NULL, WNOHANG) == munged) {
            munged = 0;
            break;
        }
        munge = munge_open(why, sizeof why);
        munge_close(munge);
        if (munge)
            return true;
        usleep(20000);
    }
    printf("MUNGE is not tested: munged does not run here: %s\n", why);
    return false;
}

static inline void stop_munged(const char *folder)
{
    static const char *const names[] = {"munge.key", "socket", "socket.lock", "pid", "log", "seed"};
    char name[128];
    if (munged > 0) {
        kill(munged, SIGTERM);
        waitpid(munged, NULL, 0);
    }
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        snprintf(name, sizeof name, "%s/%s", folder, names[i]);
        unlink(name);
    }
}

#endif
