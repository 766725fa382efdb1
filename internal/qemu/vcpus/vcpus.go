// Package vcpus decodes QEMU's answer about its virtual CPUs and their threads, and bounds it: a guest may have taken QEMU
// over. It must not query QEMU, and must not decide whose the threads are: a number in the answer may be any process's.
package vcpus

import (
	"encoding/json"
	"fmt"
)

// Max is the maximum of a q35 machine without hardware virtualization.
const Max = 255

// VCPU is a virtual CPU and the number of its thread in QEMU's PID namespace. Several may share one thread.
type VCPU struct {
	Index  int `json:"cpu-index"`
	Thread int `json:"thread-id"`
}

// List is the result of query-cpus-fast, with each virtual CPU once.
type List []VCPU

// UnmarshalJSON implements json.Unmarshaler. It leaves out CPUs that no machine has, and those that appear again.
func (l *List) UnmarshalJSON(text []byte) error {
	var all []VCPU
	if err := json.Unmarshal(text, &all); err != nil {
		return fmt.Errorf("reading QEMU's virtual CPUs: %w", err)
	}
	*l = nil
	var seen [Max]bool
	for _, v := range all {
		if v.Index < 0 || v.Index >= Max || v.Thread <= 0 || seen[v.Index] {
			continue
		}
		seen[v.Index] = true
		*l = append(*l, v)
	}
	return nil
}
