/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Standard files that go over a socket to another process, and what can be wrong there.
 */
#define _POSIX_C_SOURCE 200809L
#include "check.h"

#include "launch/hand.h"

#include <fcntl.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

static char folder[] = "/tmp/td-hand-XXXXXX";
static char path[64];

static int listening(void)
{
    struct sockaddr_un at = {.sun_family = AF_UNIX};
    (void)snprintf(at.sun_path, sizeof(at.sun_path), "%s", path);
    (void)unlink(path);
    int fd = socket(AF_UNIX, SOCK_STREAM, 0);
    assert_true(fd >= 0);
    assert_int_equal(bind(fd, (struct sockaddr *)&at, sizeof(at)), 0);
    assert_int_equal(listen(fd, 1), 0);
    return fd;
}

/* What rank 0 does: speaks on the files that it was given, and on its old one. */
static void taker(void)
{
    int out = -1, sock = -1;
    if (td_hand_take(path, &out, &sock, NULL) != TD_OK)
        _exit(1);
    char word[8] = "";
    bool good = read(STDIN_FILENO, word, sizeof(word) - 1) == 2 &&
                strcmp(word, "hi") == 0 && write(STDOUT_FILENO, "to you", 6) == 6 &&
                write(out, "event", 5) == 5 && sock >= 0;
    _exit(good ? 0 : 2);
}

static void over_and_taken(void **state)
{
    int in[2], out[2], old[2], status, saved[3];
    char text[16] = "";
    pid_t other = 0;
    (void)state;
    assert_true(pipe(in) == 0 && pipe(out) == 0 && pipe(old) == 0);
    int fd = listening();
    pid_t pid = fork();
    if (pid == 0) {
        (void)dup2(old[1], STDOUT_FILENO);
        taker();
    }
    assert_true(pid > 0);
    int conn = accept(fd, NULL, NULL);
    assert_true(conn >= 0);
    for (int i = 0; i < 3; i++)
        saved[i] = dup(i);
    (void)dup2(in[0], 0);
    (void)dup2(out[1], 1);
    enum td_status s = td_hand_over(conn, &other, NULL);
    for (int i = 0; i < 3; i++) {
        (void)dup2(saved[i], i);
        (void)close(saved[i]);
    }
    assert_int_equal(s, TD_OK);
    assert_int_equal(other, pid);
    assert_int_equal(write(in[1], "hi", 2), 2);
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_int_equal(status, 0);
    assert_int_equal(read(out[0], text, sizeof(text)), 6);
    assert_memory_equal(text, "to you", 6);
    assert_int_equal(read(old[0], text, sizeof(text)), 5);
    assert_memory_equal(text, "event", 5);
    (void)close(conn);
    (void)close(fd);
}

static void nobody_there(void **state)
{
    int out, sock, pair[2];
    char longest[300];
    pid_t pid;
    struct td_error err;
    (void)state;
    (void)unlink(path);
    td_error_init(&err);
    assert_int_equal(td_hand_take(path, &out, &sock, &err), TD_E_PEER);
    memset(longest, 'x', sizeof(longest));
    longest[sizeof(longest) - 1] = 0;
    td_error_init(&err);
    assert_int_equal(td_hand_take(longest, &out, &sock, &err), TD_E_USAGE);
    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM, 0, pair), 0);
    (void)close(pair[1]);
    td_error_init(&err);
    assert_int_equal(td_hand_over(pair[0], &pid, &err), TD_E_PEER);
    (void)close(pair[0]);
}

/* A byte without files, and an end without a byte. */
static void empty_parcels(void **state)
{
    (void)state;
    for (int k = 0; k < 2; k++) {
        int status, fd = listening();
        pid_t pid = fork();
        if (pid == 0) {
            int out, sock;
            _exit(td_hand_take(path, &out, &sock, NULL) == TD_E_PEER ? 0 : 1);
        }
        int conn = accept(fd, NULL, NULL);
        assert_true(conn >= 0);
        if (k == 0)
            assert_int_equal(write(conn, "x", 1), 1);
        (void)close(conn);
        assert_int_equal(waitpid(pid, &status, 0), pid);
        assert_int_equal(status, 0);
        (void)close(fd);
    }
}

static int set_up(void **state)
{
    (void)state;
    if (!mkdtemp(folder))
        return -1;
    (void)snprintf(path, sizeof(path), "%s/s", folder);
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    (void)unlink(path);
    return rmdir(folder);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(over_and_taken),
        cmocka_unit_test(nobody_there),
        cmocka_unit_test(empty_parcels),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
