// SPDX-License-Identifier: GPL-2.0-or-later
// Reading of checked JSON: every error points at the file and at the place in it.
#pragma once

#include <nlohmann/json.hpp>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "pcilend/result.h"

namespace pcilend::policy {

// Parses a whole file; `name` stands in errors. No key may appear twice in one object.
Result<nlohmann::json> parse_json(std::string_view name, std::string_view text);

// A value in a file. `file` and the JSON must outlive it.
class JsonValue {
 public:
  JsonValue(const nlohmann::json& json, const std::string& file)
      : JsonValue(json, file, std::string()) {}

  // "FILE: functions[2].state: WHAT", on one line.
  [[nodiscard]] tl::unexpected<Error> fail(std::string_view what) const;
  // "FILE: functions[2].state", for errors that turn up later.
  [[nodiscard]] std::string place() const;

  // Fails unless it is an object whose keys are all among `known`.
  [[nodiscard]] Result<> check_keys(std::span<const std::string_view> known) const;
  // Of an object: the value of a key, if it is there.
  [[nodiscard]] std::optional<JsonValue> find(std::string_view key) const;

  [[nodiscard]] Result<std::vector<JsonValue>> list(std::string_view of_what) const;
  [[nodiscard]] Result<std::string> text() const;
  [[nodiscard]] Result<bool> flag() const;
  [[nodiscard]] Result<std::string> one_of(std::span<const std::string_view> words) const;

  [[nodiscard]] const nlohmann::json& json() const { return json_; }
  // The value as people wrote it, shortened.
  [[nodiscard]] std::string shown() const;

 private:
  JsonValue(const nlohmann::json& json, const std::string& file, std::string path)
      : json_(json), file_(file), path_(std::move(path)) {}

  const nlohmann::json& json_;
  const std::string& file_;
  std::string path_;
};

}  // namespace pcilend::policy
