#!/bin/bash
# build.sh WORK AGENT INITRD: makes WORK/vmlinuz and the initramfs INITRD of the guest: Debian's kernel, siw
# built for it from Debian's kernel source (Debian builds none), and the RDMA programs of this host, with AGENT to run
# them. The kernel and siw are made once; what is beside this script says how.
#
# siw.ko is built twice: updates/siw.ko with siw.patch (settings become module parameters, and a lost first frame
# is looked for), and /lib/siw-unpatched.ko as it is.
set -euo pipefail
work=$1 agent=$2 initrd=$3
here=$(cd "$(dirname "$0")" && pwd)
modules="virtio_pci virtio_net ib_core ib_cm iw_cm ib_uverbs rdma_cm rdma_ucm siw crc32c_generic crc32_generic"
programs="rping ucmatose dtest dapltest rdma ip ss strace"

mkdir -p "$work/debs"
cd "$work"
kdepmod() { (exec -a depmod "$work/root/bin/kmod" "$@"); } # kmod acts by its name
dep() { apt-cache depends "$1" | awk -v p="$2" '$1=="Depends:" && $2~p {print $2; exit}'; }

if [ ! -e done ]; then
	image=$(dep linux-image-amd64 '^linux-image-')
	k=${image#linux-image-}
	source=$(apt-cache pkgnames linux-source- | grep -E '^linux-source-[0-9]' | sort -V | while read -r s; do
		case $k in "${s#linux-source-}".*) echo "$s" ;; esac; done | tail -n 1)
	rm -rf root siw-orig && mkdir root
	(cd debs && apt-get download "$image" "linux-headers-$k" "$source" kmod \
		"$(dep "linux-headers-$k" -common)" "$(dep "linux-headers-$k" kbuild)" 2>&1 | grep -v '^W:')
	for d in debs/linux-image*.deb debs/linux-headers*.deb debs/linux-kbuild*.deb debs/kmod*.deb; do
		dpkg -x "$d" root
	done
	dpkg --fsys-tarfile debs/linux-source*.deb | tar -xO --wildcards '*.tar.xz' | xz -dc |
		tar -x --strip-components=4 --wildcards '*/drivers/infiniband/sw/siw/*'
	mv siw siw-orig
	headers=$work/root/usr/src/linux-headers-$k
	sed -i "s#^include /usr/src/#include $work/root/usr/src/#" "$headers/Makefile"
	for kind in orig patched; do
		rm -rf siw && cp -r siw-orig siw
		[ $kind = orig ] || patch -s -d siw -p1 <"$here/siw.patch"
		make -s -C "$headers" M="$work/siw" CONFIG_RDMA_SIW=m modules >siw.log 2>&1 || { tail -n 30 siw.log; exit 1; }
		strip -g -o "siw-$kind.ko" siw/siw.ko
	done
	mkdir -p "root/lib/modules/$k/updates" && cp siw-patched.ko "root/lib/modules/$k/updates/siw.ko"
	kdepmod -b root "$k"
	cp "root/boot/vmlinuz-$k" vmlinuz
	rm -r debs
	echo "$k" >done
fi
k=$(cat done)
tree=$work/root/lib/modules/$k

r=$(mktemp -d)
trap 'rm -rf "$r"' EXIT
mkdir -p "$r"/{bin,sbin,dev,proc,sys,tmp,run,root,var/tmp,etc/libibverbs.d,usr/bin,usr/sbin} "$r/lib/modules/$k"
cp /bin/busybox "$r/bin/"
cp "$agent" "$r/bin/agent"
cp "$here/init" "$r/init" && chmod +x "$r/init"
copy() { mkdir -p "$r$(dirname "$1")" && cp -L "$1" "$r$1"; }
cp /bin/dash "$r/bin/sh" # busybox's shell would prefer its own ip to the real one
list=$(for b in $programs; do PATH=$PATH:/usr/sbin:/sbin command -v "$b"; done)
list="$list /bin/dash $(ls /usr/lib/*/libibverbs/libsiw-*.so /usr/lib/*/libdaplofa.so.2 /lib/*/libgcc_s.so.1 /lib/*/libibverbs/libsiw-*.so 2>/dev/null | sort -u)"
for f in $list; do
	copy "$f"
	for l in $(ldd "$f" 2>/dev/null | grep -oE '/[^ )]+' | sort -u); do [ -e "$r$l" ] || copy "$l"; done
done
cp /etc/libibverbs.d/siw.driver "$r/etc/libibverbs.d/"
cp "$here/dat.conf" "$r/etc/dat.conf"
cp /etc/services /etc/protocols "$r/etc/" 2>/dev/null || true
printf 'root:x:0:0:root:/root:/bin/sh\n' >"$r/etc/passwd"
printf 'root:x:0:\n' >"$r/etc/group"
printf 'passwd: files\ngroup: files\nhosts: files\n' >"$r/etc/nsswitch.conf"
printf '127.0.0.1 localhost\n' >"$r/etc/hosts"
cp siw-orig.ko "$r/lib/siw-unpatched.ko"
declare -A seen
for m in $modules; do # with everything that modules.dep says they need
	p=$(grep -E "(^|/)${m//[-_]/[-_]}\.ko:" "$tree/modules.dep") || { echo "no module $m" >&2; exit 1; }
	for f in ${p/:/ }; do
		[ -z "${seen[$f]:-}" ] || continue
		seen[$f]=1
		mkdir -p "$r/lib/modules/$k/$(dirname "$f")" && cp "$tree/$f" "$r/lib/modules/$k/$f"
	done
done
cp "$tree"/modules.{order,builtin} "$r/lib/modules/$k/"
kdepmod -b "$r" "$k" 2>/dev/null
(cd "$r" && find . | cpio -o -H newc --quiet | gzip -1) >"$initrd.new"
mv "$initrd.new" "$initrd"
