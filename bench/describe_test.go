package main

import "testing"

func TestTheMachineIsDescribed(t *testing.T) {
	m := machine()
	if m.CPUs < 1 || m.MemoryMiB < 1 || m.Kernel == "" {
		t.Errorf("the machine is described as %+v", m)
	}
}
