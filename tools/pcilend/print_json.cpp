// SPDX-License-Identifier: GPL-2.0-or-later
#include "columns.h"
#include "print.h"

namespace pcilend {
namespace {

template <class T>
Result<Json> list_of(const std::vector<T>& things, const std::vector<Column<T>>& all,
                     const PciNames& names, const std::optional<std::string>& selection) {
  const auto columns = select_columns(all, selection);
  if (!columns) return tl::unexpected(columns.error());
  Json list = Json::array();
  for (const auto& thing : things) {
    Json object = Json::object();
    for (const auto& column : *columns)
      object[std::string(column.name)] = column.value(thing, names);
    list.push_back(std::move(object));
  }
  return list;
}

struct JsonPrinter {
  const PciNames& names;
  const PrintOptions& options;

  Result<Json> operator()(const NothingAnswer&) const { return Json(); }

  Result<Json> operator()(const FunctionsAnswer& answer) const {
    return list_of(answer.functions, function_columns(), names, options.columns).map([](Json list) {
      return Json{{"functions", std::move(list)}};
    });
  }

  Result<Json> operator()(const LinksAnswer& answer) const {
    return list_of(answer.links, link_columns(), names, options.columns).map([](Json list) {
      return Json{{"links", std::move(list)}};
    });
  }

  Result<Json> operator()(const Node& node) const {
    return Json{
        {"node",
         {{"id", node.id}, {"boot_id", fmt::format("{:016x}", node.boot_id)}, {"abi", node.abi}}}};
  }

  Result<Json> operator()(const HostdevsAnswer&) const { return Json(); }
};

}  // namespace

Result<std::string> print_json(const Answer& answer, const PciNames& names,
                               const PrintOptions& options) {
  const auto json = std::visit(JsonPrinter{names, options}, answer);
  if (!json) return tl::unexpected(json.error());
  if (json->is_null()) return std::string();
  return json->dump(2, ' ', false, Json::error_handler_t::replace) + "\n";
}

}  // namespace pcilend
