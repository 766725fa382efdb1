package driver

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	v1 "kubevirt.io/api/core/v1"

	"drydock.dev/drydock/internal/contracts/launch"
	"drydock.dev/drydock/internal/handler/concern"
	"drydock.dev/drydock/internal/handler/concern/disks"
	"drydock.dev/drydock/internal/handler/concern/nics"
	"drydock.dev/drydock/internal/handler/connection"
	"drydock.dev/drydock/internal/handler/guest"
	"drydock.dev/drydock/internal/handler/guestagent"
	"drydock.dev/drydock/internal/handler/network"
	"drydock.dev/drydock/internal/handler/preparation"
	"drydock.dev/drydock/internal/handler/presence"
	"drydock.dev/drydock/internal/handler/volumes"
	"drydock.dev/drydock/internal/qemu/runstate"
	"drydock.dev/drydock/internal/rules/vmi/vmihandler"
)

var noon = time.Date(2026, 11, 22, 12, 0, 0, 0, time.UTC)

// attachedTo returns a snapshot of a guest that runs in pod p.
func attachedTo(instance *v1.VirtualMachineInstance) snapshot {
	return snapshot{
		presence:   presence.Facts{VMI: instance, Pod: &vmihandler.Pod{UID: "p", Ready: true}},
		connection: connection.Facts{State: vmihandler.LinkUp, Launcher: launch.State{Phase: launch.PhaseRunning}},
		attached:   &attached{prepared: &preparation.Prepared{}},
		guest:      guest.Facts{RunState: runstate.Running}, now: noon,
	}
}

func TestWhatTheNextStepIsChosenOn(t *testing.T) {
	instance := scheduled("u")
	waiting := hotpluggable("u")
	waiting.Status.PhaseTransitionTimestamps = []v1.VirtualMachineInstancePhaseTransitionTimestamp{
		{Phase: v1.Running, PhaseTransitionTimestamp: metav1.NewTime(noon)},
	}
	plain := vmihandler.Observed{
		VMI: instance, Node: "node1", Pod: &vmihandler.Pod{UID: "p", Ready: true}, Link: vmihandler.LinkUp,
		Launcher: launch.State{Phase: launch.PhaseRunning}, Attached: true, RunState: runstate.Running, Now: noon,
	}
	for name, c := range map[string]struct {
		of     *v1.VirtualMachineInstance
		change func(*snapshot)
		want   func(*vmihandler.Observed)
	}{
		"a guest that runs": {instance, func(*snapshot) {}, func(*vmihandler.Observed) {}},
		"no QEMU is attached": {instance, func(s *snapshot) { s.attached = nil; s.guest.Resume = true }, func(o *vmihandler.Observed) {
			o.Attached, o.RunState = false, ""
		}},
		"virt-launcher was told to stop": {instance, func(s *snapshot) {
			s.connection.Stopping = &connection.Stopping{Grace: 7, Since: noon}
		}, func(o *vmihandler.Observed) { o.Stopping, o.StoppingSince = new(int64(7)), noon }},
		"the VMI is gone": {instance, func(s *snapshot) { s.presence.Deserted = true }, func(o *vmihandler.Observed) { o.Deserted = true }},
		"an I/O error has stopped the guest": {instance, func(s *snapshot) {
			s.guest = guest.Facts{RunState: runstate.IOError, Stalled: true, Resume: true, After: time.Second}
		}, func(o *vmihandler.Observed) {
			o.RunState, o.Resume, o.PlugAfter = runstate.IOError, true, time.Second
		}},
		"volumes are to be looked at sooner than the guest": {instance, func(s *snapshot) {
			s.concerns.Step, s.concerns.After, s.guest.After = vmihandler.Plug, time.Second, time.Minute
		}, func(o *vmihandler.Observed) { o.Plug, o.PlugAfter = true, time.Second }},
		"an interface is to be plugged": {instance, func(s *snapshot) { s.concerns.Step = vmihandler.PlugNICs }, func(o *vmihandler.Observed) { o.Change = vmihandler.PlugNICs }},
		"the guest waits for a volume that it boots from": {waiting, func(s *snapshot) {
			s.guest = guest.Facts{RunState: runstate.Prelaunch, Halted: true}
		}, func(o *vmihandler.Observed) { o.RunState, o.Halted = runstate.Prelaunch, true }},
		"the volume is there": {waiting, func(s *snapshot) {
			s.guest = guest.Facts{RunState: runstate.Prelaunch, Halted: true}
			s.disks.Plugged = map[string]bool{"a": true}
		}, func(o *vmihandler.Observed) { o.RunState, o.Halted, o.Begin = runstate.Prelaunch, true, true }},
		"a guest arrives from elsewhere": {instance, func(s *snapshot) {
			s.guest = guest.Facts{RunState: runstate.InMigrate, After: time.Second}
		}, func(o *vmihandler.Observed) { o.RunState, o.PlugAfter = runstate.InMigrate, time.Second }},
	} {
		s, want := attachedTo(c.of), plain
		want.VMI = c.of
		c.change(&s)
		c.want(&want)
		if diff := cmp.Diff(want, s.observed("node1")); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
	}
}

func TestFactsOfAStatus(t *testing.T) {
	exit, failure := &launch.Exit{Reason: launch.ReasonCrashed}, errors.New("no space")
	plain := vmihandler.Facts{Node: "node1", PodReady: true, PodLasts: true, Now: noon}
	for name, c := range map[string]struct {
		change  func(*snapshot)
		failure error
		want    func(*vmihandler.Facts)
	}{
		"a guest that runs": {func(*snapshot) {}, nil, func(*vmihandler.Facts) {}},
		"a step fails":      {func(*snapshot) {}, failure, func(f *vmihandler.Facts) { f.Failure = failure }},
		"QEMU has ended": {func(s *snapshot) { s.connection.Exit, s.connection.ExitedAt = exit, noon }, nil, func(f *vmihandler.Facts) {
			f.Exit, f.ExitedAt = exit, noon
		}},
		"the pod is being deleted": {func(s *snapshot) { s.presence.Pod.Interrupted = true }, nil, func(f *vmihandler.Facts) {
			f.PodInterrupted = true
		}},
		"the pod is gone, its launcher is not": {func(s *snapshot) { s.presence.Pod = &vmihandler.Pod{Gone: true} }, nil, func(f *vmihandler.Facts) {
			f.PodReady, f.PodLasts = false, false
		}},
		"the pod's container has ended": {func(s *snapshot) { s.presence.Pod.Ended = true }, nil, func(f *vmihandler.Facts) { f.PodLasts = false }},
		"nothing is left of the pod": {func(s *snapshot) {
			s.presence.Pod, s.connection.State = &vmihandler.Pod{Gone: true}, vmihandler.LinkPending
		}, nil, func(f *vmihandler.Facts) { f.PodReady, f.PodLasts, f.Vanished = false, false, true }},
		"the node has something left of the pod": {func(s *snapshot) {
			s.presence.Pod, s.connection.State = &vmihandler.Pod{Gone: true, Remains: true}, vmihandler.LinkPending
		}, nil, func(f *vmihandler.Facts) { f.PodReady, f.PodLasts = false, false }},
		"virt-launcher knows nothing of the guest that ran": {func(s *snapshot) {
			s.presence.VMI.Status.Phase, s.connection.Launcher.Phase = v1.Running, launch.PhaseWaiting
		}, nil, func(f *vmihandler.Facts) { f.Lost = true }},
		"there is no pod": {func(s *snapshot) { s.presence.Pod = nil }, nil, func(f *vmihandler.Facts) { f.PodReady, f.PodLasts = false, false }},
	} {
		s, want := attachedTo(scheduled("u")), plain
		c.change(&s)
		c.want(&want)
		got := s.facts(s.observed("node1"), c.failure)
		if !errors.Is(got.Failure, want.Failure) || (got.Failure == nil) != (want.Failure == nil) {
			t.Errorf("%s: the failure is %v", name, got.Failure)
		}
		got.Failure, want.Failure = nil, nil
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
	}
}

// noDevices is the monitor of a QEMU without devices.
type noDevices struct{ concern.Monitor }

func (noDevices) Execute(context.Context, string, any, any) error { return nil }

// knownDisks is the disks of a guest, of which all is known.
type knownDisks struct {
	*disks.Concern
	plan disks.Plan
}

func (k *knownDisks) Observe(context.Context, concern.Query, concern.Round) (disks.Seen, error) {
	return disks.Seen{}, nil
}

func (k *knownDisks) Decide(concern.Round, disks.Seen) disks.Plan { return k.plan }

func TestWhatIsSaidOfAGuest(t *testing.T) {
	s := attachedTo(scheduled("u"))
	s.attached.prepared = &preparation.Prepared{
		Images: map[string]launch.PreparedImage{"root": {VirtualSize: 5}, "data": {VirtualSize: 5}},
		Claims: volumes.Claims{"root": {ClaimName: "claim-root"}},
	}
	known := disks.Plan{
		Hotplugged: map[string]vmihandler.Plugged{"hot": {Phase: v1.VolumeReady}},
		Volumes: map[string]vmihandler.Volume{
			"root": {Size: 5, Grown: 9, Claim: s.attached.prepared.Claims["root"]}, "data": {Size: 5, Grown: 3},
		},
	}
	s.attached.concerns = concern.List{concern.New(vmihandler.Plug, &knownDisks{plan: known}), concern.New(vmihandler.PlugNICs, nics.New(nics.Env{}, nil, logr.Discard(), []network.Interface{
		{Name: "default", Tap: "tap0", MAC: "02:00:00:00:00:01", IPs: []string{"10.0.0.2"}, PodInterface: "eth0", Queues: 1},
	}))}
	s.attached.concerns.Observe(t.Context(), noDevices{}, concern.Round{VMI: s.presence.VMI}, logr.Discard())
	s.concerns = s.attached.concerns.Decide(concern.Round{VMI: s.presence.VMI})
	s.guest = guest.Facts{RunState: runstate.IOError, Stalled: true, FailedDisks: []vmihandler.FailedDisk{{Volume: "root"}}, PausedByUser: true}
	answer := &vmihandler.Agent{}
	s.agent = guestagent.Facts{Connected: true, Answer: answer}
	want := &vmihandler.Guest{
		RunState: runstate.IOError, Stalled: true, FailedDisks: []vmihandler.FailedDisk{{Volume: "root"}}, PausedByUser: true,
		MachineType: "q35", Agent: answer, Plugged: map[string]vmihandler.Plugged{"hot": {Phase: v1.VolumeReady}},
		Interfaces: []vmihandler.Interface{{Name: "default", MAC: "02:00:00:00:00:01", IPs: []string{"10.0.0.2"}, PodInterface: "eth0", Queues: 1}},
		Volumes: map[string]vmihandler.Volume{
			"root": {Size: 5, Grown: 9, Claim: s.attached.prepared.Claims["root"]}, "data": {Size: 5, Grown: 3},
		},
	}
	if diff := cmp.Diff(want, s.guestFacts("q35")); diff != "" {
		t.Errorf("what is said (-want +got):\n%s", diff)
	}
}
