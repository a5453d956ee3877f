// SPDX-License-Identifier: MIT
// Each area is a function that runs as root in a directory of its own, which is removed afterwards.
#pragma once

namespace cowraid::posix {

void test_missing_features();
void test_open_flags();
void test_access_by_mode();
void test_execution();
void test_creation();
void test_set_group_directories();
void test_removal();
void test_sticky_directories();
void test_rename_matrix();
void test_rename_rights();
void test_rename_corners();
void test_links();
void test_modes();
void test_owners();
void test_set_id_bits();
void test_set_times();
void test_truncation();
void test_reads_and_writes();
void test_size_limits();
void test_holes();
void test_allocation();
void test_copied_ranges();
void test_attributes();
void test_attribute_limits();
void test_security_attributes();
void test_acl_access();
void test_acl_inheritance();
void test_acl_rules();
void test_record_locks();
void test_whole_file_locks();
void test_names();
void test_paths();
void test_many_links();
void test_changed_times();
void test_read_times();
void test_stat();
void test_directories();
void test_mappings();
void test_sync_calls();
void test_handles();
void test_open_files();
void test_inode_flags();
void test_temporary_files();
void test_whiteouts();

}  // namespace cowraid::posix
