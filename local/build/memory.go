package main

import (
	"fmt"
	"os"
	"runtime"
	"syscall"
)

const (
	mebibyte = 1 << 20
	// most is the memory at which a compiler or linker begins to collect garbage in earnest. Only
	// the linker of Kubernetes reaches it.
	most = 2048 * mebibyte
	// least is less than the compilers of large packages use anyway, so a smaller limit gains
	// nothing.
	least = 768 * mebibyte
)

// collectorSettings returns the garbage collector's settings for compilers and linkers, one per core. They spend a
// quarter of their time on collections: with enough memory they collect rarely and use at most half of it.
func collectorSettings(memory uint64, cores int) []string {
	limit := min(memory/2/uint64(cores), most)
	if limit < least {
		return nil
	}
	return []string{"GOGC=800", fmt.Sprintf("GOMEMLIMIT=%dMiB", limit/mebibyte)}
}

// collector returns the settings for this machine, none if the environment has its own.
func collector() []string {
	if os.Getenv("GOGC") != "" || os.Getenv("GOMEMLIMIT") != "" {
		return nil
	}
	var info syscall.Sysinfo_t
	if err := syscall.Sysinfo(&info); err != nil {
		return nil // without the memory size, keep the defaults
	}
	return collectorSettings(info.Totalram*uint64(info.Unit), runtime.NumCPU())
}
