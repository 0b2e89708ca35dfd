// SPDX-License-Identifier: GPL-2.0-or-later
#include "pcilend/policy/config.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "pcilend/kind.h"
#include "pcilend/policy/json_value.h"
#include "pcilend/policy/kinds.h"

namespace pcilend::policy {
namespace {

namespace fs = std::filesystem;
using nlohmann::ordered_json;

constexpr size_t kFileBytes = 1 << 20;
constexpr size_t kLabelBytes = 63;  // PCILEND_A_LABEL
constexpr std::string_view kAll = "all";

constexpr size_t kOwnerBytes = 63;  // PCILEND_A_OWNER

constexpr std::array<std::string_view, 7> kFileKeys{"$schema", "connections", "pins",  "functions",
                                                    "filters", "kinds",       "borrow"};
constexpr std::array<std::string_view, 2> kPinKeys{"adapter", "node"};
constexpr std::array<std::string_view, 11> kFunctionKeys{"uuid",   "bdf",      "device", "id",
                                                         "state",  "label",    "allow",  "force",
                                                         "direct", "sanitize", "near"};
constexpr std::array<std::string_view, 3> kFiltersKeys{"add", "available", "unavailable"};
constexpr std::array<std::string_view, 5> kFilterKeys{"device", "slot", "label", "allow", "force"};
constexpr std::array<std::string_view, 4> kKindKeys{"name", "device", "function", "label"};
constexpr std::array<std::string_view, 4> kBorrowKeys{"uuid", "frontend", "owner", "adapter"};
constexpr std::array<std::string_view, 2> kFrontends{"shadow", "vfio"};
constexpr std::array<std::string_view, 2> kStates{"added", "available"};

// The value of an optional key, read by `read`; its error points at the key.
template <class T, class Read>
Result<> take(const JsonValue& object, std::string_view key, Read read, T* value) {
  const auto found = object.find(key);
  if (!found) return {};
  auto got = read(*found);
  if (!got) return tl::unexpected(std::move(got).error());
  *value = std::move(*got);
  return {};
}

// The elements of an optional list of `key`, each read by `read`.
template <class T, class Read>
Result<> read_each(const JsonValue& object, std::string_view key, Read read, std::vector<T>* all) {
  const auto found = object.find(key);
  if (!found) return {};
  const auto list = found->list(key);
  if (!list) return tl::unexpected(list.error());
  for (const auto& element : *list) {
    auto value = read(element);
    if (!value) return tl::unexpected(std::move(value).error());
    all->push_back(std::move(*value));
  }
  return {};
}

// Text that `parse` understands; its complaint is put at the value's place.
template <class Parse>
auto read_parsed(const JsonValue& value, Parse parse)
    -> Result<std::decay_t<decltype(*parse(std::string()))>> {
  const auto text = value.text();
  if (!text) return tl::unexpected(text.error());
  auto parsed = parse(*text);
  if (!parsed) return value.fail(parsed.error().message);
  return *parsed;
}

Result<uint32_t> read_node(const JsonValue& value) {
  if (!value.json().is_number_unsigned()) return value.fail(value.shown() + " is not a node id");
  const auto number = value.json().get<uint64_t>();
  if (number < 1 || number > 65535)
    return value.fail(value.shown() + " is not a node id: a number from 1 to 65535");
  return static_cast<uint32_t>(number);
}

Result<std::vector<uint32_t>> read_nodes(const JsonValue& value) {
  const auto list = value.list("node ids");
  if (!list) return tl::unexpected(list.error());
  std::vector<uint32_t> nodes;
  for (const auto& element : *list) {
    const auto node = read_node(element);
    if (!node) return tl::unexpected(node.error());
    nodes.push_back(*node);
  }
  std::sort(nodes.begin(), nodes.end());
  nodes.erase(std::unique(nodes.begin(), nodes.end()), nodes.end());
  return nodes;
}

Result<Audience> read_audience(const JsonValue& value) {
  if (value.json().is_string()) {
    if (value.json() != kAll)
      return value.fail(value.shown() + " is not 'all' or a list of node ids");
    return Audience{};
  }
  auto nodes = read_nodes(value);
  if (!nodes) return tl::unexpected(std::move(nodes).error());
  return Audience{false, std::move(*nodes)};
}

Result<std::string> read_label(const JsonValue& value) {
  auto label = value.text();
  if (!label) return label;
  const bool plain =
      std::all_of(label->begin(), label->end(), [](char c) { return c >= ' ' && c <= '~'; });
  if (label->size() > kLabelBytes || !plain)
    return value.fail(fmt::format("{} is not a label: at most {} characters of ASCII",
                                  value.shown(), kLabelBytes));
  return label;
}

Result<DeviceIds> parse_device_ids(const std::string& text) {
  const auto part = [&](size_t at, uint16_t* id) {
    const char* const end = text.data() + at + 4;
    return std::from_chars(text.data() + at, end, *id, 16).ptr == end;
  };
  DeviceIds ids;
  if (text.size() != 9 || text[4] != ':' || !part(0, &ids.vendor) || !part(5, &ids.device))
    return fail(ErrorClass::Usage, "'{}' is not VENDOR:DEVICE in hex, as 'lspci -n' prints them",
                text);
  return ids;
}

Result<Pin> read_pin(const JsonValue& value) {
  PCILEND_TRY(value.check_keys(kPinKeys));
  std::optional<PciAddress> adapter;
  Pin pin;
  pin.place = value.place();
  PCILEND_TRY(take(
      value, "adapter", [](const JsonValue& v) { return read_parsed(v, parse_pci_address); },
      &adapter));
  PCILEND_TRY(take(value, "node", read_node, &pin.node));
  if (!adapter) return value.fail("no 'adapter': say which, as 'pcilend link' prints it");
  if (!pin.node) return value.fail("no 'node': say which one is behind the adapter");
  pin.adapter = *adapter;
  return pin;
}

constexpr uint64_t kNearMax = uint64_t{1} << 30;  // pcilend.ko's

Result<std::optional<uint64_t>> read_near(const JsonValue& value) {
  if (value.json().is_number_unsigned()) {
    const auto bytes = value.json().get<uint64_t>();
    if (bytes % 4096 == 0 && bytes <= kNearMax) return std::optional(bytes);
  }
  return value.fail(value.shown() +
                    " is no memory for its borrower: bytes, whole pages of 4096, up to 1 GiB");
}

Result<FunctionEntry> read_function(const JsonValue& value) {
  PCILEND_TRY(value.check_keys(kFunctionKeys));
  FunctionEntry entry;
  entry.place = value.place();
  const auto parsed_by = [](auto parse) {
    return [parse](const JsonValue& v) { return read_parsed(v, parse); };
  };
  PCILEND_TRY(take(value, "uuid", parsed_by(parse_uuid), &entry.uuid));
  PCILEND_TRY(take(value, "bdf", parsed_by(parse_pci_address), &entry.address));
  PCILEND_TRY(take(value, "device", parsed_by(parse_device_ids), &entry.device));
  PCILEND_TRY(take(value, "id", parsed_by(parse_function_id), &entry.id));
  PCILEND_TRY(take(value, "label", read_label, &entry.label));
  PCILEND_TRY(take(value, "allow", read_audience, &entry.allow));
  PCILEND_TRY(take(
      value, "force", [](const JsonValue& v) { return v.flag(); }, &entry.force));
  PCILEND_TRY(take(
      value, "direct", [](const JsonValue& v) { return v.flag(); }, &entry.direct));
  PCILEND_TRY(take(
      value, "sanitize", [](const JsonValue& v) { return v.flag(); }, &entry.sanitize));
  PCILEND_TRY(take(value, "near", read_near, &entry.near));
  std::string state;
  PCILEND_TRY(take(
      value, "state", [](const JsonValue& v) { return v.one_of(kStates); }, &state));
  if (state.empty()) return value.fail("no 'state': say whether it is to be added or available");
  entry.available = state == "available";
  if (entry.direct && !entry.available)
    return value.fail("'direct' says how it is lent, and it is only added: make it available");
  if (entry.sanitize && !entry.available)
    return value.fail("'sanitize' says how it is lent, and it is only added: make it available");
  if (entry.near && !entry.available)
    return value.fail("'near' says how it is lent, and it is only added: make it available");
  if (!entry.uuid && !entry.address)
    return value.fail("neither 'uuid' nor 'bdf' says which function: see 'pcilend list'");
  if (!entry.uuid && !entry.device)
    return value.fail(
        "a 'bdf' alone may be another device tomorrow: add its 'device' (lspci -n) or its 'uuid'");
  return entry;
}

Result<Filter> read_filter(const JsonValue& value, const std::string& file, FilterKind kind) {
  PCILEND_TRY(value.check_keys(kFilterKeys));
  Filter filter;
  filter.kind = kind;
  filter.file = file;
  filter.place = value.place();
  const auto checked_by = [](auto check) {
    return [check](const JsonValue& v) -> Result<std::string> {
      auto text = v.text();
      if (!text) return text;
      if (const auto checked = check(*text); !checked) return v.fail(checked.error().message);
      return text;
    };
  };
  PCILEND_TRY(take(value, "device", checked_by(check_device), &filter.pattern.device));
  PCILEND_TRY(take(value, "slot", checked_by(check_slot), &filter.pattern.slot));
  PCILEND_TRY(take(value, "label", read_label, &filter.label));
  PCILEND_TRY(take(value, "allow", read_audience, &filter.allow));
  PCILEND_TRY(take(
      value, "force", [](const JsonValue& v) { return v.flag(); }, &filter.force));
  if (filter.pattern == Pattern{})
    return value.fail("neither 'device' nor 'slot' says what matches");
  if (kind == FilterKind::Unavailable && (filter.label || filter.allow || filter.force))
    return value.fail("an unavailable filter has 'device' and 'slot' only");
  return filter;
}

Result<> read_filters(const JsonValue& value, const std::string& file, std::vector<Filter>* all) {
  PCILEND_TRY(value.check_keys(kFiltersKeys));
  for (const FilterKind kind : kFilterKinds) {
    const auto found = value.find(name_of(kind));
    if (!found) continue;
    const auto list = found->list("filters");
    if (!list) return tl::unexpected(list.error());
    for (const auto& element : *list) {
      auto filter = read_filter(element, file, kind);
      if (!filter) return tl::unexpected(std::move(filter).error());
      all->push_back(std::move(*filter));
    }
  }
  return {};
}

// Reads a part of a kind by the kernel's parser, in a text that would be right without it. Parts
// end with a blank there, and the text with NUL: a newline in their place is refused.
Result<std::string> read_kind_part(const JsonValue& value, std::string_view before,
                                   std::string_view ends, std::string_view behind) {
  const auto part = value.text();
  if (!part) return part;
  std::string text = *part;
  std::replace_if(
      text.begin(), text.end(), [&](char c) { return ends.find(c) != std::string_view::npos; },
      '\n');
  pcilend_kind kind;
  const char* why = nullptr;
  text = fmt::format("{}{}{}", before, text, behind);
  if (pcilend_kind_parse(text.c_str(), &kind, &why))
    return value.fail(fmt::format("{}: {}", value.shown(), why));
  return part;
}

// The text of the kind as the kernel shows it.
Result<std::string> kind_text(const JsonValue& value, const KindEntry& entry) {
  std::string text = entry.name;
  if (!entry.device.empty()) text += " device=" + entry.device;
  if (!entry.function.empty()) text += " function=" + entry.function;
  if (!entry.label.empty()) text += " label=" + entry.label;
  pcilend_kind kind;
  const char* why = nullptr;
  if (pcilend_kind_parse(text.c_str(), &kind, &why)) return value.fail(why);
  std::array<char, PCILEND_KIND_TEXT_BYTES> shown{};
  pcilend_kind_format(&kind, shown.data());
  return shown.data();
}

Result<KindEntry> read_kind(const JsonValue& value) {
  constexpr std::string_view kBlankOrNul(" \0", 2);
  constexpr std::string_view kNul("\0", 1);
  PCILEND_TRY(value.check_keys(kKindKeys));
  KindEntry entry;
  entry.place = value.place();
  const auto part = [](std::string_view before, std::string_view ends, std::string_view behind) {
    return [=](const JsonValue& v) { return read_kind_part(v, before, ends, behind); };
  };
  PCILEND_TRY(take(value, "name", part("", kBlankOrNul, " label=x"), &entry.name));
  PCILEND_TRY(take(value, "device", part("x device=", kBlankOrNul, " label=x"), &entry.device));
  PCILEND_TRY(take(value, "function", part("x function=", kBlankOrNul, ""), &entry.function));
  PCILEND_TRY(take(value, "label", part("x label=", kNul, ""), &entry.label));
  if (entry.name.empty()) return value.fail("no 'name': say what its type is to be called");
  if (is_fixed_kind(entry.name))
    return value.find("name")->fail(
        fmt::format("'{}' is always there: choose another name", entry.name));
  auto text = kind_text(value, entry);
  if (!text) return tl::unexpected(std::move(text).error());
  entry.text = std::move(*text);
  return entry;
}

Result<BorrowEntry> read_borrow(const JsonValue& value) {
  PCILEND_TRY(value.check_keys(kBorrowKeys));
  std::optional<Uuid> uuid;
  BorrowEntry entry;
  entry.place = value.place();
  PCILEND_TRY(take(
      value, "uuid", [](const JsonValue& v) { return read_parsed(v, parse_uuid); }, &uuid));
  PCILEND_TRY(take(
      value, "frontend", [](const JsonValue& v) { return v.one_of(kFrontends); }, &entry.frontend));
  PCILEND_TRY(take(
      value, "owner", [](const JsonValue& v) { return v.text(); }, &entry.owner));
  PCILEND_TRY(take(
      value, "adapter", [](const JsonValue& v) { return read_parsed(v, parse_pci_address); },
      &entry.adapter));
  if (!uuid) return value.fail("no 'uuid': say which function, as 'pcilend show' prints it");
  entry.uuid = *uuid;
  if (entry.frontend.empty()) entry.frontend = kFrontends.front();
  if (entry.owner.empty()) entry.owner = "boot";
  if (entry.owner.size() > kOwnerBytes)
    return value.find("owner")->fail(fmt::format("more than {} bytes", kOwnerBytes));
  return entry;
}

bool same_function(const FunctionEntry& a, const FunctionEntry& b) {
  if (a.uuid && b.uuid) return *a.uuid == *b.uuid;
  return a.address && b.address && *a.address == *b.address;
}

// One file has an adapter once.
Result<> check_pins(const std::vector<Pin>& pins) {
  for (size_t i = 0; i < pins.size(); ++i) {
    for (size_t j = 0; j < i; ++j) {
      if (pins[i].adapter == pins[j].adapter)
        return fail(ErrorClass::Usage, "{}: the same adapter as {}: remove one", pins[i].place,
                    pins[j].place);
    }
  }
  return {};
}

// One file has a function once.
Result<> check_functions(const std::vector<FunctionEntry>& functions) {
  for (size_t i = 0; i < functions.size(); ++i) {
    for (size_t j = 0; j < i; ++j) {
      if (same_function(functions[i], functions[j]))
        return fail(ErrorClass::Usage, "{}: the same function as {}: remove one",
                    functions[i].place, functions[j].place);
    }
  }
  return {};
}

// One file has a kind once.
Result<> check_kinds(const std::vector<KindEntry>& kinds) {
  for (size_t i = 0; i < kinds.size(); ++i) {
    for (size_t j = 0; j < i; ++j) {
      if (kinds[i].name == kinds[j].name)
        return fail(ErrorClass::Usage, "{}: the same name as {}: remove one", kinds[i].place,
                    kinds[j].place);
    }
  }
  return {};
}

// One file borrows a function once.
Result<> check_borrows(const std::vector<BorrowEntry>& borrows) {
  for (size_t i = 0; i < borrows.size(); ++i) {
    for (size_t j = 0; j < i; ++j) {
      if (borrows[i].uuid == borrows[j].uuid)
        return fail(ErrorClass::Usage, "{}: the same function as {}: remove one", borrows[i].place,
                    borrows[j].place);
    }
  }
  return {};
}

Result<> check_ids(const std::vector<FunctionEntry>& functions) {
  for (size_t i = 0; i < functions.size(); ++i) {
    for (size_t j = 0; j < i; ++j) {
      if (functions[i].id && functions[i].id == functions[j].id)
        return fail(ErrorClass::Usage, "{}.id: {} is taken by {}: choose another",
                    functions[i].place, to_string(*functions[i].id), functions[j].place);
    }
  }
  return {};
}

void merge(Config&& more, Config* into) {
  for (const uint32_t node : more.connections) {
    const auto at = std::lower_bound(into->connections.begin(), into->connections.end(), node);
    if (at == into->connections.end() || *at != node) into->connections.insert(at, node);
  }
  for (auto& pin : more.pins) {
    std::erase_if(into->pins, [&](const Pin& old) { return old.adapter == pin.adapter; });
    into->pins.push_back(std::move(pin));
  }
  for (auto& entry : more.functions) {
    std::erase_if(into->functions,
                  [&](const FunctionEntry& old) { return same_function(old, entry); });
    into->functions.push_back(std::move(entry));
  }
  std::move(more.filters.begin(), more.filters.end(), std::back_inserter(into->filters));
  for (auto& entry : more.kinds) {
    std::erase_if(into->kinds, [&](const KindEntry& old) { return old.name == entry.name; });
    into->kinds.push_back(std::move(entry));
  }
  for (auto& entry : more.borrow) {
    std::erase_if(into->borrow, [&](const BorrowEntry& old) { return old.uuid == entry.uuid; });
    into->borrow.push_back(std::move(entry));
  }
}

ordered_json audience_json(const Audience& audience) {
  return audience.all ? ordered_json(kAll) : ordered_json(audience.nodes);
}

ordered_json function_json(const FunctionEntry& entry) {
  ordered_json json;
  if (entry.uuid) json["uuid"] = to_string(*entry.uuid);
  if (entry.address) json["bdf"] = to_string(*entry.address);
  if (entry.device)
    json["device"] = fmt::format("{:04x}:{:04x}", entry.device->vendor, entry.device->device);
  if (entry.id) json["id"] = to_string(*entry.id);
  json["state"] = entry.available ? "available" : "added";
  if (entry.label) json["label"] = *entry.label;
  if (entry.allow) json["allow"] = audience_json(*entry.allow);
  if (entry.force) json["force"] = true;
  if (entry.direct) json["direct"] = true;
  if (entry.sanitize) json["sanitize"] = true;
  if (entry.near) json["near"] = *entry.near;
  return json;
}

ordered_json filter_json(const Filter& filter) {
  ordered_json json;
  if (!filter.pattern.device.empty()) json["device"] = filter.pattern.device;
  if (!filter.pattern.slot.empty()) json["slot"] = filter.pattern.slot;
  if (filter.label) json["label"] = *filter.label;
  if (filter.allow) json["allow"] = audience_json(*filter.allow);
  if (filter.force) json["force"] = true;
  return json;
}

ordered_json kind_json(const KindEntry& entry) {
  ordered_json json;
  json["name"] = entry.name;
  if (!entry.device.empty()) json["device"] = entry.device;
  if (!entry.function.empty()) json["function"] = entry.function;
  if (!entry.label.empty()) json["label"] = entry.label;
  return json;
}

ordered_json borrow_json(const BorrowEntry& entry) {
  ordered_json json{
      {"uuid", to_string(entry.uuid)}, {"frontend", entry.frontend}, {"owner", entry.owner}};
  if (entry.adapter) json["adapter"] = to_string(*entry.adapter);
  return json;
}

// Paths of the files, by name; hidden ones are not read.
Result<std::vector<std::string>> config_files(const Environment& environment) {
  std::vector<std::string> files;
  if (!environment.exists(kDirectory)) return files;
  std::error_code error;
  for (fs::directory_iterator it(environment.path(kDirectory), error), end; !error && it != end;
       it.increment(error)) {
    const std::string name = it->path().filename();
    if (name.ends_with(".json") && !name.starts_with('.'))
      files.push_back(fmt::format("{}/{}", kDirectory, name));
  }
  if (error) return fail_errno(kDirectory, error.value());
  std::sort(files.begin(), files.end());
  return files;
}

}  // namespace

std::string_view name_of(FilterKind kind) {
  switch (kind) {
    case FilterKind::Add:
      return "add";
    case FilterKind::Available:
      return "available";
    case FilterKind::Unavailable:
      break;
  }
  return "unavailable";
}

Result<Config> parse_config(const std::string& name, std::string_view text) {
  if (text.size() > kFileBytes)
    return fail(ErrorClass::Usage, "{}: more than {} bytes: not a configuration", name, kFileBytes);
  const auto json = parse_json(name, text);
  if (!json) return tl::unexpected(json.error());
  const JsonValue top(*json, name);
  PCILEND_TRY(top.check_keys(kFileKeys));
  std::string schema;
  PCILEND_TRY(take(
      top, "$schema", [](const JsonValue& v) { return v.text(); }, &schema));

  Config config;
  PCILEND_TRY(take(top, "connections", read_nodes, &config.connections));
  PCILEND_TRY(read_each(top, "pins", read_pin, &config.pins));
  PCILEND_TRY(read_each(top, "functions", read_function, &config.functions));
  if (const auto filters = top.find("filters"))
    PCILEND_TRY(read_filters(*filters, name, &config.filters));
  PCILEND_TRY(read_each(top, "kinds", read_kind, &config.kinds));
  PCILEND_TRY(read_each(top, "borrow", read_borrow, &config.borrow));
  PCILEND_TRY(check_pins(config.pins));
  PCILEND_TRY(check_functions(config.functions));
  PCILEND_TRY(check_ids(config.functions));
  PCILEND_TRY(check_kinds(config.kinds));
  PCILEND_TRY(check_borrows(config.borrow));
  return config;
}

Result<Config> load_config(const Environment& environment, std::string_view except) {
  const auto files = config_files(environment);
  if (!files) return tl::unexpected(files.error());
  Config all;
  for (const auto& file : *files) {
    if (file == except) continue;
    const auto text = environment.read(file);
    if (!text) return tl::unexpected(text.error());
    auto config = parse_config(file, *text);
    if (!config) return config;
    merge(std::move(*config), &all);
  }
  PCILEND_TRY(check_ids(all.functions));
  return all;
}

std::string format_config(const Config& config) {
  ordered_json json = ordered_json::object();
  if (!config.connections.empty()) json["connections"] = config.connections;
  for (const auto& pin : config.pins)
    json["pins"].push_back({{"adapter", to_string(pin.adapter)}, {"node", pin.node}});
  for (const auto& entry : config.functions) json["functions"].push_back(function_json(entry));
  for (const auto& filter : config.filters)
    json["filters"][std::string(name_of(filter.kind))].push_back(filter_json(filter));
  for (const auto& entry : config.kinds) json["kinds"].push_back(kind_json(entry));
  for (const auto& entry : config.borrow) json["borrow"].push_back(borrow_json(entry));
  return json.dump(2, ' ', false, ordered_json::error_handler_t::replace) + "\n";
}

Result<> write_config(const Environment& environment, std::string_view file, const Config& config) {
  return environment.replace_file(file, format_config(config));
}

SchemaKeys schema_keys() {
  const auto list = [](const auto& keys) {
    return std::vector<std::string_view>(keys.begin(), keys.end());
  };
  return {list(kFileKeys),    list(kPinKeys),    list(kFunctionKeys),
          list(kFiltersKeys), list(kFilterKeys), list(kStates),
          list(kKindKeys),    list(kBorrowKeys), list(kFrontends)};
}

}  // namespace pcilend::policy
