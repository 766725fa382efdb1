package rollout

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/resource"
	v1 "kubevirt.io/api/core/v1"

	"drydock.dev/drydock/internal/rules/migration/volumemigration"
)

const (
	stage      = v1.VMRolloutStrategyStage
	liveUpdate = v1.VMRolloutStrategyLiveUpdate
)

type specEdit func(*v1.VirtualMachineInstanceSpec)

// spec is a template with two interfaces, a root disk on the claim a and a hotpluggable one.
func spec(edits ...specEdit) *v1.VirtualMachineInstanceSpec {
	disk := func(name string, bus v1.DiskBus) v1.Disk {
		return v1.Disk{Name: name, DiskDevice: v1.DiskDevice{Disk: &v1.DiskTarget{Bus: bus}}}
	}
	claim := func(name, claim string, hot bool) v1.Volume {
		return v1.Volume{Name: name, VolumeSource: v1.VolumeSource{DataVolume: &v1.DataVolumeSource{Name: claim, Hotpluggable: hot}}}
	}
	s := &v1.VirtualMachineInstanceSpec{
		NodeSelector: map[string]string{"zone": "a"},
		Domain: v1.DomainSpec{
			CPU:    &v1.CPU{Sockets: 1},
			Memory: &v1.Memory{Guest: new(resource.MustParse("1Gi"))},
			Devices: v1.Devices{
				Interfaces: []v1.Interface{{Name: "default"}, bridged("red")},
				Disks:      []v1.Disk{disk("root", v1.DiskBusVirtio), disk("data", v1.DiskBusSCSI)},
			},
		},
		Networks: []v1.Network{{Name: "default", NetworkSource: v1.NetworkSource{Pod: &v1.PodNetwork{}}}, attached("red")},
		Volumes:  []v1.Volume{claim("root", "a", false), claim("data", "data", true)},
	}
	for _, edit := range edits {
		edit(s)
	}
	return s
}

// both is common, has is only in the VMI, and wants only in the template.
func differing(strategy v1.VMRolloutStrategy, phase v1.VirtualMachineInstancePhase, both, has, wants []specEdit) Input {
	in := Input{
		Strategy: cmp.Or(strategy, liveUpdate), VMName: "vm", Started: spec(both...), Template: spec(slices.Concat(both, wants)...),
		VMI: machineOf(cmp.Or(phase, v1.Running), spec(slices.Concat(both, has)...)),
	}
	in.Plugged = in.Template
	return in
}

// changes checks that these changes are found, and that the live ones are carried into the VMI.
func changes(t *testing.T, in Input, want []Change) {
	t.Helper()
	if got := Compare(in); !slices.Equal(got, want) {
		t.Errorf("got\n%s\nwant\n%s", text(got), text(want))
	}
	carried(t, in)
}

func zoneB(s *v1.VirtualMachineInstanceSpec) { s.NodeSelector["zone"] = "b" }

func tolerant(s *v1.VirtualMachineInstanceSpec) { s.Tolerations = []corev1.Toleration{{Key: "x"}} }

func near(s *v1.VirtualMachineInstanceSpec) {
	s.Affinity = &corev1.Affinity{PodAffinity: &corev1.PodAffinity{}}
}

func red(state v1.InterfaceState) specEdit { return nicState("red", state) }

func sockets(s *v1.VirtualMachineInstanceSpec) { s.Domain.CPU.Sockets = 2 }

func moreMemory(s *v1.VirtualMachineInstanceSpec) {
	s.Domain.Memory.Guest = new(resource.MustParse("2Gi"))
}

func onClaimB(s *v1.VirtualMachineInstanceSpec) { s.Volumes[0].DataVolume.Name = "b" }

func unplugged(s *v1.VirtualMachineInstanceSpec) {
	s.Volumes, s.Domain.Devices.Disks = s.Volumes[:1], s.Domain.Devices.Disks[:1]
}

func machineOf(phase v1.VirtualMachineInstancePhase, s *v1.VirtualMachineInstanceSpec) *v1.VirtualMachineInstance {
	vmi := &v1.VirtualMachineInstance{Spec: *s}
	vmi.Status.Phase = phase
	return vmi
}

func TestWhichWayAChangeReachesTheGuest(t *testing.T) {
	const (
		selector  = "spec.template.spec.nodeSelector.zone"
		redState  = "spec.template.spec.domain.devices.interfaces[red].state"
		root      = "spec.template.spec.volumes[root]"
		rootClaim = "spec.template.spec.volumes[root].dataVolume.name"
	)
	for name, test := range map[string]struct {
		strategy v1.VMRolloutStrategy
		// phase is Running unless it is set; has was carried into the VMI since its start.
		phase v1.VirtualMachineInstancePhase
		has   []specEdit
		wants []specEdit
		moves []volumemigration.Move
		// unknown means that the template from which the VMI was made is unknown.
		unknown bool
		want    []Change
	}{
		"nothing":             {strategy: liveUpdate},
		"nothing, with Stage": {strategy: stage},
		"placement": {strategy: liveUpdate, wants: []specEdit{zoneB, tolerant, near}, want: []Change{
			{"spec.template.spec.affinity", Live, ReasonPlacement},
			{selector, Live, ReasonPlacement},
			{"spec.template.spec.tolerations", Live, ReasonPlacement},
		}},
		"placement, with Stage": {strategy: stage, wants: []specEdit{zoneB, tolerant, near}, want: []Change{
			{"spec.template.spec.affinity", Restart, ReasonStaged},
			{selector, Restart, ReasonStaged},
			{"spec.template.spec.tolerations", Restart, ReasonStaged},
		}},
		"placement, of no strategy":               {wants: []specEdit{zoneB}, want: []Change{{selector, Restart, ReasonStaged}}},
		"placement that was carried":              {strategy: liveUpdate, has: []specEdit{zoneB}, wants: []specEdit{zoneB}},
		"placement that was carried before Stage": {strategy: stage, has: []specEdit{zoneB}, wants: []specEdit{zoneB}},
		"placement that is taken back too late":   {strategy: stage, has: []specEdit{zoneB}, want: []Change{{selector, Restart, ReasonStaged}}},
		"placement of a guest that is starting": {strategy: liveUpdate, phase: v1.Scheduled, wants: []specEdit{zoneB},
			want: []Change{{selector, Restart, ReasonNotRunning}}},
		"a link goes down":             {strategy: liveUpdate, wants: []specEdit{red(v1.InterfaceStateLinkDown)}, want: []Change{{redState, Live, ReasonLink}}},
		"a link goes up":               {strategy: liveUpdate, has: []specEdit{red(v1.InterfaceStateLinkDown)}, want: []Change{{redState, Live, ReasonLink}}},
		"a link that is up is said so": {strategy: liveUpdate, wants: []specEdit{red(v1.InterfaceStateLinkUp)}},
		"a link goes down, with Stage": {strategy: stage, wants: []specEdit{red(v1.InterfaceStateLinkDown)}, want: []Change{{redState, Restart, ReasonStaged}}},
		"the link of a guest that is starting": {strategy: liveUpdate, phase: v1.Scheduling, wants: []specEdit{red(v1.InterfaceStateLinkDown)},
			want: []Change{{redState, Restart, ReasonNotRunning}}},
		"a link that was switched": {strategy: stage, has: []specEdit{red(v1.InterfaceStateLinkDown)}, wants: []specEdit{red(v1.InterfaceStateLinkDown)}},
		"CPUs and memory": {strategy: liveUpdate, wants: []specEdit{sockets, moreMemory}, want: []Change{
			{socketsPath, Restart, ReasonNoSocket},
			{memoryPath, Restart, ReasonNoMemory},
		}},
		"one that is live and one that is not": {strategy: liveUpdate, wants: []specEdit{zoneB, sockets}, want: []Change{
			{socketsPath, Restart, ReasonNoSocket},
			{selector, Live, ReasonPlacement},
		}},
		"a hotpluggable volume goes, with Stage": {strategy: stage, wants: []specEdit{unplugged}, want: []Change{
			{"spec.template.spec.domain.devices.disks[data]", Live, ReasonPlugged},
			{"spec.template.spec.volumes[data]", Live, ReasonPlugged},
		}},
		"a hotpluggable volume that is gone": {strategy: stage, has: []specEdit{unplugged}, wants: []specEdit{unplugged}},
		"a claim that is copied": {strategy: stage, wants: []specEdit{onClaimB}, moves: []volumemigration.Move{{Volume: "root", From: "a", To: "b"}},
			want: []Change{{root, Migration, ReasonCopied}}},
		"a claim that was copied":    {strategy: stage, has: []specEdit{onClaimB}, wants: []specEdit{onClaimB}},
		"a claim that is not copied": {strategy: liveUpdate, wants: []specEdit{onClaimB}, want: []Change{{rootClaim, Restart, ReasonMachine}}},
		"what was started is unknown": {strategy: stage, unknown: true, wants: []specEdit{cores, moreMemory, zoneB}, want: []Change{
			{memoryPath, Restart, ReasonStaged},
			{selector, Restart, ReasonStaged},
		}},
	} {
		t.Run(name, func(t *testing.T) {
			phase := test.phase
			if phase == "" {
				phase = v1.Running
			}
			in := Input{Strategy: test.strategy, VMName: "vm", Started: spec(), VMI: machineOf(phase, spec(test.has...)), Template: spec(test.wants...), Moves: test.moves}
			in.Plugged = volumemigration.TemplateForPlugging(in.VMI, in.Template, true, nil)
			if test.unknown {
				in.Started = nil
			}
			if got := Compare(in); !slices.Equal(got, test.want) {
				t.Errorf("got\n%s\nwant\n%s", text(got), text(test.want))
			}
			carried(t, in)
		})
	}
}

func text(changes []Change) string {
	var lines []string
	for _, c := range changes {
		lines = append(lines, fmt.Sprintf("%s: %s: %s", c.Path, c.Way, c.Reason))
	}
	return strings.Join(lines, "\n")
}

// carried checks that Carry changes a VMI if and only if Compare finds live changes of placement or interfaces, that
// none of these is left then, and that nothing else has changed.
func carried(t *testing.T, in Input) {
	t.Helper()
	ours := func(c Change) bool { return c.Way == Live && c.Reason != ReasonPlugged || c.Reason == ReasonNetwork }
	vmi, before := in.VMI.DeepCopy(), Compare(in)
	if changed, want := Carry(in.Strategy, vmi, in.Template), slices.ContainsFunc(before, ours); changed != want {
		t.Errorf("it carries something: %v, want %v", changed, want)
	}
	after := in
	after.VMI = vmi
	want := slices.DeleteFunc(before, ours)
	if got := Compare(after); !slices.Equal(got, want) {
		t.Errorf("afterwards there are\n%s\nwant\n%s", text(got), text(want))
	}
	is, was := lasting(&vmi.Spec), lasting(&in.VMI.Spec)
	is.Domain.Devices.Interfaces, is.Networks, was.Domain.Devices.Interfaces, was.Networks = nil, nil, nil, nil
	if !equality.Semantic.DeepEqual(is, was) {
		t.Errorf("it has changed more: %+v", vmi.Spec)
	}
	if vmi.Spec.NodeSelector["zone"] += "x"; in.Template.NodeSelector["zone"] == vmi.Spec.NodeSelector["zone"] {
		t.Error("the VMI shares what it has with the template")
	}
}
