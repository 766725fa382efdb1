package qmptest

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"drydock.dev/drydock/internal/qemu/qmp"
)

// patience is how long the suite waits for a change in QEMU: its guest is emulated, and the host may be busy.
const patience = 4 * time.Minute

// conn is a connection to the monitor of a machine that was just started with Arguments.
type conn struct {
	t *testing.T
	*qmp.Client
	// outOfBand is a monitor with out-of-band commands, as virt-launcher's.
	outOfBand *qmp.Client
	events    chan qmp.Event
}

// opener starts such a machine and connects to its monitors: an ordinary one, which gets events, and one with out-of-band
// commands. more are further arguments, such as -incoming defer. The machine ends with the test.
type opener func(t *testing.T, events func(qmp.Event), more ...string) (ordinary, outOfBand *qmp.Client)

// conformance tests the behavior that the model and QEMU share. Each part starts its own machine.
func conformance(t *testing.T, open opener) {
	for name, part := range map[string]func(*conn){
		"a guest's CPUs are started and stopped":                      runStates,
		"what the guest runs with is told":                            hasAccelerator,
		"a command that does not exist is refused with its class":     unknownCommand,
		"commands that are sent together are executed in their order": together,
		"a reset is reported and leaves stopped CPUs in prelaunch":    resets,
		"an object is there until it is deleted":                      objects,
		"a device has a place in the boot order to itself":            bootOrder,
		"a descriptor is kept with its text":                          descriptors,
		"a block node exists once and is deleted when unused":         blockNodes,
		"a disk on a bus of its own is taken out at once":             unplugSCSI,
		"a disk on a port is the guest's to release":                  unplugPCI,
		"a medium goes through an open tray":                          media,
		"the disks are listed with their devices":                     blockLists,
		"a disk's node is replaced behind its device":                 replacedNode,
		"keys and buttons are pressed":                                buttons,
		"an interface is plugged with its backend":                    plugsNIC,
		"links are switched by the names of their backends":           links,
		"CPUs are plugged into sockets, and the guest's to release":   cpus,
		"memory is given in blocks, and the guest's to take":          memoryPlugged,
		"the guest agent's port is listed, closed without an agent":   agentPort,
		"the monitor ends with QEMU, after the event that tells why":  quits,
	} {
		t.Run(name, func(t *testing.T) {
			c := &conn{t: t, events: make(chan qmp.Event, 100)}
			c.Client, c.outOfBand = open(t, func(e qmp.Event) { KeepLatest(c.events, e) })
			defer func() { _ = c.Close() }()
			part(c)
		})
	}
	migrations(t, open)
}

type properties = map[string]any

func (c *conn) do(command string, arguments any, result any) {
	c.t.Helper()
	ctx, cancel := context.WithTimeout(c.t.Context(), patience)
	defer cancel()
	if err := c.Execute(ctx, command, arguments, result); err != nil {
		c.t.Fatalf("%s: %v", command, err)
	}
}

func (c *conn) refused(command string, arguments any, class, part string) {
	c.t.Helper()
	ctx, cancel := context.WithTimeout(c.t.Context(), patience)
	defer cancel()
	err := c.Execute(ctx, command, arguments, nil)
	var refusal *qmp.Error
	if !errors.As(err, &refusal) || refusal.Class != class || refusal.Command != command || !strings.Contains(refusal.Desc, part) {
		c.t.Fatalf("%s %v: %v, want a refusal of class %s with %q", command, arguments, err, class, part)
	}
}

// await waits for an event and drops others.
func (c *conn) await(name string) qmp.Event {
	c.t.Helper()
	for timeout := time.After(patience); ; {
		select {
		case e := <-c.events:
			if e.Name == name {
				return e
			}
		case <-timeout:
			c.t.Fatalf("no event %s", name)
		}
	}
}

// silent checks that no such event came before the last answer.
func (c *conn) silent(names ...string) {
	c.t.Helper()
	for {
		select {
		case e := <-c.events:
			if slices.Contains(names, e.Name) {
				c.t.Fatalf("the event %s %s", e.Name, e.Data)
			}
		default:
			return
		}
	}
}

func (c *conn) is(want string) {
	c.t.Helper()
	var status struct {
		Status  string
		Running bool
	}
	c.do("query-status", nil, &status)
	if status.Status != want || status.Running != (want == "running") {
		c.t.Fatalf("the guest is %+v, want %s", status, want)
	}
}

func runStates(c *conn) {
	c.is("prelaunch")
	c.do("stop", nil, nil)
	c.is("prelaunch")
	c.do("cont", nil, nil)
	if e := c.await("RESUME"); e.Time.IsZero() {
		c.t.Error("the event has no time")
	}
	c.is("running")
	c.do("cont", nil, nil)
	c.do("stop", nil, nil)
	c.await("STOP")
	c.is("paused")
	c.do("stop", nil, nil)
	c.is("paused")
	c.silent("STOP", "RESUME")
}

func hasAccelerator(c *conn) {
	var kvm struct{ Present, Enabled *bool }
	c.do("query-kvm", nil, &kvm)
	if kvm.Present == nil || kvm.Enabled == nil {
		c.t.Fatalf("the answer is %+v, want both", kvm)
	}
	var kind string
	c.do("qom-get", properties{"path": "/machine", "property": "type"}, &kind)
	if !strings.HasPrefix(kind, "pc-q35-") || !strings.HasSuffix(kind, "-machine") {
		c.t.Fatalf("the machine's type is %s", kind)
	}
}

func together(c *conn) {
	var before, after struct {
		Status string `json:"status"`
	}
	ctx, cancel := context.WithTimeout(c.t.Context(), patience)
	defer cancel()
	err := c.ExecuteAll(ctx, qmp.Command{Name: "cont"}, qmp.Command{Name: "query-status", Result: &before},
		qmp.Command{Name: "no-such-command"}, qmp.Command{Name: "stop"}, qmp.Command{Name: "no-such-command-either"},
		qmp.Command{Name: "query-status", Result: &after})
	var refusal *qmp.Error
	if !errors.As(err, &refusal) || refusal.Command != "no-such-command" {
		c.t.Errorf("the first refusal is %v", err)
	}
	if before.Status != "running" || after.Status != "paused" {
		c.t.Errorf("the guest is %s before it is stopped, and %s after", before.Status, after.Status)
	}
}

func unknownCommand(c *conn) {
	c.refused("no-such-command", nil, "CommandNotFound", "The command no-such-command has not been found")
}

func resets(c *conn) {
	c.do("system_reset", nil, nil)
	c.await("RESET")
	c.is("prelaunch")
	c.do("cont", nil, nil)
	c.do("stop", nil, nil)
	c.is("paused")
	c.do("system_reset", nil, nil)
	c.await("RESET")
	c.is("prelaunch")
}

func (c *conn) names(path string) []string {
	c.t.Helper()
	var list []struct{ Name, Type string }
	c.do("qom-list", properties{"path": path}, &list)
	var names []string
	for _, p := range list {
		names = append(names, p.Name)
	}
	return names
}

func objects(c *conn) {
	marker := properties{"qom-type": "rng-builtin", "id": "marker"}
	c.do("object-add", marker, nil)
	if !slices.Contains(c.names("/objects"), "marker") {
		c.t.Errorf("the objects are %v", c.names("/objects"))
	}
	c.refused("object-add", marker, "GenericError", "duplicate")
	c.do("object-del", properties{"id": "marker"}, nil)
	if slices.Contains(c.names("/objects"), "marker") {
		c.t.Error("the object is still there")
	}
	c.refused("object-del", properties{"id": "marker"}, "GenericError", "not found")
}

func bootIndex(device string, index int) properties {
	return properties{"path": "/machine/peripheral/" + device, "property": "bootindex", "value": index}
}

func bootOrder(c *conn) {
	c.do("qom-set", bootIndex(RootDisk, 1), nil)
	var index int
	c.do("qom-get", properties{"path": "/machine/peripheral/" + RootDisk, "property": "bootindex"}, &index)
	if index != 1 {
		c.t.Errorf("the boot index is %d", index)
	}
	c.refused("qom-set", bootIndex(Drive, 1), "GenericError", "already been used")
	c.refused("qom-set", bootIndex("none", 2), "DeviceNotFound", "not found")
}

func (c *conn) passes(text string, size int64) (set int64) {
	c.t.Helper()
	f, err := os.Create(filepath.Join(c.t.TempDir(), "disk.img"))
	if err == nil {
		err = f.Truncate(size)
	}
	if err != nil {
		c.t.Fatal(err)
	}
	defer f.Close()
	var added struct {
		Set int64 `json:"fdset-id"`
	}
	ctx, cancel := context.WithTimeout(c.t.Context(), patience)
	defer cancel()
	if err := c.ExecuteWithFile(ctx, "add-fd", properties{"opaque": text}, f, &added); err != nil {
		c.t.Fatal(err)
	}
	return added.Set
}

func (c *conn) sets() map[int64]string {
	c.t.Helper()
	var list []struct {
		ID  int64 `json:"fdset-id"`
		FDs []struct{ Opaque string }
	}
	c.do("query-fdsets", nil, &list)
	sets := map[int64]string{}
	for _, s := range list {
		for _, fd := range s.FDs {
			sets[s.ID] = fd.Opaque
		}
	}
	return sets
}

func descriptors(c *conn) {
	a, b := c.passes("a", 1), c.passes("b", 1)
	if got := c.sets(); len(got) != 2 || got[a] != "a" || got[b] != "b" {
		c.t.Errorf("the descriptors are %v, want a as %d and b as %d", got, a, b)
	}
	c.refused("add-fd", properties{"opaque": "none"}, "GenericError", "SCM_RIGHTS")
	c.refused("remove-fd", properties{"fdset-id": 77}, "GenericError", "not found")
	c.do("cont", nil, nil)
	c.do("remove-fd", properties{"fdset-id": a}, nil)
	if got := c.sets(); len(got) != 1 || got[b] != "b" {
		c.t.Errorf("after one was removed, the descriptors are %v", got)
	}
}
