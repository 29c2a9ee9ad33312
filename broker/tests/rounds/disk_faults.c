/* Faults of a disk for one process, by interposed functions of the C library (LD_PRELOAD). See rounds/disk.py.
 *
 * ROUNDS_ROOTS    directories whose files are observed, separated by colons
 * ROUNDS_CONTROL  file that the harness maps, too: which operations fail, and how often (struct control)
 * ROUNDS_LOG      every change and every sync is appended here; absent: changes are not logged
 * ROUNDS_GRAVES   directory on the same file system: removed files keep a second name there
 *
 * A change is logged before it is made, under one lock, with the bytes before and after it. A sync is logged after it
 * has succeeded, with the length of the log at its beginning: it covers the changes before that. So the harness can
 * undo, after the end of the process, what no sync covers.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <unistd.h>

enum { FDS = 65536, PATH_BYTES = 4096 };
enum { FAIL_READ = 1, FAIL_WRITE = 2, FAIL_SYNC = 4, NO_SPACE = 8, FLIP = 16 };
enum { WRITE = 1, SIZE, SYNC, SYNC_FAILED, CREATE, RENAME, LINK, UNLINK, MKDIR, RMDIR };

struct control {
    uint32_t faults;   /* of the second enumeration */
    uint32_t permille; /* of the operations of these kinds fail */
    uint64_t state;    /* of the random numbers */
    uint64_t hits;     /* operations that failed, or bits that were flipped */
};

struct entry {
    uint32_t bytes; /* of the whole entry */
    uint32_t kind;
    uint64_t inode, directory, other_directory, replaced;
    int64_t offset, old_size;
    uint32_t path_bytes, other_bytes, before_bytes, after_bytes;
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct control *control;
static unsigned char observed[FDS];
static char roots[16][PATH_BYTES];
static int root_count, log_fd = -1;
static const char *graves;

#define REAL(name) \
    static __typeof__(name) *real; \
    if (!real) real = (__typeof__(name) *)dlsym(RTLD_NEXT, #name)

static int real_open(const char *path, int flags, int mode) {
    static int (*real)(const char *, int, ...);
    if (!real) real = (int (*)(const char *, int, ...))dlsym(RTLD_NEXT, "open64");
    return real(path, flags, mode);
}

static ssize_t real_pread(int fd, void *data, size_t count, off_t offset) {
    REAL(pread64);
    return real(fd, data, count, offset);
}

static ssize_t real_write(int fd, const void *data, size_t count) {
    REAL(write);
    return real(fd, data, count);
}

__attribute__((constructor)) static void begin(void) {
    const char *names = getenv("ROUNDS_ROOTS"), *path = getenv("ROUNDS_CONTROL"), *log = getenv("ROUNDS_LOG");
    if (!names || !path) return;
    char *copy = strdup(names), *rest = copy, *name;
    while ((name = strsep(&rest, ":")) && root_count < 16) snprintf(roots[root_count++], PATH_BYTES, "%s", name);
    free(copy);
    int fd = real_open(path, O_RDWR | O_CLOEXEC, 0);
    if (fd < 0) {
        root_count = 0;
        return;
    }
    void *mapped = mmap(NULL, sizeof *control, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    close(fd);
    control = mapped == MAP_FAILED ? NULL : mapped;
    graves = getenv("ROUNDS_GRAVES");
    if (log) log_fd = real_open(log, O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC, 0600);
}

/* --- what is observed, and what fails ------------------------------------------------------------------------- */

static int below(const char *path) {
    for (int i = 0; i < root_count; i++) {
        size_t length = strlen(roots[i]);
        if (!strncmp(path, roots[i], length) && (path[length] == '/' || !path[length])) return 1;
    }
    return 0;
}

static int is_observed(int fd) { return fd >= 0 && fd < FDS && observed[fd]; }

/* The absolute path of a name below a directory; returns whether it is observed. */
static int resolve(int base, const char *name, char *path) {
    if (!root_count || !name) return 0;
    if (name[0] == '/' || base == AT_FDCWD) {
        if (name[0] == '/') snprintf(path, PATH_BYTES, "%s", name);
        else {
            char here[PATH_BYTES / 2];
            if (!getcwd(here, sizeof here)) return 0;
            snprintf(path, PATH_BYTES, "%s/%.2000s", here, name);
        }
    } else {
        char link[64], directory[PATH_BYTES / 2];
        snprintf(link, sizeof link, "/proc/self/fd/%d", base);
        ssize_t count = readlink(link, directory, sizeof directory - 1);
        if (count < 0) return 0;
        directory[count] = 0;
        snprintf(path, PATH_BYTES, "%s/%.2000s", directory, name);
    }
    return below(path);
}

static int strikes(uint32_t fault) {
    if (!control || !(control->faults & fault)) return 0;
    uint64_t x = __atomic_add_fetch(&control->state, 0x9e3779b97f4a7c15ULL, __ATOMIC_RELAXED);
    x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9ULL;
    x = (x ^ (x >> 27)) * 0x94d049bb133111ebULL;
    if ((x ^ (x >> 31)) % 1000 >= control->permille) return 0;
    __atomic_add_fetch(&control->hits, 1, __ATOMIC_RELAXED);
    return 1;
}

/* --- the log --------------------------------------------------------------------------------------------------- */

static uint64_t inode_of(const char *path) {
    struct stat found;
    return lstat(path, &found) ? 0 : found.st_ino;
}

static uint64_t parent_of(const char *path) {
    char above[PATH_BYTES];
    snprintf(above, sizeof above, "%s", path);
    char *slash = strrchr(above, '/');
    if (!slash) return 0;
    *slash = 0;
    return inode_of(above);
}

static void append(struct entry *entry, const char *path, const char *other, const void *before, const void *after) {
    if (log_fd < 0) return;
    entry->path_bytes = path ? strlen(path) : 0;
    entry->other_bytes = other ? strlen(other) : 0;
    entry->bytes = sizeof *entry + entry->path_bytes + entry->other_bytes + entry->before_bytes + entry->after_bytes;
    char *whole = malloc(entry->bytes), *at = whole;
    if (!whole) abort();
    at = mempcpy(at, entry, sizeof *entry);
    if (path) at = mempcpy(at, path, entry->path_bytes);
    if (other) at = mempcpy(at, other, entry->other_bytes);
    if (before) at = mempcpy(at, before, entry->before_bytes);
    if (after) mempcpy(at, after, entry->after_bytes);
    /* an incomplete log would let the harness keep what must be lost */
    if (real_write(log_fd, whole, entry->bytes) != (ssize_t)entry->bytes) abort();
    free(whole);
}

/* The bytes that a change replaces, also those of a file that is open for writing only. */
static ssize_t read_before(int fd, void *data, size_t length, off_t offset) {
    ssize_t had = real_pread(fd, data, length, offset);
    if (had < 0 && errno == EBADF) {
        char path[64];
        snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
        int other = real_open(path, O_RDONLY | O_CLOEXEC, 0);
        if (other < 0) return -1;
        had = real_pread(other, data, length, offset);
        close(other);
    }
    return had;
}

static void append_write(int fd, const struct iovec *parts, int count, off_t offset) {
    if (log_fd < 0) return;
    size_t length = 0;
    for (int i = 0; i < count; i++) length += parts[i].iov_len;
    struct stat found;
    if (fstat(fd, &found)) return;
    char *before = malloc(length ? length : 1), *after = malloc(length ? length : 1), *at = after;
    if (!before || !after) abort();
    for (int i = 0; i < count; i++) at = mempcpy(at, parts[i].iov_base, parts[i].iov_len);
    ssize_t had = read_before(fd, before, length, offset);
    struct entry entry = {.kind = WRITE, .inode = found.st_ino, .offset = offset, .old_size = found.st_size,
                          .before_bytes = had > 0 ? had : 0, .after_bytes = length};
    append(&entry, NULL, NULL, before, after);
    free(before);
    free(after);
}

static void append_size(int fd, off_t size) {
    struct stat found;
    if (log_fd < 0 || fstat(fd, &found)) return;
    size_t cut = size < found.st_size ? found.st_size - size : 0;
    char *before = malloc(cut ? cut : 1);
    if (!before) abort();
    ssize_t had = cut ? read_before(fd, before, cut, size) : 0;
    struct entry entry = {.kind = SIZE, .inode = found.st_ino, .offset = size, .old_size = found.st_size,
                          .before_bytes = had > 0 ? had : 0};
    append(&entry, NULL, NULL, before, NULL);
    free(before);
}

static void append_name(uint32_t kind, const char *path, const char *other, uint64_t inode, uint64_t replaced) {
    struct entry entry = {.kind = kind, .inode = inode, .directory = parent_of(path),
                          .other_directory = other ? parent_of(other) : 0, .replaced = replaced};
    append(&entry, path, other, NULL, NULL);
}

/* Keep a second name of a file that is about to lose one. */
static uint64_t bury(const char *path) {
    uint64_t inode = inode_of(path);
    if (log_fd < 0 || !graves || !inode) return inode;
    char grave[PATH_BYTES];
    snprintf(grave, sizeof grave, "%.2000s/%llu", graves, (unsigned long long)inode);
    static int (*real)(int, const char *, int, const char *, int);
    if (!real) real = (int (*)(int, const char *, int, const char *, int))dlsym(RTLD_NEXT, "linkat");
    if (real(AT_FDCWD, path, AT_FDCWD, grave, 0) && errno != EEXIST) abort();
    return inode;
}

/* --- opening and closing ----------------------------------------------------------------------------------------- */

static int opened(int base, const char *name, int flags, int mode) {
    static int (*real)(int, const char *, int, ...);
    if (!real) real = (int (*)(int, const char *, int, ...))dlsym(RTLD_NEXT, "openat64");
    char path[PATH_BYTES];
    if (!resolve(base, name, path)) return real(base, name, flags, mode);
    pthread_mutex_lock(&lock);
    int made = (flags & O_CREAT) && !inode_of(path), fd = -1;
    if (made && strikes(NO_SPACE)) errno = ENOSPC;
    else fd = real(base, name, made ? flags : flags & ~O_TRUNC, mode);
    if (fd >= 0 && fd < FDS) {
        observed[fd] = 1;
        if (made) append_name(CREATE, path, NULL, inode_of(path), 0);
        if ((flags & O_TRUNC) && !made && (flags & O_ACCMODE) != O_RDONLY) {
            static int (*truncate)(int, off64_t);
            if (!truncate) truncate = (int (*)(int, off64_t))dlsym(RTLD_NEXT, "ftruncate64");
            append_size(fd, 0);
            truncate(fd, 0);
        }
    }
    int error = errno;
    pthread_mutex_unlock(&lock);
    errno = error;
    return fd;
}

#define MODE(flags, mode) \
    int mode = 0; \
    if ((flags) & (O_CREAT | __O_TMPFILE)) { \
        va_list more; \
        va_start(more, flags); \
        mode = va_arg(more, int); \
        va_end(more); \
    }

int open64(const char *name, int flags, ...) {
    MODE(flags, mode)
    return opened(AT_FDCWD, name, flags, mode);
}

int openat64(int base, const char *name, int flags, ...) {
    MODE(flags, mode)
    return opened(base, name, flags, mode);
}

int open(const char *name, int flags, ...) {
    MODE(flags, mode)
    return opened(AT_FDCWD, name, flags, mode);
}

int openat(int base, const char *name, int flags, ...) {
    MODE(flags, mode)
    return opened(base, name, flags, mode);
}

int close(int fd) {
    REAL(close);
    if (fd >= 0 && fd < FDS) observed[fd] = 0;
    return real(fd);
}

/* --- reading ------------------------------------------------------------------------------------------------------ */

ssize_t pread64(int fd, void *data, size_t count, off64_t offset) {
    if (!is_observed(fd)) return real_pread(fd, data, count, offset);
    if (strikes(FAIL_READ)) {
        errno = EIO;
        return -1;
    }
    ssize_t got = real_pread(fd, data, count, offset);
    if (got > 0 && strikes(FLIP)) ((char *)data)[control->state % got] ^= 1 << (control->state >> 32) % 8;
    return got;
}

ssize_t pread(int fd, void *data, size_t count, off_t offset) { return pread64(fd, data, count, offset); }

/* --- writing ------------------------------------------------------------------------------------------------------ */

/* Whether a write at the end of the file fails for want of space, or for another reason. */
static int write_fails(int fd, off_t end) {
    struct stat found;
    if (strikes(FAIL_WRITE)) errno = EIO;
    else if (!fstat(fd, &found) && end > found.st_size && strikes(NO_SPACE)) errno = ENOSPC;
    else return 0;
    return 1;
}

static ssize_t written(int fd, const struct iovec *parts, int count, off_t offset, ssize_t (*call)(void *), void *of) {
    size_t length = 0;
    for (int i = 0; i < count; i++) length += parts[i].iov_len;
    if (write_fails(fd, offset + length)) return -1;
    pthread_mutex_lock(&lock);
    append_write(fd, parts, count, offset);
    ssize_t result = call(of);
    int error = errno;
    pthread_mutex_unlock(&lock);
    errno = error;
    return result;
}

struct write_call {
    int fd, count, flags;
    const void *data;
    size_t length;
    off_t offset;
    const struct iovec *parts;
};

static ssize_t call_pwrite(void *of) {
    struct write_call *call = of;
    REAL(pwrite64);
    return real(call->fd, call->data, call->length, call->offset);
}

static ssize_t call_pwritev(void *of) {
    struct write_call *call = of;
    REAL(pwritev64v2);
    return real(call->fd, call->parts, call->count, call->offset, call->flags);
}

static ssize_t call_write(void *of) {
    struct write_call *call = of;
    return real_write(call->fd, call->data, call->length);
}

ssize_t pwrite64(int fd, const void *data, size_t length, off64_t offset) {
    struct write_call call = {.fd = fd, .data = data, .length = length, .offset = offset};
    struct iovec part = {(void *)data, length};
    return is_observed(fd) ? written(fd, &part, 1, offset, call_pwrite, &call) : call_pwrite(&call);
}

ssize_t pwrite(int fd, const void *data, size_t length, off_t offset) { return pwrite64(fd, data, length, offset); }

ssize_t pwritev64v2(int fd, const struct iovec *parts, int count, off64_t offset, int flags) {
    struct write_call call = {.fd = fd, .parts = parts, .count = count, .offset = offset, .flags = flags};
    return is_observed(fd) ? written(fd, parts, count, offset, call_pwritev, &call) : call_pwritev(&call);
}

ssize_t pwritev64(int fd, const struct iovec *parts, int count, off64_t offset) {
    return pwritev64v2(fd, parts, count, offset, 0);
}

ssize_t write(int fd, const void *data, size_t length) {
    if (!is_observed(fd)) return real_write(fd, data, length);
    struct stat found;
    int end = fcntl(fd, F_GETFL) & O_APPEND;
    off_t offset = end && !fstat(fd, &found) ? found.st_size : lseek(fd, 0, SEEK_CUR);
    struct write_call call = {.fd = fd, .data = data, .length = length};
    struct iovec part = {(void *)data, length};
    return written(fd, &part, 1, offset, call_write, &call);
}

static int sized(int fd, off_t size, int allocates) {
    static int (*real_truncate)(int, off64_t), (*real_allocate)(int, off64_t, off64_t);
    if (!real_truncate) real_truncate = (int (*)(int, off64_t))dlsym(RTLD_NEXT, "ftruncate64");
    if (!real_allocate) real_allocate = (int (*)(int, off64_t, off64_t))dlsym(RTLD_NEXT, "posix_fallocate64");
    struct stat found;
    if (is_observed(fd)) {
        if (write_fails(fd, size)) return allocates ? errno : -1;
        pthread_mutex_lock(&lock);
        if (!allocates || (!fstat(fd, &found) && size > found.st_size)) append_size(fd, size);
    }
    int result = allocates ? real_allocate(fd, 0, size) : real_truncate(fd, size), error = errno;
    if (is_observed(fd)) pthread_mutex_unlock(&lock);
    errno = error;
    return result;
}

int ftruncate64(int fd, off64_t size) { return sized(fd, size, 0); }
int ftruncate(int fd, off_t size) { return sized(fd, size, 0); }
int posix_fallocate64(int fd, off64_t offset, off64_t length) { return sized(fd, offset + length, 1); }
int posix_fallocate(int fd, off_t offset, off_t length) { return sized(fd, offset + length, 1); }

/* --- syncing ------------------------------------------------------------------------------------------------------ */

static int synced(int fd, int (*real)(int)) {
    if (!is_observed(fd)) return real(fd);
    struct stat found, log;
    pthread_mutex_lock(&lock);
    struct entry entry = {.kind = SYNC};
    if (log_fd >= 0 && !fstat(log_fd, &log)) entry.offset = log.st_size;
    if (!fstat(fd, &found)) entry.inode = found.st_ino;
    pthread_mutex_unlock(&lock);
    int fails = strikes(FAIL_SYNC), result = fails ? -1 : real(fd), error = fails ? EIO : errno;
    if (result) entry.kind = SYNC_FAILED;
    pthread_mutex_lock(&lock);
    append(&entry, NULL, NULL, NULL, NULL);
    pthread_mutex_unlock(&lock);
    errno = error;
    return result;
}

int fsync(int fd) {
    REAL(fsync);
    return synced(fd, real);
}

int fdatasync(int fd) {
    REAL(fdatasync);
    return synced(fd, real);
}

/* --- names -------------------------------------------------------------------------------------------------------- */

int renameat(int base, const char *name, int other_base, const char *other_name) {
    REAL(renameat);
    char path[PATH_BYTES], other[PATH_BYTES];
    if (!resolve(base, name, path) || !resolve(other_base, other_name, other))
        return real(base, name, other_base, other_name);
    pthread_mutex_lock(&lock);
    uint64_t replaced = bury(other);
    append_name(RENAME, path, other, inode_of(path), replaced);
    int result = real(base, name, other_base, other_name), error = errno;
    pthread_mutex_unlock(&lock);
    errno = error;
    return result;
}

int rename(const char *name, const char *other) { return renameat(AT_FDCWD, name, AT_FDCWD, other); }

int linkat(int base, const char *name, int other_base, const char *other_name, int flags) {
    REAL(linkat);
    char path[PATH_BYTES], other[PATH_BYTES];
    if (!resolve(base, name, path) || !resolve(other_base, other_name, other))
        return real(base, name, other_base, other_name, flags);
    pthread_mutex_lock(&lock);
    if (!inode_of(other)) append_name(LINK, other, NULL, inode_of(path), 0);
    int result = real(base, name, other_base, other_name, flags), error = errno;
    pthread_mutex_unlock(&lock);
    errno = error;
    return result;
}

int link(const char *name, const char *other) { return linkat(AT_FDCWD, name, AT_FDCWD, other, 0); }

int unlinkat(int base, const char *name, int flags) {
    REAL(unlinkat);
    char path[PATH_BYTES];
    if (!resolve(base, name, path)) return real(base, name, flags);
    pthread_mutex_lock(&lock);
    if (flags & AT_REMOVEDIR) append_name(RMDIR, path, NULL, inode_of(path), 0);
    else append_name(UNLINK, path, NULL, bury(path), 0);
    int result = real(base, name, flags), error = errno;
    pthread_mutex_unlock(&lock);
    errno = error;
    return result;
}

int unlink(const char *name) { return unlinkat(AT_FDCWD, name, 0); }
int rmdir(const char *name) { return unlinkat(AT_FDCWD, name, AT_REMOVEDIR); }

int mkdirat(int base, const char *name, mode_t mode) {
    REAL(mkdirat);
    char path[PATH_BYTES];
    if (!resolve(base, name, path) || inode_of(path)) return real(base, name, mode);
    pthread_mutex_lock(&lock);
    append_name(MKDIR, path, NULL, 0, 0);
    int result = real(base, name, mode), error = errno;
    pthread_mutex_unlock(&lock);
    errno = error;
    return result;
}

int mkdir(const char *name, mode_t mode) { return mkdirat(AT_FDCWD, name, mode); }
