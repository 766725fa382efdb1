package main

import (
	"fmt"
	"os"
	"runtime"
	"syscall"
)

const (
	mebibyte = 1 << 20
	// most is what one compiler or linker may grow to before it collects garbage
	// in earnest. The linker of Kubernetes is the only one that gets there.
	most = 2048 * mebibyte
	// least is below what the compilers of large packages live with: there is
	// nothing to gain.
	least = 768 * mebibyte
)

// collectorSettings are the settings of Go's garbage collector for the compilers
// and linkers, of which there is one per core. They live for seconds, and a
// quarter of their time goes into collecting memory that ends with them; so they
// collect seldom where the machine has memory for that: half of it, at most.
func collectorSettings(memory uint64, cores int) []string {
	limit := min(memory/2/uint64(cores), most)
	if limit < least {
		return nil
	}
	return []string{"GOGC=800", fmt.Sprintf("GOMEMLIMIT=%dMiB", limit/mebibyte)}
}

// collector returns the settings for this machine. Settings in the environment are kept.
func collector() []string {
	if os.Getenv("GOGC") != "" || os.Getenv("GOMEMLIMIT") != "" {
		return nil
	}
	var info syscall.Sysinfo_t
	if err := syscall.Sysinfo(&info); err != nil {
		return nil // without a figure nothing is changed
	}
	return collectorSettings(info.Totalram*uint64(info.Unit), runtime.NumCPU())
}
