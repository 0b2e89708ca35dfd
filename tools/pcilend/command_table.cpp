// SPDX-License-Identifier: GPL-2.0-or-later
#include "command_table.h"

namespace pcilend {
namespace {

constexpr std::string_view kLender = "On the lender";
constexpr std::string_view kConfiguration = "Lending by itself";
constexpr std::string_view kBorrower = "On the borrower";
constexpr std::string_view kBoth = "On any host";

const CommandArgument kBdf{"BDF", "PCI address (0000:00:05.0) or id (40001)"};
constexpr std::string_view kIdsHelp =
    "id (40001), UUID or PCI address, as in 'pcilend list'; -: those of its JSON, from stdin";
const CommandArgument kBdfs{"BDF...", kBdf.help};
const CommandArgument kIds{"ID...", kIdsHelp};
const CommandArgument kName{"NAME", "its type of mediated devices is pcilend_mdev-NAME"};
const CommandArgument kNode{"NODE", "node id of the borrower"};

const CommandOption kJson{"-j,--json", "", "print JSON", &Options::json};
const CommandOption kColumns{"-o,--output", "COL,...", "print these columns, separated by commas",
                             &Options::columns};
const CommandOption kNoHeadings{"-n,--noheadings", "", "print no heading line",
                                &Options::no_headings};
const CommandOption kFrontend{"--frontend",
                              "NAME",
                              "shadow (a device of this host; default), or vfio (for VMs and "
                              "other users of VFIO)",
                              &Options::frontend,
                              {"shadow", "vfio"}};
const CommandOption kMdev{"--mdev", "", "as mediated devices, by UUID", &Options::mdev};
const CommandOption kOwner{"--owner", "NAME", "who borrows; default: the calling user",
                           &Options::owner};

const CommandArgument kFrom{"FROM", "the function that does the DMA, as in 'pcilend list'"};
const CommandArgument kTo{"TO", "the function whose BARs it reaches", &Options::words};
const CommandOption kEnd{"--end", "", "no longer", &Options::end};
const CommandOption kDirect{"--direct", "",
                            "without an IOMMU: it reaches all memory and interrupts of this host",
                            &Options::direct};

const CommandOption kSanitize{"--sanitize", "",
                              "erase it after each lease, before others borrow it: NVMe drives",
                              &Options::sanitize};
const CommandOption kNear{"--near", "SIZE",
                          "memory of this host beside it for its borrower, at most; 0: none; "
                          "default: 4M",
                          &Options::near};
const CommandOption kPath{"--adapter", "BDF", "over this NTB adapter; default: the best path",
                          &Options::adapter};
const CommandOption kPin{"--adapter", "BDF", "pin the node: let it in over this NTB adapter only",
                         &Options::adapter};
const CommandOption kWait{"-w,--wait", "", "until its driver is bound, and say what appeared",
                          &Options::wait};
const CommandOption kWaitTimeout{"--timeout", "SECONDS", "wait no longer than that; default: 30",
                                 &Options::timeout};

const CommandArgument kOptionalIds{"ID...", kIdsHelp, &Options::targets, false};
const CommandArgument kOptionalBdfs{"BDF...", kBdf.help, &Options::targets, false};
const CommandArgument kNodes{"NODE...", "node ids, or all, or none", &Options::words};
const CommandArgument kText{"TEXT", "at most 63 bytes; \"\" for none", &Options::words};

const CommandOption kLabel{"--label", "TEXT", "whose function it is, for people", &Options::label};
const CommandOption kVerbose{"-v,--verbose", "", "all about each link", &Options::verbose};
const CommandOption kFor{"--for", "NODE|UUID", "a node, or a domain on any node",
                         &Options::reserved_for};
const CommandOption kTtl{"--ttl", "SECONDS", "how long it holds", &Options::ttl};
const CommandOption kCancel{"--cancel", "", "end the reservation", &Options::cancel};
const CommandOption kGrace{"--grace", "SECONDS", "ask its borrower, and take it after that",
                           &Options::grace};
const CommandOption kEmulated{"--emulated", "", "as its borrower's driver sees it",
                              &Options::emulated};
const CommandOption kHex{"-x,--hex", "", "all bytes too", &Options::hex};
const CommandOption kCount{"--count", "N", "end after so many events", &Options::count};
const CommandOption kTimeout{"--timeout", "SECONDS", "end after so long", &Options::timeout};

const CommandOption kDevice{"-d,--device", "ID", "[VENDOR]:[DEVICE][:CLASS[:INTERFACE]], as lspci",
                            &Options::device};
const CommandOption kFunction{"--function", "ID", "its id (40001), as in 'pcilend list'",
                              &Options::function};
const CommandOption kFunctionLabel{"--label", "TEXT", "its label, in full", &Options::label};
const CommandOption kSlot{"-s,--slot", "SLOT", "[[[[DOMAIN]:]BUS]:][DEVICE][.[FUNCTION]], as lspci",
                          &Options::slot};
const CommandOption kList{"-l,--list", "", "show the filters", &Options::list};
const CommandOption kRemove{"--remove", "", "remove this filter; nothing else changes",
                            &Options::remove};
const CommandOption kRestored{"--device", "BDF", "this function only, and no connections",
                              &Options::device};
const CommandOption kDryRun{"--dry-run", "", "only say what would be done", &Options::dry_run};
const CommandOption kBorrows{"--borrow", "", "borrow, and nothing else; wait for the lenders",
                             &Options::borrows};
const CommandOption kBorrowTimeout{"--timeout", "SECONDS", "wait no longer than that; default: 90",
                                   &Options::timeout};
const CommandOption kBoot{"--boot", "", "and again whenever this host boots", &Options::boot};
const CommandOption kNoBoot{"--boot", "", "and no longer when this host boots", &Options::boot};
const CommandOption kInUse{"--in-use", "", "only functions that are lent or borrowed, and disks",
                           &Options::in_use};
const CommandOption kIgnore{"--ignore", "BDF", "this NTB adapter's link may be down",
                            &Options::ignored};
const CommandArgument kAction{"ACTION", "create, offer, withdraw, connect or list"};
const CommandArgument kActionWords{"WORD...", "a segment's id, and node ids", &Options::words,
                                   false};
const CommandOption kSize{"--size", "BYTES", "create: how large, such as 64M", &Options::size};
const CommandOption kSegmentName{"--name", "TEXT", "create: what it is, for people",
                                 &Options::name};
const CommandOption kHuge{"--huge", "", "create: in huge pages of 2 MiB", &Options::huge};
const CommandOption kReadOnly{"--read-only", "", "create, offer, connect: without writing to it",
                              &Options::read_only};
const CommandOption kWriteCombining{"--write-combining", "", "connect: gather stores",
                                    &Options::write_combining};
const CommandOption kSegmentAdapter{"--adapter", "BDF", "offer, connect: over this NTB adapter",
                                    &Options::adapter};
const CommandArgument kNvmeAction{"ACTION", "attach, detach or list"};
const CommandArgument kNvmeWords{"WORD...", "a function's id, or a disk", &Options::words, false};
const CommandOption kAlone{"--alone", "", "attach: have all of the drive", &Options::alone};
const CommandOption kNamespace{"--namespace", "N", "attach: of the drive; default: 1",
                               &Options::name_space};
const CommandOption kQueues{"--queues", "N", "attach: with a thread each; default: 1",
                            &Options::queues};
const CommandOption kDepth{"--depth", "N", "attach: requests of a queue at once; default: 64",
                           &Options::depth};
const CommandOption kReadOnlyDisk{"--read-only", "", "attach: without writing to it",
                                  &Options::read_only};
const CommandOption kSharedFs{
    "--shared-fs", "", "attach: for a file system that several hosts mount", &Options::shared_fs};
const CommandOption kDiskPaths{"--adapter", "BDF[,BDF...]",
                               "attach: over these NTB adapters; default: over all that lead to it",
                               &Options::adapter};
const CommandOption kPatience{"--patience", "SECONDS",
                              "attach: how long I/O waits for a lost drive; default: 60",
                              &Options::patience};
const CommandOption kDiskTimeout{"--timeout", "SECONDS",
                                 "wait no longer than that; default: 60, of detach 180",
                                 &Options::timeout};
const CommandOption kLinkLoss{"--link-loss", "", "last, have somebody cut the link",
                              &Options::link_loss};
const CommandOption kRounds{"--count", "N", "notifications each way; default: 200",
                            &Options::count};
const CommandOption kTestTimeout{"--timeout", "SECONDS",
                                 "wait no longer than that for the other host; default: 600",
                                 &Options::timeout};
const CommandArgument kSegmentId{"SEGMENT", "what hwtest says on the other node", &Options::words,
                                 false};
const CommandArgument kPeer{"NODE", "node id of the other host"};
const CommandOption kFile{"--file", "FILE", "instead of /etc/pcilend/saved.json; -: stdout",
                          &Options::file};

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
       {kJson, force("also if no link leads to that node now"), kPin},
       command_connect},
      {kLender,
       "disconnect",
       "stop offering functions to a node",
       {kNode},
       {kJson},
       command_disconnect},
      {kLender,
       "add",
       "show a function of this host to connected nodes",
       {kBdfs},
       {kJson, kLabel},
       command_add},
      {kLender, "remove", "undo add", {kBdfs}, {kJson}, command_remove},
      {kLender,
       "available",
       "take a function from its driver and let it be borrowed",
       {kBdfs},
       {kJson, kDirect, kSanitize, kNear, force("take it though it is in use")},
       command_available},
      {kLender,
       "unavailable",
       "give a function back to its driver on this host",
       {kBdfs},
       {kJson, kGrace, force("take it from its borrower now")},
       command_unavailable},
      {kLender,
       "allow",
       "say which of the connected nodes see a function",
       {kBdf, kNodes},
       {kJson},
       command_allow},
      {kLender, "label", "say whose function it is", {kBdf, kText}, {kJson}, command_label},
      {kLender,
       "release-quarantine",
       "reset a quarantined function once more",
       {kBdf},
       {kJson},
       command_release_quarantine},
      {kLender,
       "sanitize",
       "erase what a borrower left on a drive, and lend it again",
       {kBdfs},
       {kJson},
       command_sanitize},
      {kConfiguration,
       "add-filter",
       "add functions that match, now and when they are plugged in",
       {},
       {kJson, kDevice, kSlot, kLabel, kList, kRemove},
       command_add_filter},
      {kConfiguration,
       "available-filter",
       "add them and make them available",
       {},
       {kJson, kDevice, kSlot, kLabel, kList, kRemove, force("take them though disks are in use")},
       command_available_filter},
      {kConfiguration,
       "unavailable-filter",
       "never make them available",
       {},
       {kJson, kDevice, kSlot, kList, kRemove},
       command_unavailable_filter},
      {kConfiguration,
       "save",
       "write connections, pins and functions to /etc/pcilend",
       {},
       {kJson, kFile},
       command_save},
      {kConfiguration,
       "restore",
       "make all as /etc/pcilend says",
       {},
       {kJson, kDryRun, kRestored, kBorrows, kBorrowTimeout},
       command_restore},
      {kBoth,
       "list",
       "list functions of this host and of its peers",
       {},
       {kJson, kColumns, kNoHeadings},
       command_list},
      {kBoth, "show", "show all about functions", {kIds}, {kJson}, command_show},
      {kBoth,
       "lspci",
       "decode configuration spaces",
       {kOptionalIds},
       {kJson, kEmulated, kHex},
       command_lspci},
      {kBoth,
       "link",
       "list NTB adapters and the nodes behind them",
       {},
       {kJson, kColumns, kNoHeadings, kVerbose},
       command_link},
      {kBoth, "node", "show this node", {}, {kJson}, command_node},
      {kBoth,
       "reserve",
       "keep functions for a node or a domain",
       {kOptionalIds},
       {kJson, kFor, kTtl, kCancel},
       command_reserve},
      {kBoth,
       "status",
       "show on one screen whether all is well",
       {},
       {kJson, kInUse, kIgnore},
       command_status},
      {kBoth,
       "check",
       "find what will not work, with the cure",
       {kOptionalBdfs},
       {kJson},
       command_check},
      {kBoth,
       "hwtest",
       "try an adapter together with the host behind it",
       {kPeer, kSegmentId},
       {kJson, kPath, kRounds, kTestTimeout, kLinkLoss},
       command_hwtest},
      {kBoth,
       "monitor",
       "print changes as they happen",
       {},
       {kJson, kCount, kTimeout},
       command_monitor},
      {kBoth, "metrics", "print metrics for Prometheus", {}, {kJson}, command_metrics},
      {kBoth,
       "segment",
       "share memory with processes of other hosts",
       {kAction, kActionWords},
       {kJson, kSize, kSegmentName, kHuge, kReadOnly, kWriteCombining, kSegmentAdapter},
       command_segment},
      {kBoth,
       "nvme",
       "make disks of NVMe drives that this host leases",
       {kNvmeAction, kNvmeWords},
       {kJson, kAlone, kNamespace, kQueues, kDepth, kReadOnlyDisk, kSharedFs, kDiskPaths, kPatience,
        kDiskTimeout, force("detach: though it is in use")},
       command_nvme},
      {kBorrower,
       "borrow",
       "borrow functions",
       {kIds},
       {kJson, kFrontend, kOwner, kPath, kWait, kWaitTimeout, kBoot},
       command_borrow},
      {kBorrower,
       "return",
       "return borrowed functions",
       {kIds},
       {kJson, force("take it from another owner, and though it is in use"), kOwner, kNoBoot},
       command_return},
      {kBorrower,
       "p2p",
       "let a borrowed function reach another's BARs by DMA",
       {kFrom, kTo},
       {kJson, kEnd},
       command_p2p},
      {kBorrower,
       "vm-xml",
       "print the libvirt <hostdev> elements for functions",
       {kIds},
       {kJson, kMdev},
       command_vm_xml},
      {kBorrower,
       "kinds",
       "list the kinds of functions that mediated devices can be any of",
       {},
       {kJson, kColumns, kNoHeadings},
       command_kinds},
      {kBorrower,
       "add-kind",
       "make a kind of functions, now and whenever this host boots",
       {kName},
       {kJson, kDevice, kFunction, kFunctionLabel},
       command_add_kind},
      {kBorrower, "remove-kind", "undo add-kind", {kName}, {kJson}, command_remove_kind},
  };
  return table;
}

}  // namespace pcilend
