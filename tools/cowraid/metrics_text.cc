// SPDX-License-Identifier: MIT
#include "tools/cowraid/metrics_text.h"

#include <algorithm>
#include <utility>

#include "base/text.h"

namespace cowraid {

namespace {

// Names and values of labels.
using Labels = std::vector<std::pair<const char*, std::string>>;

std::string escaped(const std::string& value)
{
    std::string out;
    for (const char c : value) {
        if (c == '\\' || c == '"')
            out += '\\';
        if (c == '\n')
            out += "\\n";
        else
            out += c;
    }
    return out;
}

enum class MetricType : uint8_t { kGauge, kCounter };

class MetricList {
public:
    // The volume that samples are added of.
    void set_volume(const std::string& uuid) { volume_ = uuid; }
    void add(const char* name, MetricType type, const char* help, uint64_t value, const Labels& labels = {});
    // One sample of each word, 1 for the one that is.
    void add_state(const char* name, const char* help, std::string_view state,
                   const std::vector<const char*>& words, const Labels& labels = {});
    [[nodiscard]] std::string text() const;

private:
    struct Metric {
        std::string name, head, samples;
    };
    std::string volume_;
    std::vector<Metric> metrics_;
};

void MetricList::add(const char* name, MetricType type, const char* help, uint64_t value,
                     const Labels& labels)
{
    auto metric =
        std::find_if(metrics_.begin(), metrics_.end(), [=](const Metric& one) { return one.name == name; });
    if (metric == metrics_.end()) {
        const std::string head = "# HELP " + std::string(name) + " " + help + "\n# TYPE " + name +
                                 (type == MetricType::kGauge ? " gauge\n" : " counter\n");
        metric = metrics_.insert(metric, {name, head, ""});
    }
    metric->samples += std::string(name) + "{volume=\"" + volume_ + '"';
    for (const auto& [label, text] : labels)
        metric->samples += std::string(",") + label + "=\"" + escaped(text) + '"';
    metric->samples += "} " + std::to_string(value) + "\n";
}

void MetricList::add_state(const char* name, const char* help, std::string_view state,
                           const std::vector<const char*>& words, const Labels& labels)
{
    for (const char* const word : words) {
        Labels with = labels;
        with.emplace_back("state", word);
        add(name, MetricType::kGauge, help, state == word ? 1 : 0, with);
    }
}

std::string MetricList::text() const
{
    std::string out;
    for (const Metric& metric : metrics_)
        out += metric.head + metric.samples;
    return out;
}

constexpr MetricType kGauge = MetricType::kGauge, kCounter = MetricType::kCounter;

struct NumberMetric {
    const char* name;
    MetricType type;
    const char* help;
    uint64_t VolumeInfo::*field;
};
constexpr NumberMetric kNumbers[] = {
    {"cowraid_tolerance_members", kGauge, "Members that may still fail.", &VolumeInfo::may_fail},
    {"cowraid_available_bytes", kGauge, "What can still be written, as df says.",
     &VolumeInfo::available_bytes},
    {"cowraid_unallocated_bytes", kGauge, "On members, in no block group.",
     &VolumeInfo::unallocated_raw_bytes},
    {"cowraid_dirty_bytes", kGauge, "Written and not committed.", &VolumeInfo::dirty_bytes},
    {"cowraid_commits_total", kCounter, "Commits since mounting.", &VolumeInfo::commits},
    {"cowraid_fsync_records_total", kCounter, "Records of the fsync log since mounting.",
     &VolumeInfo::fsync_records},
    {"cowraid_data_written_bytes_total", kCounter, "Data written to the array since mounting.",
     &VolumeInfo::data_bytes_written},
    {"cowraid_members_written_bytes_total", kCounter, "The same with parity and copies.",
     &VolumeInfo::member_bytes_written},
    {"cowraid_reconstructed_blocks_total", kCounter, "Blocks had from redundancy since mounting.",
     &VolumeInfo::blocks_reconstructed},
    {"cowraid_repaired_blocks_total", kCounter, "Blocks rewritten from redundancy since mounting.",
     &VolumeInfo::blocks_repaired},
    {"cowraid_unrecoverable_blocks_total", kCounter, "Blocks that could not be had since mounting.",
     &VolumeInfo::blocks_unrecoverable},
    {"cowraid_cleaned_groups_total", kCounter, "Block groups that the cleaner emptied since mounting.",
     &VolumeInfo::emptied_groups},
    {"cowraid_cleaner_moved_blocks_total", kCounter, "Blocks that it moved since mounting.",
     &VolumeInfo::moved_blocks},
    {"cowraid_discarded_bytes_total", kCounter, "Bytes of members that were discarded since mounting.",
     &VolumeInfo::discarded_bytes},
    {"cowraid_device_reads_total", kCounter, "Requests to read from members since mounting.",
     &VolumeInfo::device_reads},
    {"cowraid_device_read_bytes_total", kCounter, "Bytes of them.", &VolumeInfo::device_read_bytes},
    {"cowraid_device_writes_total", kCounter, "Requests to write to members since mounting.",
     &VolumeInfo::device_writes},
    {"cowraid_device_write_bytes_total", kCounter, "Bytes of them.", &VolumeInfo::device_write_bytes},
    {"cowraid_device_flushes_total", kCounter, "Flushes of members since mounting.",
     &VolumeInfo::device_flushes},
};

void add_volume(MetricList& list, const VolumeStatus& status)
{
    const VolumeInfo& info = status.report.info;
    const Health health = health_of(status);
    list.add("cowraid_volume_info", kGauge, "Always 1; label and mount point of the volume.", 1,
             {{"label", info.label},
              {"mount_point", status.report.mount_point},
              {"data_profile", profile_name(info.data_profile)},
              {"metadata_profile", profile_name(info.metadata_profile)}});
    list.add("cowraid_healthy", kGauge, "1 when cowraid status -x has nothing to say.",
             health.what.empty() ? 1 : 0);
    list.add_state("cowraid_state", "1 for the state that cowraid status shows.",
                   std::string_view(health.state).substr(0, std::string_view(health.state).find(',')),
                   {"ONLINE", "DEGRADED", "DAMAGED", "READ-ONLY"});
    list.add("cowraid_read_only", kGauge, "1 when nothing can be written.", info.read_only ? 1 : 0);
    list.add("cowraid_lost_blocks", kGauge,
             "Blocks in use that no redundancy has, as cowraid status -v lists them.", lost_blocks(status));
    for (const NumberMetric& number : kNumbers)
        list.add(number.name, number.type, number.help, info.*number.field);
    if (info.compression_counted) {
        list.add("cowraid_compressed_file_bytes", kGauge, "Of files, stored compressed.",
                 info.compressed_file_bytes);
        list.add("cowraid_compressed_bytes", kGauge, "What that takes, parity and copies not counted.",
                 info.compressed_bytes);
    }
    for (const SpaceInfo& space : info.spaces) {
        const Labels labels = {{"content", content_name(space.content)},
                               {"profile", profile_name(space.profile)}};
        list.add("cowraid_space_total_bytes", kGauge, "Of block groups, by content and profile.",
                 space.total_bytes, labels);
        list.add("cowraid_space_used_bytes", kGauge, "In use of that.", space.used_bytes, labels);
        list.add("cowraid_space_raw_bytes", kGauge, "What it takes on members.", space.raw_bytes, labels);
    }
}

void add_members(MetricList& list, const VolumeStatus& status)
{
    const VolumeInfo& info = status.report.info;
    for (const MemberInfo& member : info.members) {
        const std::string id = std::to_string(member.id.value);
        list.add("cowraid_member_info", kGauge, "Always 1; the device of the member.", 1,
                 {{"member", id}, {"device", member.path}});
        list.add_state("cowraid_member_state", "1 for the state that cowraid status shows.",
                       state_of(member, status),
                       {"online", "degraded", "stale", "rebuilding", "replacing", "successor", "faulted",
                        "missing", "unusable"},
                       {{"member", id}});
        list.add("cowraid_member_size_bytes", kGauge, "Size of the member.", member.size_bytes,
                 {{"member", id}});
        list.add("cowraid_member_allocated_bytes", kGauge, "In block groups.", member.used_bytes,
                 {{"member", id}});
        list.add("cowraid_member_stale_bytes", kGauge, "In block groups of which it lacks writes.",
                 member.stale_bytes, {{"member", id}});
        list.add("cowraid_member_waiting_milliseconds", kGauge,
                 "For how long its oldest request waits, if that is more than read_deadline=.",
                 member.slow_ms, {{"member", id}});
        list.add("cowraid_member_slow_ios_total", kCounter, "Requests that took longer than slow_io=.",
                 member.slow_ios, {{"member", id}});
        for (size_t kind = 0; kind < member.counters.size(); ++kind)
            list.add("cowraid_member_errors_total", kCounter, "As cowraid device stats counts them.",
                     member.counters[kind], {{"member", id}, {"kind", counter_name(kind)}});
    }
}

struct ScrubMetric {
    const char* name;
    const char* help;
    uint64_t ScrubStatus::*field;
};
constexpr ScrubMetric kScrubNumbers[] = {
    {"_done_bytes", "Bytes of members that it has done.", &ScrubStatus::bytes_done},
    {"_total_bytes", "Bytes of members that it has to do.", &ScrubStatus::bytes_total},
    {"_data_blocks", "Blocks of data that were verified.", &ScrubStatus::data_blocks},
    {"_parity_blocks", "Blocks of parity that were verified.", &ScrubStatus::parity_blocks},
    {"_repaired_blocks", "Blocks that were repaired.", &ScrubStatus::repaired},
    {"_unrepaired_blocks", "Blocks that were not repaired, and can be.", &ScrubStatus::unrepaired},
    {"_unverified_blocks", "Blocks on members out of service.", &ScrubStatus::unverified},
    {"_lost_blocks", "Blocks that redundancy does not have.", &ScrubStatus::lost},
    {"_started_timestamp_seconds", "When it began; 0: none yet.", &ScrubStatus::started},
};

void add_numbers(MetricList& list, const std::string& prefix, const ScrubStatus& status, uint64_t finished)
{
    for (const ScrubMetric& metric : kScrubNumbers)
        list.add((prefix + metric.name).c_str(), kGauge, metric.help, status.*metric.field);
    list.add((prefix + "_finished_timestamp_seconds").c_str(), kGauge,
             "When the last one reached its end; 0: none yet, or one is under way.", finished);
}

void add_scrub(MetricList& list, const std::string& prefix, const char* what, const ScrubStatus& status)
{
    list.add_state((prefix + "_state").c_str(), what, scrub_state_name(status.state),
                   {scrub_state_name(ScrubState::kNone), scrub_state_name(ScrubState::kRunning),
                    scrub_state_name(ScrubState::kPaused), scrub_state_name(ScrubState::kFinished),
                    scrub_state_name(ScrubState::kCancelled)});
    add_numbers(list, prefix, status, status.state == ScrubState::kFinished ? status.ended : 0);
}

void add_replace(MetricList& list, const ReplaceStatus& status)
{
    using State = ReplaceStatus::State;
    list.add_state("cowraid_replace_state", "1 for the state of the last replacement of a member.",
                   replace_state_name(status.state),
                   {replace_state_name(State::kNone), replace_state_name(State::kRunning),
                    replace_state_name(State::kWaiting), replace_state_name(State::kPaused),
                    replace_state_name(State::kFinished), replace_state_name(State::kCancelled),
                    replace_state_name(State::kFailed)});
    list.add("cowraid_replace_member", kGauge, "The member that is replaced; 0: none.", status.source.value);
    list.add("cowraid_replace_copied_groups", kGauge, "Block groups of which the new device has all.",
             status.groups_copied);
    list.add("cowraid_replace_total_groups", kGauge, "Block groups of which the member has a part.",
             status.groups_total);
    ScrubStatus copy = status.copy;
    copy.started = status.started;
    add_numbers(list, "cowraid_replace", copy, status.state == State::kFinished ? status.ended : 0);
}

void add_spares(MetricList& list, const VolumeInfo& info)
{
    for (const SpareInfo& spare : info.spares) {
        const std::string id = std::to_string(spare.id.value);
        list.add("cowraid_spare_info", kGauge, "Always 1; the device of the spare.", 1,
                 {{"spare", id}, {"device", spare.path}});
        list.add_state("cowraid_spare_state",
                       "1 for the state that cowraid status shows; only one that is spare is of use.",
                       state_of(spare), {"spare", "missing", "faulted"}, {{"spare", id}});
        list.add("cowraid_spare_size_bytes", kGauge, "Size of the spare.", spare.size_bytes, {{"spare", id}});
    }
}

void add_balance(MetricList& list, const BalanceStatus& status)
{
    list.add("cowraid_balance_active", kGauge, "1 while a balance runs or is paused.",
             status.active() ? 1 : 0);
    list.add("cowraid_balance_left_bytes", kGauge, "In use in groups that it has to empty.",
             status.bytes_left);
    list.add("cowraid_balance_total_bytes", kGauge, "The same when it began.", status.bytes_total);
}

}  // namespace

std::string metrics_text(const std::vector<VolumeStatus>& volumes,
                         const std::vector<UnansweredVolume>& unanswered)
{
    MetricList list;
    constexpr const char* kUp = "cowraid_up";
    constexpr const char* kUpHelp =
        "1 when the daemon said how its volume is; else nothing else is there of it.";
    for (const UnansweredVolume& volume : unanswered) {
        list.set_volume(volume.uuid);
        list.add(kUp, kGauge, kUpHelp, 0, {{"pid", std::to_string(volume.pid)}});
    }
    for (const VolumeStatus& status : volumes) {
        list.set_volume(uuid_text(status.report.info.uuid));
        list.add(kUp, kGauge, kUpHelp, 1);
        add_volume(list, status);
        add_members(list, status);
        add_spares(list, status.report.info);
        add_scrub(list, "cowraid_scrub", "1 for the state of the last scrub.", status.scrub);
        add_scrub(list, "cowraid_rebuild", "1 for the state of the last filling of members.",
                  status.catch_up);
        add_replace(list, status.replace);
        add_balance(list, status.balance);
    }
    return list.text();
}

}  // namespace cowraid
