// Package guest builds the tiny virtual machine that Drydock's tests run: a
// kernel (package kernel, or Debian's), an initramfs with busybox and guestd (package guestd, the guest's own
// program), and a disk that boots both with a BIOS and with UEFI.
//
// It is for tests and demonstrations: it favors a quick boot over everything
// else, keeps nothing across a reboot and has known passwords. Nothing of Drydock
// itself may depend on it.
package guest
