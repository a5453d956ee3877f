// SPDX-License-Identifier: MIT
#include "fuse/session.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <thread>

#include "base/log.h"
#include "fuse/frontend.h"
#include "fuse/init_exchange.h"

namespace cowraid {

namespace {

constexpr uint32_t kThreadsPerProcessor = 4;
constexpr uint32_t kCongestionThreshold = 96;
constexpr uint32_t kMaxReadAheadBytes = 4 * 1024 * 1024;
constexpr long kStopRetryNanoseconds = 20'000'000;
// Wakes the serving thread out of its wait; the handler does nothing.
constexpr int kWakeSignal = SIGUSR1;

void on_init(void* frontend, fuse_conn_info* connection)
{
    constexpr unsigned wanted = FUSE_CAP_ASYNC_READ | FUSE_CAP_ASYNC_DIO | FUSE_CAP_PARALLEL_DIROPS |
                                FUSE_CAP_READDIRPLUS | FUSE_CAP_READDIRPLUS_AUTO | FUSE_CAP_CACHE_SYMLINKS |
                                FUSE_CAP_EXPLICIT_INVAL_DATA | FUSE_CAP_POSIX_ACL | FUSE_CAP_DONT_MASK |
                                FUSE_CAP_EXPORT_SUPPORT | FUSE_CAP_IOCTL_DIR;
    // Left out on purpose: ATOMIC_O_TRUNC (the kernel does not keep appending writes away from such an open,
    // and they would land behind zeros), WRITEBACK_CACHE (times and sizes would be the kernel's), the lock
    // flags (locks stay local), SPLICE (every byte is hashed anyway), AUTO_INVAL_DATA (this mount is the only
    // writer), HANDLE_KILLPRIV (its version 2 is asked for in fuse/init_exchange.cc; where the kernel lacks
    // that, it clears set-id bits itself).
    connection->want = connection->capable & wanted;
    connection->max_write = static_cast<Frontend*>(frontend)->transfer_bytes();
    connection->max_readahead = kMaxReadAheadBytes;
    connection->max_background = kMaxBackground;
    connection->congestion_threshold = kCongestionThreshold;
    connection->time_gran = 1;
}

// The kernel takes less from users who are not root; this is the most it takes from them.
uint32_t background_max()
{
    const UniqueFd file(open("/sys/module/fuse/parameters/max_user_bgreq", O_RDONLY | O_CLOEXEC));
    char text[16] = {};
    if (!file.valid() || read(file.get(), text, sizeof text - 1) <= 0)
        return kMaxBackground;
    return std::clamp<uint32_t>(static_cast<uint32_t>(strtoul(text, nullptr, 10)), 2, kMaxBackground);
}

// As many as keep the processors busy while some wait for devices that answer at once.
uint32_t threads_least()
{
    return kThreadsPerProcessor * std::max(1U, std::thread::hardware_concurrency());
}

fuse_lowlevel_ops make_ops()
{
    fuse_lowlevel_ops ops{};
    ops.init = on_init;
    add_name_ops(ops);
    add_attribute_ops(ops);
    add_directory_ops(ops);
    add_file_ops(ops);
    add_seek_ops(ops);
    add_ioctl_ops(ops);
    add_xattr_ops(ops);
    return ops;
}

void log_from_libfuse(fuse_log_level level, const char* format, va_list arguments)
{
    char line[512];
    vsnprintf(line, sizeof line, format, arguments);
    line[strcspn(line, "\n")] = '\0';
    const bool serious = level <= FUSE_LOG_ERR;
    log_message(serious ? LogLevel::kError : LogLevel::kDebug, "%s", line);
}

void do_nothing(int) { }

}  // namespace

Result<std::unique_ptr<Session>> Session::create(Filesystem& filesystem, const SessionOptions& options)
{
    fuse_set_log_func(log_from_libfuse);
    std::unique_ptr<Session> session(new Session(options));
    session->frontend_ = std::make_unique<Frontend>(
        background_max(), std::min(threads_least(), options.max_threads), options.max_threads,
        std::min<uint64_t>(PageCacheMap::kMemoryMax, filesystem.store.options.memory_bytes / 16));
    Frontend& frontend = *session->frontend_;
    frontend.filesystem = &filesystem;
    frontend.root = options.root;
    frontend.page_dropper.set_host(options.page_dropper_host);
    frontend.range_dropper.set_host(options.page_dropper_host);

    static const fuse_lowlevel_ops ops = make_ops();
    char program[] = "cowraid";
    char* arguments[] = {program, nullptr};
    fuse_args args = FUSE_ARGS_INIT(1, arguments);
    frontend.session = fuse_session_new(&args, &ops, sizeof ops, &frontend);
    fuse_opt_free_args(&args);  // libfuse has put a copy there
    if (frontend.session == nullptr)
        return Err::kIo;
    return session;
}

Session::Session(const SessionOptions& options) : options_(options) { }

Session::~Session()
{
    if (frontend_->session != nullptr)
        fuse_session_destroy(frontend_->session);
}

void Session::finish_requests()
{
    frontend_->page_dropper.stop();
    frontend_->range_dropper.stop();
    frontend_->filesystem->committer.discards.end_trims();
    wait_for_parked(*frontend_);
}

// Replaced, not closed: the number stays libfuse's, and a stop() that comes late still finds its session.
void Session::disconnect()
{
    const int connection = fuse_session_fd(frontend_->session);
    const UniqueFd null(open("/dev/null", O_RDWR | O_CLOEXEC));
    if (connection >= 0 && null.valid())
        dup3(null.get(), connection, O_CLOEXEC);
    frontend_->unmounting = UniqueFd();
}

Status Session::start_threads()
{
    CW_TRY(frontend_->serving_threads.start());
    CW_TRY(frontend_->invalidator.start());
    CW_TRY(frontend_->range_invalidator.start());
    CW_TRY(frontend_->long_requests.start());
    CW_TRY(frontend_->waiting_requests.start());
    return frontend_->waiting_names.start();
}

void Session::finish_queues()
{
    frontend_->long_requests.finish();
    frontend_->waiting_requests.finish();
    frontend_->waiting_names.finish();
    frontend_->range_invalidator.finish();
    frontend_->invalidator.finish();  // last: it refuses direct writes from then on
}

Status Session::serve(UniqueFd fuse_fd)
{
    fuse_session* const session = frontend_->session;
    if (fuse_session_custom_io(session, &session_io(), fuse_fd.get()) != 0)
        return Err::kIo;
    (void)fuse_fd.release();  // the session's now

    struct sigaction wake { };
    wake.sa_handler = do_nothing;  // without SA_RESTART: a wait returns
    sigaction(kWakeSignal, &wake, nullptr);

    fuse_loop_config* const config = fuse_loop_cfg_create();
    fuse_loop_cfg_set_clone_fd(config, 1);
    fuse_loop_cfg_set_max_threads(config, options_.max_threads);
    fuse_loop_cfg_set_idle_threads(config, options_.max_threads);
    serving_thread_.store(pthread_self());
    serving_.store(true);
    const int result = fuse_session_loop_mt(session, config);
    serving_.store(false);
    finish_queues();
    frontend_->serving_threads.finish();
    fuse_loop_cfg_destroy(config);
    return result >= 0 ? Status() : Status(Err::kIo);
}

void Session::stop()
{
    // While requests are served: dropping pages may wait for some.
    finish_queues();
    fuse_session_exit(frontend_->session);
    // The serving thread looks at the flag between waits; a signal sent just before it waits is lost, so
    // repeat until it has left.
    while (serving_.load()) {
        pthread_kill(serving_thread_.load(), kWakeSignal);
        const timespec pause{.tv_sec = 0, .tv_nsec = kStopRetryNanoseconds};
        nanosleep(&pause, nullptr);
    }
}

}  // namespace cowraid
