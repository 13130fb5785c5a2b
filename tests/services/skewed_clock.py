"""Processes with another clock: its wall clock only, so that waits go on as they do."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

COMPILER = shutil.which("cc")
_SOURCE = """
#define _GNU_SOURCE
#include <dlfcn.h>
#include <pthread.h>
#include <semaphore.h>
#include <stdlib.h>
#include <sys/time.h>
#include <time.h>

int clock_gettime(clockid_t clock, struct timespec *now) {
    static int (*real)(clockid_t, struct timespec *);
    if (!real) real = dlsym(RTLD_NEXT, "clock_gettime");
    int answer = real(clock, now);
    if (clock == CLOCK_REALTIME) now->tv_sec += atol(getenv("CLOCK_SKEW"));
    return answer;
}

int gettimeofday(struct timeval *restrict now, void *restrict zone) {
    struct timespec found;
    (void)zone;
    clock_gettime(CLOCK_REALTIME, &found);
    now->tv_sec = found.tv_sec;
    now->tv_usec = found.tv_nsec / 1000;
    return 0;
}

static void *known(const char *name, const char *version) {
    void *found = dlvsym(RTLD_NEXT, name, version);
    return found ? found : dlsym(RTLD_NEXT, name);
}

/* Waits until a moment of the wall clock are as long as they would be; the other clock's moments are small numbers. */
static struct timespec meant(const struct timespec *until) {
    struct timespec found = *until;
    if (found.tv_sec > 1000000000) found.tv_sec -= atol(getenv("CLOCK_SKEW"));
    return found;
}

int pthread_cond_timedwait(pthread_cond_t *cond, pthread_mutex_t *mutex, const struct timespec *until) {
    static int (*real)(pthread_cond_t *, pthread_mutex_t *, const struct timespec *);
    if (!real) real = known("pthread_cond_timedwait", "GLIBC_2.3.2");
    struct timespec moment = meant(until);
    return real(cond, mutex, &moment);
}

int sem_timedwait(sem_t *sem, const struct timespec *until) {
    static int (*real)(sem_t *, const struct timespec *);
    if (!real) real = known("sem_timedwait", "GLIBC_2.2.5");
    struct timespec moment = meant(until);
    return real(sem, &moment);
}

time_t time(time_t *found) {
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    if (found) *found = now.tv_sec;
    return now.tv_sec;
}
"""


@contextmanager
def skewed(folder: Path, hours: int) -> Iterator[None]:
    """Processes begun meanwhile have it. Publish times are their client's, in C++: no patch of Python's would do."""
    assert COMPILER is not None
    source, made = folder / "clock.c", folder / "clock.so"
    source.write_text(_SOURCE, encoding="utf-8")
    subprocess.run([COMPILER, "-shared", "-fPIC", "-O1", "-o", str(made), str(source), "-ldl"], check=True)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("LD_PRELOAD", str(made))
        patch.setenv("CLOCK_SKEW", str(hours * 3_600))
        yield
