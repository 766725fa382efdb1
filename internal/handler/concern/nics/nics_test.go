package nics

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"github.com/google/go-cmp/cmp"
	v1 "kubevirt.io/api/core/v1"

	"drydock.dev/drydock/internal/contracts/layout"
	"drydock.dev/drydock/internal/handler/concern"
	"drydock.dev/drydock/internal/handler/concern/concerntest"
	"drydock.dev/drydock/internal/handler/network"
	"drydock.dev/drydock/internal/qemu/qmp"
	"drydock.dev/drydock/internal/qemu/qmptest"
	"drydock.dev/drydock/internal/rules/hotplug/nichotplug"
	"drydock.dev/drydock/internal/rules/machine"
	"drydock.dev/drydock/internal/rules/vmi/vmihandler"
)

var noon = time.Date(2026, 11, 22, 12, 0, 0, 0, time.UTC)

// scene is the pod, and records the effects outside of QEMU.
type scene struct {
	*concerntest.Driven[Seen, Plan]
	concern *Concern
	qemu    *qmptest.Server
	// loose and devices are the pod's answers, asked has the questions about connections.
	loose   []string
	devices nichotplug.Devices
	asked   [][]string
	// broken is the result of Connect and RemoveLeftovers.
	broken error
	// connected and tidied have the arguments of Connect and RemoveLeftovers.
	connected, tidied [][]string
	// misbuilt are the interfaces whose device names a backend that does not exist.
	misbuilt map[string]bool
}

func (s *scene) Disconnected(names []string) ([]string, error) {
	s.asked = append(s.asked, names)
	return s.loose, s.broken
}

func (s *scene) Devices(*v1.VirtualMachineInstance) (nichotplug.Devices, error) {
	return s.devices, s.broken
}

func (s *scene) connect(_ context.Context, vmi *v1.VirtualMachineInstance, plug []string) ([]network.Interface, error) {
	s.connected = append(s.connected, plug)
	if s.broken != nil {
		return nil, s.broken
	}
	return interfacesOf(vmi), nil
}

func (s *scene) build(vmi *v1.VirtualMachineInstance, _ []network.Interface, name string) (netdev, device machine.Properties, err error) {
	for _, iface := range vmi.Spec.Domain.Devices.Interfaces {
		if iface.Name == name && iface.SRIOV != nil {
			return nil, machine.Properties{"driver": "vfio-pci", "id": machine.NICID(name), "host": nodeDevice, "bus": qmptest.Port}, nil
		}
	}
	device = deviceOf(name)
	if s.misbuilt[name] {
		device["netdev"] = "none"
	}
	return netdevOf(name), device, nil
}

func netdevOf(name string) machine.Properties {
	return machine.Properties{"type": "tap", "id": machine.NetdevID(name), "ifname": "tap1"}
}

func deviceOf(name string) machine.Properties {
	return machine.Properties{"driver": "virtio-net-pci", "id": machine.NICID(name), "netdev": machine.NetdevID(name), "bus": qmptest.Port}
}

const nodeDevice = "0000:65:00.2"

func interfacesOf(vmi *v1.VirtualMachineInstance) []network.Interface {
	var list []network.Interface
	for _, iface := range vmi.Spec.Domain.Devices.Interfaces {
		if iface.State != v1.InterfaceStateAbsent {
			list = append(list, network.Interface{Name: iface.Name, MAC: "02:00:00:00:00:01", PodInterface: "pod-" + iface.Name, Queues: 1})
		}
	}
	return list
}

// round returns the facts of a guest with an interface on the pod network and others, whose networks the pod has.
func round(others ...string) concern.Round {
	r := concern.Round{VMI: &v1.VirtualMachineInstance{}, InPod: nichotplug.Attached{}, PodVersion: "1", Now: noon}
	r.VMI.Namespace, r.VMI.Status.Phase = "lab", v1.Running
	for _, name := range append([]string{"default"}, others...) {
		on := v1.Network{Name: name, NetworkSource: v1.NetworkSource{Multus: &v1.MultusNetwork{NetworkName: name}}}
		if name == "default" {
			on.NetworkSource = v1.NetworkSource{Pod: &v1.PodNetwork{}}
		}
		r.VMI.Spec.Networks = append(r.VMI.Spec.Networks, on)
		r.VMI.Spec.Domain.Devices.Interfaces = append(r.VMI.Spec.Domain.Devices.Interfaces, v1.Interface{Name: name})
		r.InPod[layout.SecondaryInterface(name)] = "lab/" + name
	}
	return r
}

// drive connects the interfaces of a guest to a model of QEMU, as a virt-handler that has just started.
func drive(t *testing.T, qemu *qmptest.Server, r concern.Round) *scene {
	t.Helper()
	s := &scene{qemu: qemu, misbuilt: map[string]bool{}}
	s.concern = New(Env{
		Connect: s.connect, Build: s.build, Now: func() time.Time { return s.Round().Now },
		RemoveLeftovers: func(keep []string) error {
			s.tidied = append(s.tidied, keep)
			return s.broken
		},
	}, s, logr.Discard(), interfacesOf(round().VMI))
	s.Driven = concerntest.Drive(t, qemu, s.concern, r)
	return s
}

// step acts on the present plan, which must be due.
func (s *scene) step(t *testing.T) {
	t.Helper()
	p := s.Look()
	if !p.Due {
		t.Fatalf("nothing is due: %+v", p)
	}
	if err := s.Act(p); err != nil {
		t.Fatal(err)
	}
}

// plugged returns a guest with the plugged interface blue.
func plugged(t *testing.T) *scene {
	t.Helper()
	qemu := qmptest.New(t)
	s := drive(t, qemu, round())
	if s.Look(); len(s.concern.Present()) != 0 {
		t.Errorf("QEMU has %v", s.concern.Present())
	}
	s.Change(func(r *concern.Round) { *r = round("blue") })
	s.step(t)
	return s
}

// wants changes the wanted state of the interface blue.
func (s *scene) wants(state v1.InterfaceState) {
	s.Change(func(r *concern.Round) {
		vmi := r.VMI.DeepCopy()
		vmi.Spec.Domain.Devices.Interfaces[1].State = state
		r.VMI = vmi
	})
}

func TestAnInterfaceComes(t *testing.T) {
	s := plugged(t)
	p := s.Look()
	if seen := s.concern.lastKnown(); !seen.present["blue"] || !seen.plugged["blue"].Equal(noon) || !p.Settled {
		t.Errorf("it knows %+v, and plans %+v", seen, p)
	}
	// The next virt-handler finds it.
	next := drive(t, s.qemu, round("blue"))
	if next.Look(); !next.concern.Present()["blue"] || len(next.concern.lastKnown().gone) != 0 {
		t.Errorf("the next one knows %+v", next.concern.lastKnown())
	}
}

func TestADeviceOfTheNodeComesAndGoes(t *testing.T) {
	qemu := qmptest.New(t)
	r := round("blue")
	r.VMI.Spec.Domain.Devices.Interfaces[1].SRIOV = &v1.InterfaceSRIOV{}
	s := drive(t, qemu, r)
	s.devices = nichotplug.Devices{layout.SecondaryInterface("blue"): nodeDevice}
	if err := s.Act(s.Look()); err == nil || !strings.HasPrefix(err.Error(), "plugging interface blue: ") || !strings.Contains(err.Error(), "no such host device") {
		t.Errorf("one that the node lacks: %v", err)
	}
	if got := qemu.Executed("netdev_add") + qemu.Executed("netdev_del"); got != 0 {
		t.Errorf("it has %d commands for a backend", got)
	}
	qemu.HasHostDevice(nodeDevice)
	s.step(t)
	if !s.concern.Present()["blue"] || qemu.Executed("netdev_add") != 0 {
		t.Errorf("it knows %+v", s.concern.lastKnown())
	}
	s.wants(v1.InterfaceStateAbsent)
	s.step(t)
	qemu.Release(machine.NICID("blue"))
	s.Await("the interface to be gone", func(Plan) bool { return s.concern.lastKnown().gone["blue"] })
	if s.step(t); len(s.concern.lastKnown().gone) != 0 {
		t.Errorf("something is left of it: %+v", s.concern.lastKnown())
	}
}

func TestAnInterfaceGoes(t *testing.T) {
	s := plugged(t)
	s.wants(v1.InterfaceStateAbsent)
	for range 2 {
		if err := s.concern.unplug(t.Context(), s.Monitor, "blue"); err != nil {
			t.Fatal(err)
		}
		s.Pass(time.Second)
	}
	if seen := s.concern.lastKnown(); !seen.present["blue"] || !seen.since["blue"].Equal(noon) || !seen.asked["blue"].Equal(noon.Add(time.Second)) {
		t.Errorf("it knows %+v", seen)
	}
	s.qemu.Release(machine.NICID("blue"))
	s.Await("the interface to be gone", func(Plan) bool { return s.concern.lastKnown().gone["blue"] })
	if seen := s.concern.lastKnown(); seen.present["blue"] || len(seen.asked) != 0 || len(seen.since) != 0 {
		t.Errorf("it knows %+v", seen)
	}
	for range 2 {
		if err := s.concern.clear(t.Context(), s.Monitor, "blue"); err != nil {
			t.Fatal(err)
		}
	}
	if got := s.concern.lastKnown().gone; len(got) != 0 || slices.Contains(s.qemu.Netdevs(), "host-blue") {
		t.Errorf("%v are gone, QEMU has %v", got, s.qemu.Netdevs())
	}
	if err := s.concern.unplug(t.Context(), s.Monitor, "blue"); err != nil {
		t.Errorf("one that is gone: %v", err)
	}
}

// The remains of an earlier virt-handler's plug are replaced; a plug that fails leaves none.
func TestAPlugThatWasCutShort(t *testing.T) {
	qemu := qmptest.New(t)
	s := drive(t, qemu, round("blue"))
	if err := s.Monitor.Execute(t.Context(), "netdev_add", netdevOf("blue"), nil); err != nil {
		t.Fatal(err)
	}
	s.step(t)
	s.Change(func(r *concern.Round) { *r = round("blue", "green") })
	s.misbuilt["green"] = true
	var refusal *qmp.Error
	if err := s.Act(s.Look()); !errors.As(err, &refusal) || !strings.Contains(err.Error(), "plugging interface green") {
		t.Errorf("a device that can't be: %v", err)
	}
	if slices.Contains(qemu.Netdevs(), "host-green") || s.concern.Present()["green"] {
		t.Errorf("QEMU has %v", qemu.Netdevs())
	}
}

func TestQEMUIsAskedAgainForItsInterfaces(t *testing.T) {
	qemu := qmptest.New(t)
	first := drive(t, qemu, round("blue"))
	first.step(t)
	s := drive(t, qemu, round("blue"))
	concerntest.CheckQuestion(t, qemu, s.Driven, concerntest.Question[Plan]{
		Command: "qom-list", Event: "DEVICE_DELETED", Known: func(Plan) bool { return s.concern.Present()["blue"] },
	})
}

// TestAConnectionThatThePodHasLost: the pod is asked after each write, and an interface that it has lost is connected
// again.
func TestAConnectionThatThePodHasLost(t *testing.T) {
	s := plugged(t)
	s.Look()
	before := len(s.asked)
	if s.Look(); len(s.asked) != before {
		t.Errorf("the pod was asked %d times without a write", len(s.asked)-before)
	}
	s.Pass(time.Hour)
	s.loose = []string{"blue"}
	s.Change(func(r *concern.Round) { r.PodVersion = "2" })
	p := s.Look()
	if !slices.Equal(p.Step.Reconnect, []string{"blue"}) || len(s.asked) != before+1 || !slices.Equal(s.asked[before], []string{"blue"}) {
		t.Errorf("it plans %+v, and has asked for %v", p.Step, s.asked)
	}
	s.broken = errors.New("no network")
	if err := s.Act(p); !errors.Is(err, s.broken) {
		t.Errorf("without a network: %v", err)
	}
	s.broken, s.loose = nil, nil
	if s.step(t); !s.Look().Settled {
		t.Errorf("it is not connected: %+v", s.Look())
	}
	s.broken = errors.New("no namespace")
	s.Change(func(r *concern.Round) { r.PodVersion = "3" })
	if s.Look(); len(s.asked) != before+2 {
		t.Errorf("the pod was asked %d times", len(s.asked)-before)
	}
	if s.Look(); len(s.asked) != before+3 {
		t.Error("a question that failed is not put again")
	}
}

// TestAnInterfaceThatIsWantedAgain: the pod may have lost its side since the guest was asked to release it.
func TestAnInterfaceThatIsWantedAgain(t *testing.T) {
	s := plugged(t)
	s.wants(v1.InterfaceStateAbsent)
	s.step(t)
	s.Pass(time.Minute)
	s.wants("")
	if p := s.Look(); !slices.Equal(p.Step.Reconnect, []string{"blue"}) {
		t.Errorf("it plans %+v", p.Step)
	}
	s.step(t)
	if seen := s.concern.lastKnown(); len(seen.since) != 0 || len(seen.asked) != 0 || !s.Look().Settled {
		t.Errorf("it knows %+v", seen)
	}
}

// TestLeftoversOfAnEarlierVirtHandler: the pod is tidied once, and again if that has failed.
func TestLeftoversOfAnEarlierVirtHandler(t *testing.T) {
	first := plugged(t)
	s := drive(t, first.qemu, round("blue"))
	s.broken = errors.New("busy")
	if err := s.Act(s.Look()); !errors.Is(err, s.broken) || len(s.tidied) != 1 {
		t.Errorf("a pod that can't be tidied: %v", err)
	}
	s.broken = nil
	s.step(t)
	if p := s.Look(); !p.Settled || len(s.tidied) != 2 || !slices.Equal(s.tidied[1], []string{"blue"}) {
		t.Errorf("it was tidied except for %v; then %+v", s.tidied, p)
	}
}

func TestWhenInterfacesChange(t *testing.T) {
	migrating := func(r *concern.Round) {
		r.VMI.Status.MigrationState = &v1.VirtualMachineInstanceMigrationState{MigrationUID: "m"}
	}
	device := func(r *concern.Round) { r.VMI.Spec.Domain.Devices.Interfaces[1].SRIOV = &v1.InterfaceSRIOV{} }
	target := func(r *concern.Round) { r.TargetConnected = true }
	has := func(names ...string) Seen {
		s := Seen{tidied: true, present: map[string]bool{"default": true}, connected: []network.Interface{{Name: "default"}}}
		for _, name := range names {
			s.present[name] = true
			s.connected = append(s.connected, network.Interface{Name: name})
		}
		return s
	}
	plugs, leaves := nichotplug.Step{Plug: []string{"blue"}, Keep: []string{"default", "blue"}}, nichotplug.Step{Unplug: []string{"blue"}}
	for name, c := range map[string]struct {
		seen    Seen
		changes []func(*concern.Round)
		want    nichotplug.Step
		next    concern.Next
	}{
		"one is missing":                 {seen: has(), want: plugs, next: concern.Next{Due: true}},
		"all are there":                  {seen: has("blue"), next: concern.Next{Settled: true}},
		"the guest is not reported":      {seen: has(), changes: []func(*concern.Round){func(r *concern.Round) { r.VMI.Status.Phase = v1.Scheduled }}, want: plugs},
		"the guest waits for volumes":    {seen: has(), changes: []func(*concern.Round){func(r *concern.Round) { r.Halted = true }}},
		"QEMU migrates the guest":        {seen: has(), changes: []func(*concern.Round){func(r *concern.Round) { r.Migrating = true }}},
		"QEMU copies disks":              {seen: has(), changes: []func(*concern.Round){func(r *concern.Round) { r.CopyingDisks = true }}},
		"a migration has begun":          {seen: has(), changes: []func(*concern.Round){migrating, target}},
		"a device waits for the target":  {seen: has("blue"), changes: []func(*concern.Round){migrating, device}, next: concern.Next{Unsettled: true}},
		"a device leaves for the target": {seen: has("blue"), changes: []func(*concern.Round){migrating, device, target}, want: leaves, next: concern.Next{Due: true, Unsettled: true}},
	} {
		r := round("blue")
		for _, change := range c.changes {
			change(&r)
		}
		p := New(Env{}, nil, logr.Discard(), nil).Decide(r, c.seen)
		if diff := cmp.Diff(c.want, p.Step); diff != "" {
			t.Errorf("%s: the step (-want +got):\n%s", name, diff)
		}
		if diff := cmp.Diff(c.next, p.Next); diff != "" {
			t.Errorf("%s: the outcome (-want +got):\n%s", name, diff)
		}
	}
}

func TestAGuestThatKeepsAnInterface(t *testing.T) {
	s := plugged(t)
	s.wants(v1.InterfaceStateAbsent)
	s.step(t)
	s.Pass(time.Minute)
	p := s.Look()
	if want := "the guest has not released interfaces that are to be unplugged (blue)"; !strings.HasPrefix(p.Problem, want) {
		t.Errorf("it says %q, want %q", p.Problem, want)
	}
	s.Change(func(r *concern.Round) {
		r.VMI = r.VMI.DeepCopy()
		r.VMI.Status.MigrationState = &v1.VirtualMachineInstanceMigrationState{MigrationUID: "m"}
	})
	if p := s.Look(); !p.Unsettled || !strings.Contains(p.Refusal, "it can be migrated when it has") {
		t.Errorf("a migration: %+v", p.Next)
	}
}

func TestInterfacesInTheStatus(t *testing.T) {
	r := round("blue", "green", "red")
	r.VMI.Status.Interfaces = []v1.VirtualMachineInstanceNetworkInterface{
		{Name: "default", InfoSource: "domain"},
		{Name: "green", InfoSource: "domain, multus-status", MAC: "02:00:00:00:00:02", PodInterfaceName: "pod-green", QueueCount: 2, LinkState: "down"},
		{Name: "red", InfoSource: "domain"},
	}
	seen := Seen{
		present:   map[string]bool{"blue": true, "green": true},
		connected: []network.Interface{{Name: "default", MAC: "02:00:00:00:00:01", IPs: []string{"10.0.0.2"}, Stays: "why"}, {Name: "blue", Queues: 4}, {Name: "red"}},
	}
	var facts vmihandler.Guest
	c := New(Env{}, nil, logr.Discard(), nil)
	c.Report(c.Decide(r, seen), &facts)
	want := []vmihandler.Interface{
		{Name: "default", MAC: "02:00:00:00:00:01", IPs: []string{"10.0.0.2"}, Stays: "why"},
		{Name: "blue", Queues: 4, Multus: true},
		{Name: "green", MAC: "02:00:00:00:00:02", PodInterface: "pod-green", Queues: 2, Link: v1.InterfaceStateLinkDown, Multus: true},
	}
	if diff := cmp.Diff(want, facts.Interfaces); diff != "" {
		t.Errorf("interfaces (-want +got):\n%s", diff)
	}
}
