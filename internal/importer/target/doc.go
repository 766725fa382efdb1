// Package target is the disk that is being made: a sparse file beside its final
// name, or a block device.
//
// It owns how a disk becomes whole and how it never seems to be: a file is
// written as .disk.img.part and gets its name by a rename, after everything is on
// the disk; a block device is whole when the worker's exit says so. It reads as
// zero wherever nothing was written. It must know nothing of sources and formats.
package target
