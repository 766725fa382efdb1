package pinning

import (
	"slices"
	"testing"

	"drydock.dev/drydock/internal/handler/concern"
	"drydock.dev/drydock/internal/handler/guest/guesttest"
	"drydock.dev/drydock/internal/qemu/qmp"
)

func TestTheThreadsOfQEMUArePinned(t *testing.T) {
	conn, pid := guesttest.StartQEMU(t)
	monitor, err := qmp.New(t.Context(), conn, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = monitor.Close() }()
	node := here(pid)
	has, err := node.CPUs()
	if err != nil {
		t.Fatal(err)
	}
	if len(has) < 2 {
		t.Skip("the machine has one CPU")
	}
	c, r := New(node), dedicated(false)
	r.Pod = podOf(len(has))
	seen, err := c.Observe(t.Context(), concern.QueryOf(monitor), r)
	if err != nil {
		t.Fatal(err)
	}
	if err := c.Act(t.Context(), monitor, r, c.Decide(r, seen)); err != nil {
		t.Fatal(err)
	}
	if seen, err = c.Observe(t.Context(), concern.QueryOf(monitor), r); err != nil {
		t.Fatal(err)
	}
	if again := c.Decide(r, seen); again.Due || len(seen.vcpus) != 2 {
		t.Errorf("the next plan is %+v for %d virtual CPUs", again, len(seen.vcpus))
	}
	var pinned []int
	for _, v := range seen.vcpus {
		pinned = append(pinned, seen.threads[v.Thread]...)
	}
	if slices.Sort(pinned); len(pinned) != 2 || pinned[0] == pinned[1] {
		t.Errorf("the threads of the virtual CPUs run on the CPUs %v", pinned)
	}
}
