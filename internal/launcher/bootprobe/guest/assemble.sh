#!/bin/sh
# Assembles the guest of the node probe: bios.bin and uefi.efi.
set -eu
cd "$(dirname "$0")"
objects=$(mktemp -d)
trap 'rm -r "$objects"' EXIT
flat() { # SOURCE ADDRESS RESULT
  as --64 -o "$objects/guest.o" "$1"
  ld -m elf_x86_64 --oformat binary -Ttext "$2" -o "$3" "$objects/guest.o"
  chmod 644 "$3"
}
flat bios.S 0x7c00 bios.bin
flat uefi.S 0 uefi.efi
