// SPDX-License-Identifier: GPL-2.0-or-later
// The columns of listings: their names, and the value each has. JSON objects have the same keys.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string_view>
#include <vector>

#include "disk/record.h"
#include "pcilend/model.h"
#include "pcilend/pci_names.h"
#include "pcilend/policy/kinds.h"

namespace pcilend {

using Json = nlohmann::ordered_json;

template <class T>
struct Column {
  std::string_view name;
  Json (*value)(const T&, const PciNames&);
};

// All columns, in the order of JSON output.
const std::vector<Column<Function>>& function_columns();
const std::vector<Column<Link>>& link_columns();
const std::vector<Column<policy::PresentKind>>& kind_columns();
const std::vector<Column<Segment>>& segment_columns();
const std::vector<Column<nvme::DiskRecord>>& disk_columns();

// The columns named in `list` (comma-separated), in that order; all of them without a list.
// Usage with the names that exist if one is unknown.
template <class T>
Result<std::vector<Column<T>>> select_columns(const std::vector<Column<T>>& all,
                                              const std::optional<std::string>& list);

// Objects with the columns as keys.
template <class T>
Json json_list(const std::vector<T>& things, const std::vector<Column<T>>& columns,
               const PciNames& names);
Json node_json(const Node& node);

extern template Json json_list(const std::vector<Function>&, const std::vector<Column<Function>>&,
                               const PciNames&);
extern template Json json_list(const std::vector<Link>&, const std::vector<Column<Link>>&,
                               const PciNames&);
extern template Json json_list(const std::vector<Segment>&, const std::vector<Column<Segment>>&,
                               const PciNames&);
extern template Json json_list(const std::vector<nvme::DiskRecord>&,
                               const std::vector<Column<nvme::DiskRecord>>&, const PciNames&);
extern template Json json_list(const std::vector<policy::PresentKind>&,
                               const std::vector<Column<policy::PresentKind>>&, const PciNames&);
extern template Result<std::vector<Column<Function>>> select_columns(
    const std::vector<Column<Function>>&, const std::optional<std::string>&);
extern template Result<std::vector<Column<Link>>> select_columns(const std::vector<Column<Link>>&,
                                                                 const std::optional<std::string>&);
extern template Result<std::vector<Column<Segment>>> select_columns(
    const std::vector<Column<Segment>>&, const std::optional<std::string>&);
extern template Result<std::vector<Column<nvme::DiskRecord>>> select_columns(
    const std::vector<Column<nvme::DiskRecord>>&, const std::optional<std::string>&);
extern template Result<std::vector<Column<policy::PresentKind>>> select_columns(
    const std::vector<Column<policy::PresentKind>>&, const std::optional<std::string>&);

}  // namespace pcilend
