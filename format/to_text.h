// SPDX-License-Identifier: MIT
// Structures as text, for dump tools, logs and failed tests. Records of one line have no newline at the
// end; tables end every line with one. Not a stable interface: programs read --json.
#pragma once

#include <string>

#include "format/group_map_codec.h"
#include "format/items.h"
#include "format/node.h"
#include "format/superblock_codec.h"

namespace cowraid {

const char* member_state_name(MemberState state);
// "data|metadata"; unknown bits as a number.
std::string group_content_name(uint32_t content);

std::string to_text(const BlockRef& ref);
std::string to_text(const MapRef& map);
std::string to_text(const EpochRecord& epoch);
std::string to_text(const BalanceRecord& balance);
std::string to_text(const MemberRecord& member);
std::string to_text(const Superblock& superblock);  // a table
std::string to_text(const GroupRecord& group);
std::string to_text(const GroupMap& map);  // a table

std::string to_text(const DiskNodeHeader& header);
std::string to_text(const DiskLeafItem& item);
std::string to_text(const DiskChildItem& item);
std::string to_text(const DiskTreeRoot& item);
std::string to_text(const DiskVolume& item);
std::string to_text(const DiskTime& time);
std::string to_text(const DiskInode& item);
std::string to_text(const DiskLink& item);
std::string to_text(const DiskDirent& item);
std::string to_text(const DiskXattr& item);
std::string to_text(const DiskExtent& item);
std::string to_text(const DiskDamage& item);
std::string to_text(const DiskChecksumWindow& item);
std::string to_text(const DiskGroupSummary& item);
std::string to_text(const DiskSpaceWindow& item);
std::string to_text(const DiskRemapWindow& item);

}  // namespace cowraid
