// SPDX-License-Identifier: GPL-2.0-or-later
#include "record.h"

#include <nlohmann/json.hpp>

namespace pcilend {
namespace {

using Json = nlohmann::ordered_json;

constexpr int kVersion = 1;

std::string path_of(const Uuid& domain) {
  return fmt::format("/run/pcilend/domains/{}.json", to_string(domain));
}

// The member as a T, or its default if it is missing or of another type.
template <class T>
T member(const Json& object, const char* name) {
  const auto found = object.find(name);
  if (found == object.end()) return T{};
  if constexpr (std::is_same_v<T, std::string>) return found->is_string() ? found->get<T>() : T{};
  if constexpr (std::is_same_v<T, bool>) return found->is_boolean() ? found->get<T>() : T{};
  if constexpr (std::is_same_v<T, int>) return found->is_number_integer() ? found->get<T>() : T{};
}

std::optional<Record> parse(const std::string& text) {
  const Json json = Json::parse(text, nullptr, false);
  if (!json.is_object() || member<int>(json, "version") != kVersion) return {};
  Record record;
  record.name = member<std::string>(json, "name");
  const auto domain = parse_uuid(member<std::string>(json, "domain"));
  const auto functions = json.find("functions");
  if (!domain || functions == json.end() || !functions->is_array()) return {};
  record.domain = *domain;
  for (const auto& entry : *functions) {
    if (!entry.is_object()) return {};
    const auto id = parse_function_id(member<std::string>(entry, "id"));
    if (!id) return {};
    FunctionRecord function{*id, {}, member<bool>(entry, "created")};
    if (entry.contains("uuid")) {
      const auto mdev = parse_uuid(member<std::string>(entry, "uuid"));
      if (!mdev) return {};
      function.mdev = *mdev;
    }
    record.functions.push_back(function);
  }
  return record;
}

}  // namespace

Result<std::optional<Record>> load_record(const Environment& environment, const Uuid& domain) {
  const std::string path = path_of(domain);
  const auto text = environment.read(path);
  if (!text && text.error().kind == ErrorClass::NotFound) return std::optional<Record>();
  if (!text) return tl::unexpected(text.error());
  auto record = parse(*text);
  if (!record || record->domain != domain)
    return fail(ErrorClass::Failure,
                "{} is damaged: return what the domain borrowed ('pcilend list'), then remove it",
                environment.path(path).native());
  return record;
}

Result<> save_record(const Environment& environment, const Record& record) {
  const std::string path = path_of(record.domain);
  if (record.functions.empty()) return environment.remove_file(path);
  Json json{{"version", kVersion},
            {"name", record.name},
            {"domain", to_string(record.domain)},
            {"functions", Json::array()}};
  for (const auto& function : record.functions) {
    Json entry{{"id", to_string(function.id)}};
    if (function.mdev) {
      entry["uuid"] = to_string(*function.mdev);
      entry["created"] = function.created;
    }
    json["functions"].push_back(std::move(entry));
  }
  return environment.replace_file(path,
                                  json.dump(2, ' ', false, Json::error_handler_t::replace) + "\n");
}

}  // namespace pcilend
