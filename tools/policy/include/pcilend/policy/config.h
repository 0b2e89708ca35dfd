// SPDX-License-Identifier: GPL-2.0-or-later
// What this host is to lend: /etc/pcilend/*.json (docs/configuration.md).
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "pcilend/policy/filter.h"

namespace pcilend::policy {

inline constexpr const char* kDirectory = "/etc/pcilend";
inline constexpr const char* kFiltersFile = "/etc/pcilend/filters.json";  // of the filter commands
inline constexpr const char* kKindsFile = "/etc/pcilend/kinds.json";      // of the kind commands
inline constexpr const char* kBorrowFile = "/etc/pcilend/borrow.json";    // of `borrow --boot`
inline constexpr const char* kSavedFile = "/etc/pcilend/saved.json";      // of `pcilend save`

// Which nodes see a function.
struct Audience {
  bool all = true;  // that are connected
  std::vector<uint32_t> nodes;

  bool operator==(const Audience&) const = default;
};

// A node that is let in over this adapter, and no other node is.
struct Pin {
  PciAddress adapter;
  uint32_t node = 0;
  std::string place;  // "/etc/pcilend/saved.json: pins[0]"
};

struct DeviceIds {
  uint16_t vendor = 0;
  uint16_t device = 0;

  bool operator==(const DeviceIds&) const = default;
};

// One function. What is absent is left as it is.
struct FunctionEntry {
  // It is the one with this UUID, wherever it is installed now; without, the one at this address
  // if it is of this device.
  std::optional<Uuid> uuid;
  std::optional<PciAddress> address;
  std::optional<DeviceIds> device;
  std::optional<FunctionId> id;
  bool available = false;  // else added only
  std::optional<std::string> label;
  std::optional<Audience> allow;
  bool force = false;            // take it though its disk is in use
  bool direct = false;           // lend it without an IOMMU
  bool sanitize = false;         // erase it after each lease
  std::optional<uint64_t> near;  // bytes of this host's memory for its borrower
  std::string place;             // "/etc/pcilend/saved.json: functions[2]"
};

enum class FilterKind { Add, Available, Unavailable };
inline constexpr FilterKind kFilterKinds[] = {FilterKind::Add, FilterKind::Available,
                                              FilterKind::Unavailable};
std::string_view name_of(FilterKind kind);  // its key below "filters"

// All functions that match. Unavailable wins over everything; available includes add.
struct Filter {
  FilterKind kind = FilterKind::Add;
  Pattern pattern;
  std::optional<std::string> label;
  std::optional<Audience> allow;
  bool force = false;
  std::string file;
  std::string place;
};

// A kind of functions, which mediated devices can be any function of. An empty part says nothing.
struct KindEntry {
  std::string name;
  std::string device;  // -d: [VENDOR]:[DEVICE][:CLASS[:INTERFACE]]
  std::string function;
  std::string label;
  std::string text;   // all of it, as the kernel shows it: "fast device=144d::0108"
  std::string place;  // "/etc/pcilend/kinds.json: kinds[0]"
};

// A function of another host that this one borrows when it boots.
struct BorrowEntry {
  Uuid uuid;
  std::string frontend;  // "shadow" or "vfio"
  std::string owner;
  std::optional<PciAddress> adapter;  // the path; else the best one
  std::string place;                  // "/etc/pcilend/borrow.json: borrow[0]"
};

struct Config {
  std::vector<uint32_t> connections;  // node ids, ascending
  std::vector<Pin> pins;              // one for each adapter; their nodes are connected, too
  std::vector<FunctionEntry> functions;
  std::vector<Filter> filters;
  std::vector<KindEntry> kinds;
  std::vector<BorrowEntry> borrow;
};

// Reads one file's text; `name` stands in errors. Every value is checked.
Result<Config> parse_config(const std::string& name, std::string_view text);

// Reads all files but `except`, by name. A function, pin, kind or borrow that an earlier file has
// too is replaced, lists grow. An error in one file is an error of the whole.
Result<Config> load_config(const Environment& environment, std::string_view except = {});

// The text of a file that parses to this. Places are not written.
std::string format_config(const Config& config);

// Replaces one file, so that after a power cut the old or the new one is there.
Result<> write_config(const Environment& environment, std::string_view file, const Config& config);

// What files may have, as in pcilend.schema.json.
struct SchemaKeys {
  std::vector<std::string_view> file, pin, function, filters, filter, states, kind, borrow,
      frontends;
};
SchemaKeys schema_keys();

}  // namespace pcilend::policy
