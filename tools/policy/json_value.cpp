// SPDX-License-Identifier: GPL-2.0-or-later
#include "pcilend/policy/json_value.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <set>

#include "pcilend/nearest.h"

namespace pcilend::policy {
namespace {

using nlohmann::json;

constexpr size_t kShown = 40;  // bytes of a value in an error

std::string printable(std::string text) {
  std::replace_if(
      text.begin(), text.end(), [](char c) { return c < ' ' || c > '~'; }, '?');
  return text;
}

// Follows the parser, and finds keys that are there twice: the parser would take the last.
class KeyWatch {
 public:
  bool operator()(int, json::parse_event_t event, json& parsed) {
    switch (event) {
      case json::parse_event_t::object_start:
        open_.emplace_back();
        break;
      case json::parse_event_t::object_end:
        open_.pop_back();
        break;
      case json::parse_event_t::key:
        if (!open_.back().insert(parsed.get<std::string>()).second && twice_.empty())
          twice_ = parsed.get<std::string>();
        break;
      default:
        break;
    }
    return true;
  }
  [[nodiscard]] const std::string& twice() const { return twice_; }

 private:
  std::vector<std::set<std::string>> open_;
  std::string twice_;
};

// "[json.exception.parse_error.101] parse error at line 3, column 7: ..." without what is not for
// people.
std::string syntax_error(std::string_view what) {
  constexpr std::string_view kPrefix = "parse error at ";
  if (const size_t at = what.find(kPrefix); at != std::string_view::npos)
    what.remove_prefix(at + kPrefix.size());
  return printable(std::string(what));
}

}  // namespace

Result<json> parse_json(std::string_view name, std::string_view text) {
  KeyWatch watch;
  json parsed;
  try {
    parsed = json::parse(text, std::ref(watch));
  } catch (const json::exception& error) {
    return pcilend::fail(ErrorClass::Usage, "{}: {}", name, syntax_error(error.what()));
  }
  if (!watch.twice().empty())
    return pcilend::fail(ErrorClass::Usage, "{}: key '{}' is there twice in one object: remove one",
                         name, printable(watch.twice()));
  return parsed;
}

tl::unexpected<Error> JsonValue::fail(std::string_view what) const {
  return pcilend::fail(ErrorClass::Usage, "{}: {}", place(), printable(std::string(what)));
}

std::string JsonValue::place() const {
  return path_.empty() ? file_ : fmt::format("{}: {}", file_, path_);
}

Result<> JsonValue::check_keys(std::span<const std::string_view> known) const {
  if (!json_.is_object())
    return fail(fmt::format("{} is not an object with keys {}", shown(), fmt::join(known, ", ")));
  for (const auto& [key, value] : json_.items()) {
    if (std::find(known.begin(), known.end(), key) != known.end()) continue;
    if (const auto meant = nearest(key, known))
      return fail(fmt::format("no key '{}': did you mean '{}'?", printable(key), *meant));
    return fail(fmt::format("no key '{}': there are {}", printable(key), fmt::join(known, ", ")));
  }
  return {};
}

std::optional<JsonValue> JsonValue::find(std::string_view key) const {
  const auto found = json_.find(key);
  if (found == json_.end()) return std::nullopt;
  return JsonValue(*found, file_,
                   path_.empty() ? std::string(key) : fmt::format("{}.{}", path_, key));
}

Result<std::vector<JsonValue>> JsonValue::list(std::string_view of_what) const {
  if (!json_.is_array()) return fail(fmt::format("{} is not a list of {}", shown(), of_what));
  std::vector<JsonValue> values;
  for (size_t i = 0; i < json_.size(); ++i)
    values.push_back(JsonValue(json_[i], file_, fmt::format("{}[{}]", path_, i)));
  return values;
}

Result<std::string> JsonValue::text() const {
  if (!json_.is_string()) return fail(fmt::format("{} is not text in quotes", shown()));
  return json_.get<std::string>();
}

Result<bool> JsonValue::flag() const {
  if (!json_.is_boolean()) return fail(fmt::format("{} is not true or false", shown()));
  return json_.get<bool>();
}

Result<std::string> JsonValue::one_of(std::span<const std::string_view> words) const {
  auto value = text();
  if (!value) return value;
  if (std::find(words.begin(), words.end(), *value) == words.end())
    return fail(fmt::format("{} is not one of {}", shown(), fmt::join(words, ", ")));
  return value;
}

std::string JsonValue::shown() const {
  std::string text = json_.is_string() ? fmt::format("'{}'", json_.get_ref<const std::string&>())
                                       : json_.dump(-1, ' ', true, json::error_handler_t::replace);
  if (text.size() > kShown) text = text.substr(0, kShown - 3) + "...";
  return printable(std::move(text));
}

}  // namespace pcilend::policy
