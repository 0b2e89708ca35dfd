// SPDX-License-Identifier: GPL-2.0-or-later
#include "parser.h"

namespace pcilend {
namespace {

void add_argument(CLI::App& parser, const CommandArgument& argument, Options* options) {
  auto* const added = parser.add_option(std::string(argument.name), options->*argument.slot,
                                        std::string(argument.help));
  const bool several = argument.name.ends_with("...");
  added->required(argument.required)
      ->expected(1, several ? CLI::detail::expected_max_vector_size : 1)
      ->allow_extra_args(several)
      ->type_name("");
}

void add_option(CLI::App& parser, const CommandOption& option, Options* options) {
  const std::string names(option.names);
  const std::string help(option.help);
  std::visit(
      [&](auto slot) {
        auto& value = options->*slot;
        if constexpr (std::is_same_v<decltype(slot), bool Options::*>) {
          parser.add_flag(names, value, help);
        } else {
          auto* const added = parser.add_option(names, value, help);
          added->type_name(std::string(option.value));
          if constexpr (std::is_same_v<decltype(slot), std::vector<std::string> Options::*>)
            added->expected(1)->allow_extra_args(false)->multi_option_policy(
                CLI::MultiOptionPolicy::TakeAll);
          if (!option.choices.empty())
            added->check(CLI::IsMember(option.choices))->default_val(option.choices.front());
        }
      },
      option.slot);
}

}  // namespace

std::unique_ptr<CLI::App> make_parser(Options* options) {
  auto parser = std::make_unique<CLI::App>(
      "Lends PCIe functions to other hosts over NTB, and borrows theirs.", "pcilend");
  parser->set_version_flag("-V,--version", "pcilend " PCILEND_VERSION);
  parser->require_subcommand(1);
  for (const auto& command : commands()) {
    auto* const sub =
        parser->add_subcommand(std::string(command.name), std::string(command.summary));
    sub->group(std::string(command.group));
    for (const auto& argument : command.arguments) add_argument(*sub, argument, options);
    for (const auto& option : command.options) add_option(*sub, option, options);
  }
  return parser;
}

}  // namespace pcilend
