package nodehotplug

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/types"
	v1 "kubevirt.io/api/core/v1"

	"drydock.dev/drydock/internal/qemu/diskhotplug"
	"drydock.dev/drydock/internal/rules/hotplug"
	"drydock.dev/drydock/internal/rules/hotplug/hotplugspec"
)

// world is the observation of one volume, "a".
type world struct {
	// spec is the wanted claim in the spec, or empty.
	spec string
	// phase and claim are the status's, pod is its attachment pod.
	phase v1.VolumePhase
	claim string
	pod   types.UID
	qemu  diskhotplug.Stage
	tray  bool
	// bare: QEMU has only the file. halted: the guest's CPUs have not been started.
	bare, halted bool
	// forced: the user has requested it. qemuHas is the claim of QEMU's disk, if it is not the status's.
	forced  bool
	qemuHas string
	pods    []hotplug.Pod
	// recorded are the names of the record's pods; their UIDs follow from these, or come after a slash.
	recorded []string
	opened   types.UID
	verified types.UID
}

func (w world) observed() Observed {
	o := Observed{
		VMI: &v1.VirtualMachineInstance{}, AttachmentPods: w.pods, Halted: w.halted,
		Disks: map[string]diskhotplug.Disk{}, Opened: map[string]types.UID{}, Verified: map[string]types.UID{},
	}
	if w.spec != "" {
		o.VMI.Spec.Volumes = []v1.Volume{{Name: "a", VolumeSource: v1.VolumeSource{
			DataVolume: &v1.DataVolumeSource{Name: w.spec, Hotpluggable: true},
		}}}
	}
	if w.phase != "" {
		o.VMI.Status.VolumeStatus = []v1.VolumeStatus{{
			Name: "a", Phase: w.phase, HotplugVolume: &v1.HotplugVolumeStatus{AttachPodName: "hp-" + string(w.pod), AttachPodUID: w.pod},
			PersistentVolumeClaimInfo: &v1.PersistentVolumeClaimInfo{ClaimName: w.claim},
		}}
	}
	if w.qemu != diskhotplug.Absent {
		tag := diskhotplug.Tag{Volume: "a", Claim: w.claim, Drive: w.tray, Detached: w.qemu == diskhotplug.Detached}
		if w.qemuHas != "" {
			tag.Claim = w.qemuHas
		}
		o.Disks["a"] = diskhotplug.Disk{Tag: tag, Stage: w.qemu, Bare: w.bare, TrayOpen: w.tray}
	}
	if w.forced {
		o.VMI.Annotations = map[string]string{hotplugspec.ForcedAnnotation: `["a"]`}
	}
	for _, name := range w.recorded {
		name, uid, _ := strings.Cut(name, "/")
		if uid == "" {
			uid = strings.TrimPrefix(name, "hp-")
		}
		o.Record.Pods = append(o.Record.Pods, hotplug.AttachmentPod{Name: name, UID: types.UID(uid)})
	}
	if w.opened != "" {
		o.Opened["a"] = w.opened
	}
	if w.verified != "" {
		o.Verified["a"] = w.verified
	}
	return o
}

// pod is an attachment pod of volume a on claim c; the later its letter, the younger.
func pod(uid types.UID, alive bool) hotplug.Pod {
	return hotplug.Pod{
		Name: "hp-" + string(uid), UID: uid, Created: time.Unix(int64(uid[0]), 0), Running: alive, Volumes: []hotplug.Volume{{Name: "a", Claim: "c"}},
	}
}

// want is the expected decision: the action and its pod, the reported phase and its pod.
type want struct {
	action Action
	where  types.UID
	phase  v1.VolumePhase
	naming types.UID
	reason string
}

func TestDecide(t *testing.T) {
	const (
		attached  = v1.HotplugVolumeAttachedToNode
		mounted   = v1.HotplugVolumeMounted
		detaching = v1.HotplugVolumeDetaching
		unmounted = v1.HotplugVolumeUnMounted
	)
	x, y := pod("x", true), pod("y", true)
	for name, test := range map[string]struct {
		world
		want
	}{
		"a volume that waits for its claim is none of ours": {
			world{spec: "c", phase: v1.VolumePending, claim: "c", pods: []hotplug.Pod{x}}, want{},
		},
		"a plug that failed leaves a descriptor": {
			world{spec: "c", phase: attached, claim: "c", pod: "x", qemu: diskhotplug.Partial, bare: true, pods: []hotplug.Pod{x}, opened: "x"}, want{action: Clear},
		},
		"a plug that failed leaves a descriptor in a halted guest": {
			world{spec: "c", phase: attached, claim: "c", pod: "x", qemu: diskhotplug.Partial, bare: true, halted: true, pods: []hotplug.Pod{x}, opened: "x"},
			want{action: Plug, where: "x"},
		},
		"a plug that failed leaves more than that in a halted guest": {
			world{spec: "c", phase: attached, claim: "c", pod: "x", qemu: diskhotplug.Partial, halted: true, pods: []hotplug.Pod{x}, opened: "x"}, want{action: Clear},
		},
		"a halted guest has the descriptor of a volume that was removed": {
			world{phase: attached, claim: "c", pod: "x", qemu: diskhotplug.Partial, bare: true, halted: true, pods: []hotplug.Pod{x}},
			want{action: Clear, phase: detaching, naming: "x", reason: ReasonDetaching},
		},
		"an attachment pod runs, but the status does not name it yet": {
			world{spec: "c", phase: v1.VolumeBound, claim: "c", pods: []hotplug.Pod{x}, recorded: []string{"hp-x"}}, want{},
		},
		"the attachment pod that is named has not been seen yet": {
			world{spec: "c", phase: attached, claim: "c", pod: "x"}, want{},
		},
		"the attachment pod that is named runs": {
			world{spec: "c", phase: attached, claim: "c", pod: "x", pods: []hotplug.Pod{x}}, want{action: Open, where: "x"},
		},
		"the first time, only the attachment pod that is named counts": {
			world{spec: "c", phase: attached, claim: "c", pod: "x", pods: []hotplug.Pod{x, y}, recorded: []string{"hp-x", "hp-y"}},
			want{action: Open, where: "x"},
		},
		"the attachment pod that is named is being deleted": {
			world{spec: "c", phase: attached, claim: "c", pod: "x", pods: []hotplug.Pod{pod("x", false)}}, want{},
		},
		"the disk is open": {
			world{spec: "c", phase: attached, claim: "c", pod: "x", pods: []hotplug.Pod{x}, opened: "x"}, want{action: Plug, where: "x"},
		},
		"the disk is open in an attachment pod that is not named any more": {
			world{spec: "c", phase: attached, claim: "c", pod: "y", pods: []hotplug.Pod{x, y}, opened: "x"}, want{action: Drop},
		},
		"the disk is open and its attachment pod is gone": {
			world{spec: "c", phase: attached, claim: "c", pod: "x", opened: "x"}, want{action: Drop},
		},
		"the disk is open and its attachment pod ends": {
			world{spec: "c", phase: attached, claim: "c", pod: "x", pods: []hotplug.Pod{pod("x", false)}, opened: "x"}, want{action: Drop},
		},
		"the guest has no disk of a Ready volume, and its attachment pod is gone": {
			world{spec: "c", phase: v1.VolumeReady, claim: "c", pod: "x", pods: []hotplug.Pod{y}, recorded: []string{"hp-y"}},
			want{action: Open, where: "y"},
		},
		"the same, and the disk is open in the next one": {
			world{spec: "c", phase: v1.VolumeReady, claim: "c", pod: "x", pods: []hotplug.Pod{y}, recorded: []string{"hp-y"}, opened: "y"},
			want{action: Plug, where: "y"},
		},
		"the same, and the next one is not recorded": {
			world{spec: "c", phase: v1.VolumeReady, claim: "c", pod: "x", pods: []hotplug.Pod{y}}, want{},
		},
		"the attachment pod of a volume that was never plugged is gone, and another one is recorded": {
			world{spec: "c", phase: attached, claim: "c", pod: "x", pods: []hotplug.Pod{y}, recorded: []string{"hp-y"}}, want{},
		},
		"a plug was cut short": {
			world{spec: "c", phase: attached, claim: "c", pod: "x", pods: []hotplug.Pod{x}, qemu: diskhotplug.Partial}, want{action: Clear},
		},
		"the guest has it, and nobody knows yet": {
			world{spec: "c", phase: attached, claim: "c", pod: "x", pods: []hotplug.Pod{x}, qemu: diskhotplug.Plugged},
			want{phase: v1.VolumeReady, naming: "x", reason: ReasonReady},
		},
		"the guest has it through an attachment pod that went before anybody knew": {
			world{spec: "c", phase: attached, claim: "c", pod: "x", qemu: diskhotplug.Plugged}, want{},
		},
		"at rest": {
			world{spec: "c", phase: v1.VolumeReady, claim: "c", pod: "x", pods: []hotplug.Pod{x}, recorded: []string{"hp-x"}, qemu: diskhotplug.Plugged},
			want{phase: v1.VolumeReady, naming: "x", reason: ReasonReady},
		},
		"a younger attachment pod is seen, but not recorded": {
			world{spec: "c", phase: v1.VolumeReady, claim: "c", pod: "x", pods: []hotplug.Pod{x, y}, recorded: []string{"hp-x"}, qemu: diskhotplug.Plugged},
			want{phase: v1.VolumeReady, naming: "x", reason: ReasonReady},
		},
		"a younger pod has the name of an attachment pod with another UID": {
			world{spec: "c", phase: v1.VolumeReady, claim: "c", pod: "x", pods: []hotplug.Pod{x, y}, recorded: []string{"hp-x", "hp-y/another"}, qemu: diskhotplug.Plugged},
			want{phase: v1.VolumeReady, naming: "x", reason: ReasonReady}},
		"a younger attachment pod is recorded": {
			world{spec: "c", phase: v1.VolumeReady, claim: "c", pod: "x", pods: []hotplug.Pod{x, y}, recorded: []string{"hp-x", "hp-y"}, qemu: diskhotplug.Plugged},
			want{action: Verify, where: "y", phase: v1.VolumeReady, naming: "x", reason: ReasonReady},
		},
		"a younger attachment pod was seen to have the disk": {
			world{spec: "c", phase: v1.VolumeReady, claim: "c", pod: "x", pods: []hotplug.Pod{x, y}, recorded: []string{"hp-x", "hp-y"}, qemu: diskhotplug.Plugged, verified: "y"},
			want{phase: v1.VolumeReady, naming: "y", reason: ReasonReady},
		},
		"the serving attachment pod has died": {
			world{spec: "c", phase: v1.VolumeReady, claim: "c", pod: "x", recorded: []string{"hp-x"}, qemu: diskhotplug.Plugged},
			want{phase: v1.VolumeReady, naming: "x", reason: ReasonPodGone},
		},
		"the serving attachment pod is gone, or is the node's that the guest has left, and the next one is looked at": {
			world{spec: "c", phase: v1.VolumeReady, claim: "c", pod: "x", pods: []hotplug.Pod{y}, recorded: []string{"hp-y"}, qemu: diskhotplug.Plugged},
			want{action: Verify, where: "y"},
		},
		"the guest has thrown its disk out": {
			world{spec: "c", phase: v1.VolumeReady, claim: "c", pod: "x", pods: []hotplug.Pod{x}}, want{action: Open, where: "x"},
		},
		"it is not wanted any more": {
			world{phase: v1.VolumeReady, claim: "c", pod: "x", pods: []hotplug.Pod{x}, qemu: diskhotplug.Plugged},
			want{action: Ask, phase: detaching, naming: "x", reason: ReasonDetaching},
		},
		"it is wanted again while the guest is asked to let go": {
			world{spec: "c", phase: detaching, claim: "c", pod: "x", pods: []hotplug.Pod{x}, qemu: diskhotplug.Plugged},
			want{action: Ask, phase: detaching, naming: "x", reason: ReasonDetaching},
		},
		"it is wanted on another claim": {
			world{spec: "d", phase: v1.VolumeReady, claim: "c", pod: "x", pods: []hotplug.Pod{x}, qemu: diskhotplug.Plugged},
			want{action: Ask, phase: detaching, naming: "x", reason: ReasonDetaching},
		},
		"the guest has opened the tray": {
			world{phase: detaching, claim: "c", pod: "x", pods: []hotplug.Pod{x}, qemu: diskhotplug.Plugged, tray: true},
			want{action: Eject, phase: detaching, naming: "x", reason: ReasonDetaching},
		},
		"the guest has let go, QEMU has not": {
			world{phase: detaching, claim: "c", pod: "x", pods: []hotplug.Pod{x}, qemu: diskhotplug.Partial},
			want{action: Clear, phase: detaching, naming: "x", reason: ReasonDetaching},
		},
		"it is out": {
			world{phase: detaching, claim: "c", pod: "x", pods: []hotplug.Pod{x}}, want{phase: unmounted, naming: "x", reason: ReasonUnmounted},
		},
		"it was given to us and is not wanted before we did anything": {
			world{phase: attached, claim: "c", pod: "x", pods: []hotplug.Pod{x}}, want{phase: unmounted, naming: "x", reason: ReasonUnmounted},
		},
		"it is not wanted while its disk is open": {
			world{phase: mounted, claim: "c", pod: "x", pods: []hotplug.Pod{x}, opened: "x"}, want{action: Drop},
		},
		"it is out and said to be": {
			world{phase: unmounted, claim: "c", pod: "x"}, want{},
		},
		"the user forces it, and the guest was asked": {
			world{phase: detaching, claim: "c", pod: "x", pods: []hotplug.Pod{x}, qemu: diskhotplug.Plugged, forced: true},
			want{action: Force, phase: detaching, naming: "x", reason: ReasonDetaching},
		},
		"an older wish to force says nothing before the guest was asked": {
			world{phase: v1.VolumeReady, claim: "c", pod: "x", pods: []hotplug.Pod{x}, qemu: diskhotplug.Plugged, forced: true},
			want{action: Ask, phase: detaching, naming: "x", reason: ReasonDetaching},
		},
		"it is taken by force, and QEMU still has it open": {
			world{phase: detaching, claim: "c", pod: "x", pods: []hotplug.Pod{x}, qemu: diskhotplug.Partial, forced: true},
			want{action: Clear, phase: detaching, naming: "x", reason: ReasonDetaching},
		},
		"it is taken by force": {
			world{phase: detaching, claim: "c", pod: "x", pods: []hotplug.Pod{x}, qemu: diskhotplug.Detached, forced: true},
			want{action: Ask, phase: unmounted, naming: "x", reason: ReasonForced},
		},
		"it was taken by force, and the guest keeps the device": {world{qemu: diskhotplug.Detached}, want{action: Ask}},
		"it is wanted again while the guest keeps the device": {
			world{spec: "c", phase: attached, claim: "c", pod: "y", pods: []hotplug.Pod{y}, qemu: diskhotplug.Detached},
			want{action: Ask, phase: attached, naming: "y", reason: ReasonDetached},
		},
		"another claim is wanted under its name while the guest keeps the device": {
			world{spec: "c", phase: attached, claim: "c", pod: "y", pods: []hotplug.Pod{y}, qemu: diskhotplug.Detached, qemuHas: "d"},
			want{action: Ask, phase: attached, naming: "y", reason: ReasonDetached},
		},
		"QEMU has what no status tells of": {
			world{claim: "c", qemu: diskhotplug.Plugged}, want{action: Ask},
		},
	} {
		t.Run(name, func(t *testing.T) {
			var got want
			for _, d := range Decide(test.observed()) {
				got = want{d.Action, d.Source.UID, d.Phase, d.PodUID, d.Reason}
			}
			if diff := cmp.Diff(test.want, got, cmp.AllowUnexported(want{})); diff != "" {
				t.Errorf("decision (-want +got):\n%s", diff)
			}
		})
	}
}
