# SPDX-License-Identifier: GPL-2.0-or-later
# shellcheck shell=bash
# Choosing kernel modules.

# run_depmod TREE ROOT RELEASE: indexes ROOT/lib/modules/RELEASE with the depmod of TREE.
run_depmod() {
	local -a binds=("$2" /mnt)
	in_tree "$1" depmod -b /mnt "$3"
}

# index_with_updates TREE ROOT RELEASE UPDATES INDEX: the index of ROOT's modules and of those in
# UPDATES, were they in ROOT's directory updates/; left in the directory INDEX.
index_with_updates() {
	local -a binds=("$2" /mnt "$4" "/mnt/lib/modules/$3/updates" "$5" /out)
	in_tree "$1" sh -ec 'depmod -o /out -b /mnt "$1"; mv /out/lib/modules/"$1"/* /out/' sh "$3"
	rm -r "$5/lib"
}

# module_closure MODULES.DEP LIST: the files of the modules in LIST and of those they need, each
# after what it needs. A line of LIST is a directory below kernel/ ("drivers/nvme/") or a module;
# the word "optional" after a module allows for kernels that lack it.
module_closure() {
	awk '
		function base(path) {
			sub(/.*\//, "", path)
			sub(/\.ko.*/, "", path)
			gsub(/-/, "_", path)
			return path
		}
		function emit(path, i, n, dep) {
			if (path in seen)
				return
			seen[path]
			n = split(deps[path], dep, " ")
			for (i = 1; i <= n; i++)
				emit(dep[i])
			print path
		}
		FNR == NR {
			sub(/#.*/, "")
			if ($1 ~ /\/$/)
				dirs["kernel/" $1]
			else if ($1 != "")
				names[$1] = / optional/
			next
		}
		{
			path = $1
			sub(/:$/, "", path)
			$1 = ""
			deps[path] = $0
			if (base(path) in names) {
				found[base(path)]
				wanted[path]
			}
			for (dir in dirs)
				if (index(path, dir) == 1)
					wanted[path]
		}
		END {
			for (name in names)
				if (!(name in found) && !names[name]) {
					print "the kernel has no module " name > "/dev/stderr"
					exit 1
				}
			for (path in wanted)
				emit(path)
		}' "$2" "$1"
}

# copy_listed FROM TO: copies the files named on stdin, keeping their directories.
copy_listed() {
	tar c -C "$1" --no-recursion -T - | tar x -C "$2"
}
