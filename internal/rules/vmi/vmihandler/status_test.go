package vmihandler

import (
	"encoding/json"
	"errors"
	"strings"
	"testing"
	"time"

	jsonpatch "github.com/evanphx/json-patch/v5"
	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	v1 "kubevirt.io/api/core/v1"

	"drydock.dev/drydock/internal/contracts/launch"
	"drydock.dev/drydock/internal/rules/object/condition"
	"drydock.dev/drydock/internal/rules/vmi/vmistatus"
)

// instance is a scheduled VMI with one interface and one claim, as the controller leaves it.
func instance() *v1.VirtualMachineInstance {
	vmi := &v1.VirtualMachineInstance{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "web", UID: "u", ResourceVersion: "7"}}
	vmi.Spec.Domain.CPU = &v1.CPU{Sockets: 2, Cores: 1, Threads: 1}
	vmi.Spec.Domain.Memory = &v1.Memory{Guest: new(resource.MustParse("1Gi"))}
	vmi.Spec.Domain.Devices.Interfaces = []v1.Interface{{
		Name: "default", InterfaceBindingMethod: v1.InterfaceBindingMethod{Masquerade: &v1.InterfaceMasquerade{}},
	}}
	vmi.Spec.Networks = []v1.Network{{Name: "default", NetworkSource: v1.NetworkSource{Pod: &v1.PodNetwork{}}}}
	vmi.Spec.Domain.Devices.Disks = []v1.Disk{{Name: "root", DiskDevice: v1.DiskDevice{Disk: &v1.DiskTarget{}}}}
	claim := &v1.PersistentVolumeClaimVolumeSource{}
	claim.ClaimName = "data"
	vmi.Spec.Volumes = []v1.Volume{{Name: "root", VolumeSource: v1.VolumeSource{PersistentVolumeClaim: claim}}}
	vmi.Status.Phase = v1.Scheduled
	vmi.Status.Conditions = []v1.VirtualMachineInstanceCondition{{
		Type: v1.VirtualMachineInstanceReady, Status: corev1.ConditionFalse, Reason: v1.GuestNotRunningReason,
		LastTransitionTime: metav1.NewTime(now.Add(-time.Minute)),
	}}
	return vmi
}

func facts() Facts {
	return Facts{Now: now, Guest: &Guest{
		RunState: "running", MachineType: "pc-q35-7.2", KVM: true,
		Interfaces: []Interface{{Name: "default", MAC: "02:00:00:00:00:01", PodInterface: "eth0", IPs: []string{"10.0.0.5", "fd00::5"}, Queues: 1, Link: v1.InterfaceStateLinkUp}},
		Volumes: map[string]Volume{"root": {Size: 1 << 30, Claim: &v1.PersistentVolumeClaimInfo{
			ClaimName: "data", AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteMany},
		}}},
	}}
}

func TestStatusOfARunningGuest(t *testing.T) {
	vmi := instance()
	got := Status(vmi, facts())
	at := metav1.NewTime(now)
	gi := resource.NewQuantity(1<<30, resource.BinarySI)
	want := v1.VirtualMachineInstanceStatus{
		Phase: v1.Running,
		PhaseTransitionTimestamps: []v1.VirtualMachineInstancePhaseTransitionTimestamp{
			{Phase: v1.Running, PhaseTransitionTimestamp: at},
		},
		Conditions: []v1.VirtualMachineInstanceCondition{
			{Type: v1.VirtualMachineInstanceReady, Status: corev1.ConditionTrue, LastTransitionTime: at},
			{Type: v1.VirtualMachineInstanceIsMigratable, Status: corev1.ConditionTrue, LastTransitionTime: at},
			{Type: v1.VirtualMachineInstanceIsStorageLiveMigratable, Status: corev1.ConditionTrue, LastTransitionTime: at},
			{Type: vmistatus.Accelerated, Status: corev1.ConditionTrue, Reason: "KVM", LastTransitionTime: at},
		},
		Interfaces: []v1.VirtualMachineInstanceNetworkInterface{{
			Name: "default", MAC: "02:00:00:00:00:01", IP: "10.0.0.5", IPs: []string{"10.0.0.5", "fd00::5"},
			PodInterfaceName: "eth0", InfoSource: "domain", QueueCount: 1, LinkState: "up",
		}},
		Machine:            &v1.Machine{Type: "pc-q35-7.2"},
		CurrentCPUTopology: &v1.CPUTopology{Sockets: 2, Cores: 1, Threads: 1},
		Memory:             &v1.MemoryStatus{GuestAtBoot: gi, GuestCurrent: gi, GuestRequested: gi},
		VolumeStatus: []v1.VolumeStatus{{
			Name: "root", Target: "vda", Size: 1 << 30, PersistentVolumeClaimInfo: facts().Guest.Volumes["root"].Claim,
		}},
		MigrationMethod: v1.LiveMigration, MigrationTransport: v1.MigrationTransportUnix,
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("status (-want +got):\n%s", diff)
	}
	if vmi.Status.Phase != v1.Scheduled {
		t.Error("the VMI that was given has been changed")
	}
	// A written status must cause no other write.
	vmi.Status = got
	later := facts()
	later.Now = now.Add(time.Hour)
	if patch, err := Patch(vmi, Status(vmi, later)); patch != nil || err != nil {
		t.Errorf("at rest: %s, %v", patch, err)
	}
}

func TestConditions(t *testing.T) {
	type want struct {
		status          corev1.ConditionStatus
		reason, message string
	}
	absent := want{}
	ready, paused := v1.VirtualMachineInstanceReady, v1.VirtualMachineInstancePaused
	synchronized, migratable := v1.VirtualMachineInstanceSynchronized, v1.VirtualMachineInstanceIsMigratable
	for name, tc := range map[string]struct {
		vmi   func(*v1.VirtualMachineInstance)
		facts func(*Facts)
		kind  v1.VirtualMachineInstanceConditionType
		want  want
	}{
		"an emulated guest": {
			facts: func(f *Facts) { f.Guest.KVM = false },
			kind:  vmistatus.Accelerated,
			want:  want{"False", "Emulated", "The guest is emulated, and can migrate to nodes that emulate guests only."},
		},
		"ready without a probe": {kind: ready, want: want{status: "True"}},
		"a readiness probe that has not passed": {
			vmi:  func(vmi *v1.VirtualMachineInstance) { vmi.Spec.ReadinessProbe = &v1.Probe{} },
			kind: ready,
			want: want{"False", "ReadinessProbeNotPassed", "The guest runs, and its readiness probe has not succeeded yet."},
		},
		"a readiness probe that has passed": {
			vmi:   func(vmi *v1.VirtualMachineInstance) { vmi.Spec.ReadinessProbe = &v1.Probe{} },
			facts: func(f *Facts) { f.PodReady = true },
			kind:  ready, want: want{status: "True"},
		},
		"its pod is being deleted: virt-controller says so": {
			facts: func(f *Facts) { f.PodInterrupted = true },
			kind:  ready, want: want{"False", v1.GuestNotRunningReason, ""},
		},
		"its pod was said to be deleted: nothing takes that back": {
			vmi:  func(vmi *v1.VirtualMachineInstance) { vmi.Status.Conditions[0].Reason = v1.PodTerminatingReason },
			kind: ready, want: want{"False", v1.PodTerminatingReason, ""},
		},
		"its node was said not to answer, and it does": {
			vmi:  func(vmi *v1.VirtualMachineInstance) { vmi.Status.Conditions[0].Reason = vmistatus.ReasonNodeLost },
			kind: ready, want: want{status: "True"},
		},
		"paused by the user": {
			facts: func(f *Facts) { f.Guest.RunState = "paused" },
			kind:  paused, want: want{"True", "PausedByUser", "VMI was paused by user"},
		},
		"started paused": {
			facts: func(f *Facts) { f.Guest.RunState = "prelaunch" },
			kind:  paused, want: want{"True", "PausedByUser", "VMI was paused by user"},
		},
		"stopped by a disk's error": {
			facts: func(f *Facts) { f.Guest.RunState = "io-error" },
			kind:  paused, want: want{"True", "PausedIOError", "The guest is stopped because one of its disks failed. It continues by itself when the disk works again."},
		},
		"stopped by a disk that is known": {
			facts: func(f *Facts) {
				f.Guest.RunState, f.Guest.Stalled = "io-error", true
				f.Guest.FailedDisks = []FailedDisk{{Volume: "data"}, {Volume: "logs", Full: true}}
			},
			kind: ready, want: want{"False", "PausedIOError", "The guest is stopped: reading or writing disk data failed (I/O error); " +
				"there is no space left for disk logs. It continues by itself when that works again."},
		},
		"stopped by a disk until a moment ago": {
			facts: func(f *Facts) {
				f.Guest.RunState, f.Guest.Stalled, f.Guest.FailedDisks = "running", true, []FailedDisk{{Volume: "data"}}
			},
			kind: paused, want: want{"True", "PausedIOError", "The guest is stopped: reading or writing disk data failed (I/O error). " +
				"It continues by itself when that works again."},
		},
		"stopped by a disk, and paused by the user": {
			facts: func(f *Facts) {
				f.Guest.RunState, f.Guest.Stalled, f.Guest.PausedByUser = "io-error", true, true
			},
			kind: paused, want: want{"True", "PausedByUser", "The guest is stopped: reading or writing one of its disks failed (I/O error). " +
				"VMI was paused by user too; when it is unpaused, the guest tries again."},
		},
		"a paused guest is not ready": {
			facts: func(f *Facts) { f.Guest.RunState = "paused" },
			kind:  ready, want: want{"False", "PausedByUser", "VMI was paused by user"},
		},
		"a guest that cannot continue": {
			facts: func(f *Facts) { f.Guest.RunState = "internal-error" },
			kind:  ready,
			want:  want{"False", "InternalError", "An error inside QEMU or KVM has stopped the guest, and it cannot continue."},
		},
		"a run state that nobody knows": {
			facts: func(f *Facts) { f.Guest.RunState = "dreaming\n" },
			kind:  ready,
			want: want{"False", "UnknownRunState", `QEMU reports the run state "dreaming\n", which Drydock does not know; ` +
				"whether the guest runs cannot be told."},
		},
		"goes on": {
			vmi: func(vmi *v1.VirtualMachineInstance) {
				vmi.Status.Conditions = append(vmi.Status.Conditions, v1.VirtualMachineInstanceCondition{Type: paused, Status: "True"})
			},
			kind: paused, want: absent,
		},
		"a step that fails": {
			facts: func(f *Facts) { f.Guest, f.Failure = nil, errors.New("no disk") },
			kind:  synchronized, want: want{"False", "Synchronizing with the Domain failed.", "no disk"},
		},
		"a step that does not fail any more": {
			vmi: func(vmi *v1.VirtualMachineInstance) {
				vmi.Status.Conditions = append(vmi.Status.Conditions,
					v1.VirtualMachineInstanceCondition{Type: synchronized, Status: "False", Reason: vmistatus.ReasonSyncFailed})
			},
			facts: func(f *Facts) { f.Guest = nil },
			kind:  synchronized, want: absent,
		},
		"the controller's word on a start that goes on": {
			vmi: func(vmi *v1.VirtualMachineInstance) {
				vmi.Status.Conditions = append(vmi.Status.Conditions,
					v1.VirtualMachineInstanceCondition{Type: synchronized, Status: "False", Reason: "ErrImagePull"})
			},
			facts: func(f *Facts) { f.Guest = nil },
			kind:  synchronized, want: want{status: "False", reason: "ErrImagePull"},
		},
		"the controller's word on a start that has succeeded": {
			vmi: func(vmi *v1.VirtualMachineInstance) {
				vmi.Status.Conditions = append(vmi.Status.Conditions,
					v1.VirtualMachineInstanceCondition{Type: synchronized, Status: "False", Reason: "ErrImagePull"})
			},
			kind: synchronized, want: absent,
		},
		"a claim that only one node can use": {
			facts: func(f *Facts) {
				f.Guest.Volumes["root"].Claim.AccessModes = []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce}
			},
			kind: migratable,
			want: want{"False", "DisksNotLiveMigratable", "cannot migrate VMI: PVC data is not shared, live migration requires that all PVCs must be shared (using ReadWriteMany access mode)"},
		},
		"the pod's own address in the guest": {
			vmi: func(vmi *v1.VirtualMachineInstance) {
				vmi.Spec.Domain.Devices.Interfaces[0].InterfaceBindingMethod = v1.InterfaceBindingMethod{Bridge: &v1.InterfaceBridge{}}
			},
			kind: migratable,
			want: want{"False", "InterfaceNotLiveMigratable", "cannot migrate VMI: interface default gives the guest the pod's own address (bridge on the pod network)"},
		},
		"the pod's own address in the guest, allowed": {
			vmi: func(vmi *v1.VirtualMachineInstance) {
				vmi.Spec.Domain.Devices.Interfaces[0].InterfaceBindingMethod = v1.InterfaceBindingMethod{Bridge: &v1.InterfaceBridge{}}
				vmi.Annotations = map[string]string{allowPodBridge: "true"}
			},
			kind: migratable, want: want{status: "True"},
		},
		"a volume that is on its way does not count": {
			vmi: func(vmi *v1.VirtualMachineInstance) { plugging(vmi, v1.HotplugVolumeAttachedToNode) }, kind: migratable, want: want{status: "True"},
		},
		"nor one of which nothing is said yet": {
			vmi: func(vmi *v1.VirtualMachineInstance) {
				plugging(vmi, v1.VolumeBound)
				vmi.Status.VolumeStatus = nil
			},
			kind: migratable, want: want{status: "True"},
		},
		"one that has come counts": {
			vmi: func(vmi *v1.VirtualMachineInstance) { plugging(vmi, v1.VolumeReady) },
			facts: func(f *Facts) {
				f.Guest.Volumes["plugged"] = Volume{Claim: &v1.PersistentVolumeClaimInfo{ClaimName: "new"}}
			},
			kind: migratable,
			want: want{"False", "DisksNotLiveMigratable", "cannot migrate VMI: PVC new is not shared, live migration requires that all PVCs must be shared (using ReadWriteMany access mode)"},
		},
		"two hindrances": {
			vmi: func(vmi *v1.VirtualMachineInstance) {
				vmi.Spec.Volumes = []v1.Volume{
					{Name: "a", VolumeSource: v1.VolumeSource{HostDisk: &v1.HostDisk{}}},
					{Name: "b", VolumeSource: v1.VolumeSource{DataVolume: &v1.DataVolumeSource{Name: "dv"}}},
				}
			},
			kind: migratable,
			want: want{"False", "DisksNotLiveMigratable", "cannot migrate VMI: volume a is a file on this node (hostDisk without shared); PVC dv of volume b is not known yet"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			vmi, f := instance(), facts()
			if tc.vmi != nil {
				tc.vmi(vmi)
			}
			if tc.facts != nil {
				tc.facts(&f)
			}
			var got want
			for _, c := range Status(vmi, f).Conditions {
				if c.Type == tc.kind {
					got = want{c.Status, c.Reason, c.Message}
				}
			}
			if got != tc.want {
				t.Errorf("%s is %+v, want %+v", tc.kind, got, tc.want)
			}
		})
	}
}

// plugging adds a hotplugged volume in a phase.
func plugging(vmi *v1.VirtualMachineInstance, phase v1.VolumePhase) {
	source := &v1.PersistentVolumeClaimVolumeSource{Hotpluggable: true}
	source.ClaimName = "new"
	vmi.Spec.Volumes = append(vmi.Spec.Volumes, v1.Volume{Name: "plugged", VolumeSource: v1.VolumeSource{PersistentVolumeClaim: source}})
	vmi.Status.VolumeStatus = append(vmi.Status.VolumeStatus, v1.VolumeStatus{Name: "plugged", Phase: phase, HotplugVolume: &v1.HotplugVolumeStatus{}})
}

// The state of the QEMU to which a guest migrates is not the guest's: the target's virt-handler must change nothing
// that the source's reports.
func TestTheTargetOfAMigrationReportsNothingOfItsOwn(t *testing.T) {
	vmi := instance()
	vmi.Status = Status(vmi, facts())
	vmi.Status.NodeName = "source"
	vmi.Status.MigrationState = &v1.VirtualMachineInstanceMigrationState{SourceNode: "source", TargetNode: "target"}
	for what, f := range map[string]Facts{
		"its QEMU waits for the guest": {Guest: &Guest{RunState: "inmigrate"}},
		"its QEMU crashes":             {Exit: &launch.Exit{Reason: launch.ReasonCrashed}},
		"a step fails":                 {Failure: errors.New("no disk")},
		"its pod vanishes":             {Vanished: true},
	} {
		f.Node, f.Now = "target", now.Add(time.Minute)
		if diff := cmp.Diff(vmi.Status, Status(vmi, f)); diff != "" {
			t.Errorf("%s, and the status changes:\n%s", what, diff)
		}
		f.Node = "source"
		if cmp.Equal(vmi.Status, Status(vmi, f)) {
			t.Errorf("%s on the source, and nothing changes", what)
		}
	}
}

func TestEnds(t *testing.T) {
	for name, tc := range map[string]struct {
		facts           Facts
		phase           v1.VirtualMachineInstancePhase
		reason, message string
	}{
		"the guest powers off": {Facts{Exit: &launch.Exit{Reason: launch.ReasonGuestShutdown}}, v1.Succeeded, "", "The VirtualMachineInstance was shut down."},
		"its pod was deleted": {Facts{Exit: &launch.Exit{Reason: launch.ReasonHostShutdown}, Disruption: vmistatus.Disruption{Reason: vmistatus.ReasonPodEnded}}, v1.Failed,
			"LauncherPodEnded", "The launcher pod was ended, and the guest was shut down."},
		"its pod was evicted, and it did not follow": {Facts{Exit: &launch.Exit{Reason: launch.ReasonKilled, Message: "x"}, Disruption: vmistatus.Disruption{Reason: vmistatus.ReasonEvicted}}, v1.Failed,
			"Evicted", "The launcher pod was evicted, and the guest, which did not shut down within its grace period, was ended by force."},
		"the kernel panics":          {Facts{Exit: &launch.Exit{Reason: launch.ReasonGuestPanicked}}, v1.Failed, "GuestPanicked", "The VirtualMachineInstance crashed: the guest's kernel panicked."},
		"the watchdog fires":         {Facts{Exit: &launch.Exit{Reason: launch.ReasonWatchdog}}, v1.Failed, "Watchdog", "The VirtualMachineInstance crashed: the guest's watchdog fired."},
		"QEMU dies":                  {Facts{Exit: &launch.Exit{Reason: launch.ReasonCrashed, Message: "signal 9"}}, v1.Failed, "Crashed", "The VirtualMachineInstance crashed. QEMU said: signal 9"},
		"QEMU does not start":        {Facts{Exit: &launch.Exit{Reason: launch.ReasonStartFailed, Message: "no such machine"}}, v1.Failed, "StartFailed", "QEMU could not be started. QEMU said: no such machine"},
		"the launcher knows nothing": {Facts{Lost: true}, v1.Failed, "GuestLost", "The guest is gone, and its launcher does not know how it ended."},
	} {
		t.Run(name, func(t *testing.T) {
			vmi := instance()
			vmi.Status = Status(vmi, facts())
			vmi.Status.Conditions = append(vmi.Status.Conditions,
				v1.VirtualMachineInstanceCondition{Type: v1.VirtualMachineInstancePaused, Status: "True"},
				v1.VirtualMachineInstanceCondition{Type: v1.VirtualMachineInstanceAgentConnected, Status: "True"})
			tc.facts.Now = now.Add(time.Minute)
			got := Status(vmi, tc.facts)
			if got.Phase != tc.phase || got.Reason != tc.reason {
				t.Errorf("phase %s, reason %q", got.Phase, got.Reason)
			}
			for _, c := range got.Conditions {
				switch c.Type {
				case v1.VirtualMachineInstanceReady:
					if c.Status != "False" || c.Reason != v1.GuestNotRunningReason || c.Message != tc.message {
						t.Errorf("Ready: %+v", c)
					}
				case v1.VirtualMachineInstancePaused, v1.VirtualMachineInstanceAgentConnected:
					t.Errorf("%s outlives the guest", c.Type)
				}
			}
			// A final phase must never change.
			vmi.Status = got
			if again := Status(vmi, facts()); again.Phase != tc.phase {
				t.Errorf("the phase went on to %s", again.Phase)
			}
		})
	}
}

// The kubelet tells that a pod was ended by the shutdown of its node only when the pod has ended: until then the status
// must not say anything else.
func TestTheReasonOfAnEndIsAwaited(t *testing.T) {
	ended := &launch.Exit{Reason: launch.ReasonHostShutdown}
	later := now.Add(time.Minute)
	for name, c := range map[string]struct {
		facts  Facts
		phase  v1.VirtualMachineInstancePhase
		reason string
	}{
		"its pod's end is not reported yet":       {Facts{Exit: ended, ExitedAt: later, PodLasts: true}, v1.Running, ""},
		"it is still not after a while":           {Facts{Exit: ended, ExitedAt: later.Add(time.Second - reasonPatience), PodLasts: true}, v1.Running, ""},
		"it is not after a long while":            {Facts{Exit: ended, ExitedAt: later.Add(-reasonPatience), PodLasts: true}, v1.Failed, "LauncherPodEnded"},
		"nobody knows since when":                 {Facts{Exit: ended, PodLasts: true}, v1.Failed, "LauncherPodEnded"},
		"its node is being shut down":             {Facts{Exit: ended, Disruption: vmistatus.Disruption{Reason: vmistatus.ReasonNodeShutdown}}, v1.Failed, "NodeShutdown"},
		"its pod has ended, and nobody knows why": {Facts{Exit: ended}, v1.Failed, "LauncherPodEnded"},
		"its pod is being deleted":                {Facts{Exit: ended, PodLasts: true, Disruption: vmistatus.Disruption{Reason: vmistatus.ReasonPodEnded}}, v1.Failed, "LauncherPodEnded"},
		"it has powered itself off":               {Facts{Exit: &launch.Exit{Reason: launch.ReasonGuestShutdown}, PodLasts: true}, v1.Succeeded, ""},
		"it has crashed":                          {Facts{Exit: &launch.Exit{Reason: launch.ReasonCrashed}, PodLasts: true}, v1.Failed, "Crashed"},
	} {
		vmi := instance()
		vmi.Status = Status(vmi, facts())
		c.facts.Now = later
		if got := Status(vmi, c.facts); got.Phase != c.phase || got.Reason != c.reason {
			t.Errorf("%s: phase %s, reason %q, want %s, %q", name, got.Phase, got.Reason, c.phase, c.reason)
		}
		if after := ReasonAfter(vmi, c.facts); (after > 0) != (c.phase == v1.Running) || after > reasonPatience {
			t.Errorf("%s: the reason is awaited for %v", name, after)
		}
	}
}

// A kubelet that says nothing does not say either that the liveness probe has failed.
func TestAnUnknownReasonIsNotInvented(t *testing.T) {
	vmi := instance()
	vmi.Spec.LivenessProbe = &v1.Probe{}
	vmi.Status = Status(vmi, facts())
	f := Facts{Exit: &launch.Exit{Reason: launch.ReasonHostShutdown}, ExitedAt: now, PodLasts: true, Now: now.Add(reasonPatience)}
	if got := Status(vmi, f); got.Phase != v1.Failed || got.Reason != vmistatus.ReasonPodEnded {
		t.Errorf("the kubelet says nothing: phase %s, reason %q", got.Phase, got.Reason)
	}
	f.PodLasts = false
	if got := Status(vmi, f); got.Phase != v1.Failed || got.Reason != vmistatus.ReasonLivenessProbe {
		t.Errorf("the kubelet has ended the pod: phase %s, reason %q", got.Phase, got.Reason)
	}
}

func TestEndsThatWereAskedFor(t *testing.T) {
	for reason, message := range map[launch.Reason]string{
		launch.ReasonHostShutdown: "The VirtualMachineInstance was shut down.",
		launch.ReasonKilled:       "The guest did not shut down within its grace period and was ended by force.",
	} {
		vmi := instance()
		vmi.Status = Status(vmi, facts())
		vmi.DeletionTimestamp = new(metav1.NewTime(now))
		got := Status(vmi, Facts{Exit: &launch.Exit{Reason: reason}, Now: now})
		c := condition.Find(got.Conditions, v1.VirtualMachineInstanceReady)
		if got.Phase != v1.Succeeded || got.Reason != "" || c == nil || c.Message != message {
			t.Errorf("%s: phase %s, reason %q, Ready %+v", reason, got.Phase, got.Reason, c)
		}
	}
}

func TestEndBeforeTheGuestRan(t *testing.T) {
	vmi, f := instance(), Facts{Exit: &launch.Exit{Reason: launch.ReasonHostShutdown}, Now: now}
	if got := Status(vmi, f); got.Phase != v1.Failed || got.Reason != "LauncherPodEnded" {
		t.Errorf("the pod was deleted: %s, %s", got.Phase, got.Reason)
	}
	vmi.DeletionTimestamp = new(metav1.NewTime(now))
	if got := Status(vmi, f); got.Phase != v1.Succeeded || got.Reason != "" {
		t.Errorf("the VMI was deleted: %s, %s", got.Phase, got.Reason)
	}
}

func TestAgent(t *testing.T) {
	vmi, f := instance(), facts()
	f.Guest.Agent = &Agent{
		OS: v1.VirtualMachineInstanceGuestOSInfo{Name: "Debian"},
		Interfaces: []v1.VirtualMachineInstanceNetworkInterface{
			{InterfaceName: "eth0", MAC: "02:00:00:00:00:01", IP: "10.0.2.2", IPs: []string{"10.0.2.2"}},
			{InterfaceName: "docker0", MAC: "02:42:00:00:00:01", IP: "172.17.0.1", IPs: []string{"172.17.0.1"}},
		},
	}
	want := []v1.VirtualMachineInstanceNetworkInterface{
		{ // behind masquerade, the pod's addresses reach the guest
			Name: "default", MAC: "02:00:00:00:00:01", IP: "10.0.0.5", IPs: []string{"10.0.0.5", "fd00::5"},
			PodInterfaceName: "eth0", InterfaceName: "eth0", InfoSource: "domain, guest-agent", QueueCount: 1, LinkState: "up",
		},
		{InterfaceName: "docker0", MAC: "02:42:00:00:00:01", IP: "172.17.0.1", IPs: []string{"172.17.0.1"}, InfoSource: "guest-agent"},
	}
	got := Status(vmi, f)
	if diff := cmp.Diff(want, got.Interfaces); diff != "" {
		t.Errorf("interfaces (-want +got):\n%s", diff)
	}
	if got.GuestOSInfo.Name != "Debian" {
		t.Errorf("guest OS: %+v", got.GuestOSInfo)
	}
	// A restarted virt-handler must report the same before it has heard from the agent.
	restarted := facts()
	restarted.Guest.Agent = AgentOf(got)
	if diff := cmp.Diff(got, Status(vmi, restarted)); diff != "" {
		t.Errorf("read back (-before +after):\n%s", diff)
	}
	if agent := AgentOf(vmi.Status); agent != nil {
		t.Errorf("an agent was read out of a status without one: %+v", agent)
	}
	// With another binding, the guest's own address counts.
	vmi.Spec.Domain.Devices.Interfaces[0].InterfaceBindingMethod = v1.InterfaceBindingMethod{Bridge: &v1.InterfaceBridge{}}
	if got := Status(vmi, f).Interfaces[0]; got.IP != "10.0.2.2" {
		t.Errorf("bridge: %+v", got)
	}
	// The result for the credentials must be in its own condition, whether an agent is connected or not.
	f.Guest.Credentials = &Credentials{Failure: "no user ann"}
	if c := condition.Find(Status(vmi, f).Conditions, v1.VirtualMachineInstanceAccessCredentialsSynchronized); c == nil || c.Status != "False" || c.Message != "no user ann" {
		t.Errorf("of credentials that could not be set: %+v", c)
	}
	f.Guest.Credentials = nil
	// When an agent disconnects, its facts must be removed.
	vmi.Status = got
	f.Guest.Agent = nil
	gone := Status(vmi, f)
	if gone.GuestOSInfo.Name != "" || len(gone.Interfaces) != 1 {
		t.Errorf("without its agent: %+v, %+v", gone.GuestOSInfo, gone.Interfaces)
	}
	for _, c := range gone.Conditions {
		if c.Type == v1.VirtualMachineInstanceAgentConnected {
			t.Error("AgentConnected outlives the agent")
		}
	}
}

func TestTargets(t *testing.T) {
	disk := func(name string, bus v1.DiskBus) v1.Disk {
		return v1.Disk{Name: name, DiskDevice: v1.DiskDevice{Disk: &v1.DiskTarget{Bus: bus}}}
	}
	disks := []v1.Disk{
		disk("a", v1.DiskBusVirtio), disk("b", v1.DiskBusSATA), disk("c", ""), disk("d", v1.DiskBusSCSI),
		{Name: "e", DiskDevice: v1.DiskDevice{CDRom: &v1.CDRomTarget{}}}, {Name: "f", DiskDevice: v1.DiskDevice{LUN: &v1.LunTarget{}}}, {Name: "g"},
	}
	vmi := &v1.VirtualMachineInstance{}
	vmi.Spec.Domain.Devices.Disks = disks
	got := targets(vmi, nil)
	want := map[string]string{"a": "vda", "b": "sda", "c": "vdb", "d": "sdb", "e": "sdc", "f": "sdd", "g": "vdc"}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("targets (-want +got):\n%s", diff)
	}
	for n, want := range map[int]string{0: "a", 25: "z", 26: "aa", 51: "az", 52: "ba", 701: "zz", 702: "aaa"} {
		if got := letters(n); got != want {
			t.Errorf("disk %d is %s, want %s", n, got, want)
		}
	}
}

func TestPatchAppliesOnlyToWhatWasRead(t *testing.T) {
	vmi := instance()
	patch, err := Patch(vmi, Status(vmi, facts()))
	if err != nil {
		t.Fatal(err)
	}
	apply := func(change func(*v1.VirtualMachineInstance)) (*v1.VirtualMachineInstance, error) {
		stored := instance()
		change(stored)
		before, err := json.Marshal(stored)
		if err != nil {
			t.Fatal(err)
		}
		decoded, err := jsonpatch.DecodePatch(patch)
		if err != nil {
			t.Fatal(err)
		}
		after, err := decoded.Apply(before)
		if err != nil {
			return nil, err
		}
		patched := &v1.VirtualMachineInstance{}
		return patched, json.Unmarshal(after, patched)
	}
	patched, err := apply(func(*v1.VirtualMachineInstance) {})
	if err != nil || patched.Status.Phase != v1.Running || len(patched.Status.Interfaces) != 1 {
		t.Errorf("the patch gave %+v, %v", patched, err)
	}
	for name, change := range map[string]func(*v1.VirtualMachineInstance){
		"someone else wrote":           func(vmi *v1.VirtualMachineInstance) { vmi.ResourceVersion = "8" },
		"the phase has gone on":        func(vmi *v1.VirtualMachineInstance) { vmi.Status.Phase = v1.Failed },
		"another VMI of the same name": func(vmi *v1.VirtualMachineInstance) { vmi.UID = "v" },
	} {
		if _, err := apply(change); err == nil {
			t.Errorf("%s: the patch applied", name)
		}
	}
}

func TestPatchTakesAwayWhatIsNoMore(t *testing.T) {
	vmi := instance()
	vmi.Status.Interfaces = []v1.VirtualMachineInstanceNetworkInterface{{Name: "default"}}
	vmi.Status.EvacuationNodeName = "another part's"
	want := *vmi.Status.DeepCopy()
	want.Interfaces, want.EvacuationNodeName = nil, ""
	patch, err := Patch(vmi, want)
	if err != nil {
		t.Fatal(err)
	}
	const text = `[{"op":"test","path":"/metadata/resourceVersion","value":"7"},{"op":"test","path":"/metadata/uid","value":"u"},` +
		`{"op":"test","path":"/status/phase","value":"Scheduled"},{"op":"remove","path":"/status/interfaces"}]`
	if string(patch) != text {
		t.Errorf("patch %s", patch)
	}
}

func TestAFrozenGuestIsReported(t *testing.T) {
	f, vmi := facts(), instance()
	vmi.Status = Status(vmi, f)
	f.Guest.Frozen = true
	patch, err := Patch(vmi, Status(vmi, f))
	if err != nil || !strings.Contains(string(patch), `{"op":"add","path":"/status/fsFreezeStatus","value":"frozen"}`) {
		t.Errorf("%s, %v", patch, err)
	}
}

// TestTheSELinuxContextIsReportedWithTheGuest: it must come in the write that reports Running, and in none of its own;
// without SELinux on the node there must be none.
func TestTheSELinuxContextIsReportedWithTheGuest(t *testing.T) {
	const context = "system_u:system_r:container_t:s0:c12,c34"
	for _, want := range []string{"", context} {
		f := facts()
		f.Guest.SELinuxContext = want
		vmi := instance()
		status := Status(vmi, f)
		if status.SelinuxContext != want || status.Phase != v1.Running {
			t.Errorf("phase %s with the context %q, want %q", status.Phase, status.SelinuxContext, want)
		}
		patch, err := Patch(vmi, status)
		if err != nil || strings.Contains(string(patch), "selinuxContext") != (want != "") {
			t.Errorf("%s, %v", patch, err)
		}
		vmi.Status = status
		if again, err := Patch(vmi, Status(vmi, f)); err != nil || again != nil {
			t.Errorf("it is written again: %s, %v", again, err)
		}
	}
}

func TestClaims(t *testing.T) {
	claim := &v1.PersistentVolumeClaimVolumeSource{}
	claim.ClaimName = "data"
	vmi := &v1.VirtualMachineInstance{}
	vmi.Spec.Volumes = []v1.Volume{
		{Name: "a", VolumeSource: v1.VolumeSource{PersistentVolumeClaim: claim}},
		{Name: "b", VolumeSource: v1.VolumeSource{DataVolume: &v1.DataVolumeSource{Name: "dv"}}},
		{Name: "c", VolumeSource: v1.VolumeSource{Ephemeral: &v1.EphemeralVolumeSource{
			PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: "base"},
		}}},
		{Name: "d", VolumeSource: v1.VolumeSource{EmptyDisk: &v1.EmptyDiskSource{}}},
	}
	if diff := cmp.Diff(map[string]string{"a": "data", "b": "dv", "c": "base"}, Claims(vmi)); diff != "" {
		t.Errorf("claims (-want +got):\n%s", diff)
	}
}
