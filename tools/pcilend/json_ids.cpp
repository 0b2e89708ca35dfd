// SPDX-License-Identifier: GPL-2.0-or-later
#include "json_ids.h"

#include <istream>

#include "pcilend/client.h"
#include "pcilend/policy/json_value.h"

namespace pcilend {
namespace {

using policy::JsonValue;

constexpr size_t kLongest = 64 << 20;

Result<std::string> id_of(const JsonValue& function) {
  const auto id = function.find("id");
  if (!id) return function.fail("there is no 'id': give what 'pcilend list --json' prints");
  auto text = id->text();
  if (!text) return text;
  if (!parse_function_id(*text)) return id->fail(id->shown() + " is not the id of a function");
  return text;
}

}  // namespace

Result<std::vector<std::string>> ids_of_json(std::string_view name, std::string_view text) {
  const auto json = policy::parse_json(name, text);
  if (!json) return tl::unexpected(json.error());
  const std::string file(name);
  const JsonValue all(*json, file);
  const auto found = all.find("functions");
  if (!found) return all.fail("there are no 'functions': give what 'pcilend list --json' prints");
  const auto functions = found->list("functions");
  if (!functions) return tl::unexpected(functions.error());
  if (functions->empty()) return found->fail("no function is named");
  std::vector<std::string> ids;
  for (const auto& function : *functions) {
    auto id = id_of(function);
    if (!id) return tl::unexpected(std::move(id).error());
    ids.push_back(std::move(*id));
  }
  return ids;
}

Result<std::vector<std::string>> read_ids(std::istream& in) {
  std::string text;
  char part[4096];
  while (in.read(part, sizeof(part)) || in.gcount()) {
    text.append(part, static_cast<size_t>(in.gcount()));
    if (text.size() > kLongest)
      return fail(ErrorClass::Usage, "stdin: more than {} MiB: name fewer functions",
                  kLongest >> 20);
  }
  if (in.bad()) return fail(ErrorClass::Failure, "stdin: read failed");
  return ids_of_json("stdin", text);
}

}  // namespace pcilend
