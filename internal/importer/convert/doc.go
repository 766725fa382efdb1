// Package convert uses qemu-img for the formats that Drydock does not read itself: vmdk, vhdx, vdi and vhd.
//
// qemu-img gets the format, and an open file with the whole image, so that it converts the inspected image. An image that
// refers to another file is refused before qemu-img opens it, and again by the output of qemu-img info. qemu-img runs under
// limits on memory and time (package confine, decision 101).
package convert
