// Package accelerator chooses the accelerator for tests that start QEMU themselves:
// emulation, which works everywhere, or the one in DRYDOCK_ACCEL.
//
// It owns that choice for tests and must not be linked into a program.
package accelerator

import (
	"context"
	"fmt"
	"os"
	"sync"
	"testing"
	"time"

	"drydock.dev/drydock/internal/launcher/bootprobe"
)

// Variable is the environment variable that fixes the accelerator.
const Variable = "DRYDOCK_ACCEL"

// Of returns the accelerator for a test's guests, tcg or kvm, and logs it. The test
// fails when it is to be one that can't be used here.
func Of(t testing.TB) string {
	t.Helper()
	accel, err := chosen()
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("guests run with %s", accel)
	return accel
}

// chosen is the same for all tests of a program: KVM is tried once.
var chosen = sync.OnceValues(func() (string, error) { return choose(os.Getenv(Variable), tryKVM) })

func choose(wanted string, tryKVM func() error) (string, error) {
	switch wanted {
	case "", bootprobe.TCG:
		return bootprobe.TCG, nil
	case bootprobe.KVM:
		if err := tryKVM(); err != nil {
			return "", fmt.Errorf("%s is kvm, and KVM can't be used here: %w", Variable, err)
		}
		return bootprobe.KVM, nil
	}
	return "", fmt.Errorf("%s is %q; it must be kvm, tcg or empty", Variable, wanted)
}

// tryKVM runs the node probe's guest. Its time is more generous than the node's: who
// asks for KVM means it.
func tryKVM() error {
	for _, firmware := range []bootprobe.Firmware{bootprobe.BIOS, bootprobe.UEFI} {
		outcome := bootprobe.Probe{
			QEMU: "qemu-system-x86_64", Accel: bootprobe.KVM, Firmware: firmware, Deadline: 5 * time.Second,
		}.Run(context.Background())
		if !outcome.OK {
			return fmt.Errorf("%s", outcome.Reason)
		}
	}
	return nil
}
