//go:build system

package network

import (
	"os/exec"
	"runtime"
	"testing"

	"golang.org/x/sys/unix"
)

// The thread is never unlocked: it ends with the test's goroutine.
func ownNamespace(t *testing.T) {
	t.Helper()
	runtime.LockOSThread()
	if err := unix.Unshare(unix.CLONE_NEWNET); err != nil {
		t.Fatal(err)
	}
}

func run(t *testing.T, command string) string {
	t.Helper()
	out, err := exec.Command("sh", "-c", command).CombinedOutput()
	if err != nil {
		t.Fatalf("%s: %v: %s", command, err, out)
	}
	return string(out)
}

func TestMTUFollowsTheWayOut(t *testing.T) {
	ownNamespace(t)
	if mtu, err := MTU(); err != nil || mtu != 1500 {
		t.Errorf("without a way out the MTU is %d, %v", mtu, err)
	}
	run(t, "ip link add out0 mtu 1380 type veth peer name out1 && ip link set out1 up && ip addr add 192.0.2.2/24 dev out0 && ip link set out0 up && ip route add default via 192.0.2.1")
	if mtu, err := MTU(); err != nil || mtu != 1380 {
		t.Errorf("behind a link of 1380 bytes the MTU is %d, %v", mtu, err)
	}
	taken, err := Taken()
	if err != nil {
		t.Fatal(err)
	}
	found := false
	for _, p := range taken {
		found = found || p.String() == "192.0.2.0/24"
	}
	if !found {
		t.Errorf("the network of the interface is not taken: %v", taken)
	}
}
