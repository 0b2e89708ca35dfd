// SPDX-License-Identifier: GPL-2.0-or-later
#include "command_table.h"

namespace pcilend {
namespace {

constexpr std::string_view kLender = "On the lender";
constexpr std::string_view kBorrower = "On the borrower";
constexpr std::string_view kBoth = "On any host";

const CommandArgument kBdf{"BDF", "PCI address (0000:00:05.0) or id (40001)"};
constexpr std::string_view kIdHelp = "id (40001), UUID or PCI address, as in 'pcilend list'";
const CommandArgument kId{"ID", kIdHelp};
const CommandArgument kIds{"ID...", kIdHelp};
const CommandArgument kNode{"NODE", "node id of the borrower"};

const CommandOption kJson{"-j,--json", "", "print JSON", &Options::json};
const CommandOption kColumns{"-o,--output", "COL,...", "print these columns, separated by commas",
                             &Options::columns};
const CommandOption kNoHeadings{"-n,--noheadings", "", "print no heading line",
                                &Options::no_headings};
const CommandOption kFrontend{"--frontend",
                              "NAME",
                              "shadow (a device of this host; default) or mdev (for a VM)",
                              &Options::frontend,
                              {"shadow", "mdev"}};
const CommandOption kOwner{"--owner", "NAME", "who borrows; default: the calling user",
                           &Options::owner};

CommandOption force(std::string_view help) {
  return {"-f,--force", "", help, &Options::force};
}

}  // namespace

const std::vector<Command>& commands() {
  static const std::vector<Command> table{
      {kLender,
       "connect",
       "offer this host's functions to a node",
       {kNode},
       {force("also if no link leads to that node now")},
       command_connect},
      {kLender, "disconnect", "stop offering functions to a node", {kNode}, {}, command_disconnect},
      {kLender,
       "add",
       "show a function of this host to connected nodes",
       {kBdf},
       {kJson},
       command_add},
      {kLender, "remove", "undo add", {kBdf}, {}, command_remove},
      {kLender,
       "available",
       "take a function from its driver and let it be borrowed",
       {kBdf},
       {kJson, force("take it though its disks are in use")},
       command_available},
      {kLender,
       "unavailable",
       "give a function back to its driver on this host",
       {kBdf},
       {kJson},
       command_unavailable},
      {kBoth,
       "list",
       "list functions of this host and of its peers",
       {},
       {kJson, kColumns, kNoHeadings},
       command_list},
      {kBoth, "show", "show all about functions", {kIds}, {kJson}, command_show},
      {kBoth,
       "link",
       "list NTB adapters and the nodes behind them",
       {},
       {kJson, kColumns, kNoHeadings},
       command_link},
      {kBoth, "node", "show this node", {}, {kJson}, command_node},
      {kBorrower, "borrow", "borrow a function", {kId}, {kJson, kFrontend, kOwner}, command_borrow},
      {kBorrower,
       "return",
       "return a borrowed function",
       {kId},
       {force("take it from another owner"), kOwner},
       command_return},
      {kBorrower,
       "vm-xml",
       "print the libvirt <hostdev> elements for functions",
       {kIds},
       {},
       command_vm_xml},
  };
  return table;
}

}  // namespace pcilend
