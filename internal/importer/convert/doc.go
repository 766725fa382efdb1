// Package convert has qemu-img read the formats that Drydock does not read itself:
// vmdk, vhdx, vdi and vhd.
//
// qemu-img gets an open file that holds the whole image, so what was inspected is what
// is converted, and is told the format: it never guesses. An image that refers to
// another file is refused before qemu-img opens it, and again by what qemu-img says
// of it. It runs under limits on memory and time (package confine). See decision 101.
package convert
