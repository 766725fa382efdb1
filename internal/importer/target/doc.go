// Package target is the disk that is being made: a sparse file beside its final name, or a block device.
//
// It owns when a disk counts as complete: a file is .disk.img.part until everything is on the disk; a block device is
// complete when the worker exits with success. Unwritten parts read as zero. It must not know sources or formats.
package target
