// SPDX-License-Identifier: MIT
// Random operations, on the filesystem and on the model alike, with their results compared.
#pragma once

#include <string>
#include <vector>

#include "fs/txn/no_wait.h"
#include "tests/sim/injector.h"
#include "tests/sim/world.h"

namespace cowraid::test {

class Actor {
public:
    Actor(World& world, const Injector& injector) : world_(world), injector_(injector) { }

    // One operation, chosen by chance. Afterwards the world may have failed or lost power.
    void step();
    // Everything done so far becomes durable, by sync or by the commit thread's round.
    void commit();
    // The same by fsync of some inode, or by fdatasync, which may have nothing to do.
    void fsync();
    // Takes most of the room away (once, on a tight volume), so that operations meet its end.
    void fill_volume();

private:
    Filesystem& fs() { return world_.fs(); }
    // As the front end: first in a thread that may not wait, then, with kWouldWait, in one that may.
    template <typename Call> auto serve(Call call)
    {
        {
            const NoWait scope;
            auto done = call();
            if (done.err() != Err::kWouldWait)
                return done;
        }
        world_.events.add(Event::kWouldWait);
        return call();
    }
    // All steps of a change, each served.
    template <typename Change> Err finish(Result<Change> begun)
    {
        if (!begun.ok())
            return begun.err();
        while (true) {
            const Result<Progress> progress = serve([&] { return (*begun)->step(); });
            if (!progress.ok() || *progress == Progress::kDone)
                return progress.err();
        }
    }
    Prng& prng() { return world_.prng; }
    Model& model() { return world_.now; }

    // Choosing.
    using Wanted = bool (*)(const ModelInode&);
    InodeNumber some_inode(Wanted wanted);
    InodeNumber some_directory();
    InodeNumber some_file();
    std::string some_name();
    std::string some_name_in(InodeNumber directory);
    // Of a lookup-like call: kept now and then, so that inodes outlive their names.
    void receive_reference(InodeNumber inode);
    [[nodiscard]] bool crowded() const { return world_.now.inodes().size() > 160; }

    // Names (actor_names.cc).
    void step_names();
    void make(uint32_t type);
    void make_symlink();
    void add_made(const Result<Attributes>& made, InodeNumber parent, const std::string& name,
                  ModelInode inode);
    void link();
    void remove();
    void rename();
    void count_rename(const Model::Rename& rename);
    void lookup();
    void forget();
    void list_names();

    // Attributes (actor_attributes.cc).
    void step_attributes();
    void set_attributes();
    void set_xattr();
    void remove_xattr();
    void look_at_inode();

    // Data (actor_data.cc).
    void step_data();
    uint64_t some_offset(const ModelInode& inode);
    std::vector<std::byte> some_bytes();
    void write();
    void append();
    void write_bytes(InodeNumber inode, uint64_t offset, const std::vector<std::byte>& bytes, bool append);
    void resize();
    void change_range();
    void finish_steps(const char* what, HalfChanged change, Err got, Growth growth);
    void read();
    void note_modified(InodeNumber inode);
    void write_reserved();

    // Durability.
    void step_durability();
    void flush();
    void clean();
    void scrub();
    bool control_scrub();
    void balance();
    bool control_balance();
    void catch_up();
    void check_data_durable(InodeNumber file);

    World& world_;
    const Injector& injector_;
    InodeNumber filler_;  // 0: none
};

}  // namespace cowraid::test
