// Package accelerator chooses the accelerator for tests that start QEMU themselves: emulation, which works
// everywhere, or the value of DRYDOCK_ACCEL. It must not be linked into a program.
package accelerator

import (
	"context"
	"fmt"
	"os"
	"sync"
	"testing"
	"time"

	"drydock.dev/drydock/internal/launcher/bootprobe"
	"drydock.dev/drydock/test/shipped"
)

// Variable fixes the accelerator.
const Variable = "DRYDOCK_ACCEL"

// Of logs the accelerator, tcg or kvm. The test fails if the requested one can't be used.
func Of(t testing.TB) string {
	t.Helper()
	accel, err := chosen()
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("guests run with %s", accel)
	return accel
}

// chosen tries KVM at most once per test program.
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

// The deadline is longer than on a node, because the user has requested KVM.
func tryKVM() error {
	qemu, err := shipped.Find("/bin/qemu-system-x86_64")
	if err != nil {
		return err
	}
	root, err := shipped.Find("/")
	if err != nil {
		return err
	}
	for _, firmware := range []bootprobe.Firmware{bootprobe.BIOS, bootprobe.UEFI} {
		outcome := bootprobe.Probe{
			QEMU: qemu, Root: root, Accel: bootprobe.KVM, Firmware: firmware, Deadline: 5 * time.Second,
		}.Run(context.Background())
		if !outcome.OK {
			return fmt.Errorf("%s", outcome.Reason)
		}
	}
	return nil
}
