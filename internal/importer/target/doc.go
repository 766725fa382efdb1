// Package target is the disk that is being made: a sparse file beside its final
// name, or a block device.
//
// It owns when a disk counts as complete: a file is written as .disk.img.part and gets
// its name by a rename, after everything is on the disk; a block device is complete
// when the worker exits with success. The disk reads as zero wherever nothing was
// written. It must know nothing of sources and formats.
package target
