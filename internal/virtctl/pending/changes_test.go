package pending

import (
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	v1 "kubevirt.io/api/core/v1"

	"drydock.dev/drydock/internal/contracts/layout"
	"drydock.dev/drydock/internal/rules/hotplug/nichotplug"
	"drydock.dev/drydock/internal/rules/migration/migrationrequired"
	"drydock.dev/drydock/internal/rules/pod/launcherpod"
)

func on(name, network string, state v1.InterfaceState, there bool) func(*facts) {
	return func(f *facts) {
		spec := &f.vmi.Spec
		spec.Networks = append(spec.Networks, v1.Network{Name: name, NetworkSource: v1.NetworkSource{Multus: &v1.MultusNetwork{NetworkName: network}}})
		spec.Domain.Devices.Interfaces = append(spec.Domain.Devices.Interfaces, v1.Interface{Name: name, State: state})
		if there {
			f.vmi.Status.Interfaces = append(f.vmi.Status.Interfaces, v1.VirtualMachineInstanceNetworkInterface{Name: name, InfoSource: "domain, multus-status"})
		}
	}
}

// required is virt-controller's condition for a pod that was made with a VMI's interfaces, and whose network status is
// status.
func required(made func(*facts), status string, since time.Duration, immovable error) func(*facts) {
	return func(f *facts) {
		of := newFacts(made)
		networks := launcherpod.Networks(of.vmi)
		pod := &corev1.Pod{}
		pod.Name = "pod"
		pod.Annotations = map[string]string{launcherpod.MadeWithAnnotation: networks, nichotplug.StatusAnnotation: status}
		now := time.Now()
		current := &v1.VirtualMachineInstanceCondition{Status: corev1.ConditionFalse}
		current.LastTransitionTime.Time = now.Add(-since)
		if c, _ := migrationrequired.Decide(nichotplug.Needs(f.vmi, pod), current, migrationrequired.Guest{Immovable: immovable}, now); c != nil {
			f.vmi.Status.Conditions = append(f.vmi.Status.Conditions, *c)
		}
	}
}

func says(kind v1.VirtualMachineInstanceConditionType, status corev1.ConditionStatus, message string) func(*facts) {
	return func(f *facts) {
		f.vmi.Status.Conditions = append(f.vmi.Status.Conditions, v1.VirtualMachineInstanceCondition{Type: kind, Status: status, Message: message})
	}
}

func restarts(message string) func(*facts) {
	return func(f *facts) {
		f.vm.Status.Conditions = []v1.VirtualMachineCondition{{Type: v1.VirtualMachineRestartRequired, Status: corev1.ConditionTrue, Message: message}}
	}
}

func moving(phase v1.VirtualMachineInstanceMigrationPhase) func(*facts) {
	return func(f *facts) {
		m := v1.VirtualMachineInstanceMigration{}
		m.Name, m.Status.Phase = "moves", phase
		f.migrations = append(f.migrations, m)
	}
}

func newFacts(edits ...func(*facts)) *facts {
	f := &facts{vm: &v1.VirtualMachine{}, vmi: &v1.VirtualMachineInstance{}}
	f.vm.Spec.Template = &v1.VirtualMachineInstanceTemplateSpec{}
	f.vmi.Namespace, f.vmi.Status.Phase = "lab", v1.Running
	for _, edit := range edits {
		edit(f)
	}
	return f
}

func none(*facts) {}

func TestWhatIsPending(t *testing.T) {
	const (
		blue      = "spec.template.spec.domain.devices.interfaces[blue]"
		long      = time.Minute
		automatic = "a migration, which is made where the cluster's workloadUpdateMethods have LiveMigrate, or by 'virtctl migrate': "
		patience  = "the launcher pod to get it in place, or ten seconds without that, and then a migration: "
		room      = "the launcher pod is to have 3 CPU and 1Gi of memory, for which its node has no room"
		sockets   = "spec.template.spec.domain.cpu.sockets"
	)
	onBlue := `[{"name":"lab/blue","interface":"` + layout.SecondaryInterface("blue") + `"}]`
	for name, c := range map[string]struct {
		edits []func(*facts)
		want  []string
	}{
		"nothing":                             {},
		"a VM that does not run":              {edits: []func(*facts){restarts("x"), func(f *facts) { f.vmi = nil }}},
		"a VM that has ended":                 {edits: []func(*facts){restarts("x"), func(f *facts) { f.vmi.Status.Phase = v1.Succeeded }}},
		"something else that is not in order": {edits: []func(*facts){says(v1.VirtualMachineInstanceSynchronized, "False", "x")}},
		"an interface": {edits: []func(*facts){on("blue", "blue", "", false), required(none, "", 0, nil)},
			want: []string{blue + " live: " + patience + "interface blue is to be plugged"}},
		"an interface, after ten seconds": {edits: []func(*facts){on("blue", "blue", "", false), required(none, "", long, nil)},
			want: []string{blue + " migration: " + automatic + "interface blue is to be plugged"}},
		"an interface, on its way": {edits: []func(*facts){on("blue", "blue", "", false), required(none, "", long, nil), moving(v1.MigrationSucceeded), moving(v1.MigrationRunning)},
			want: []string{blue + " migration: migration moves, which is Running: interface blue is to be plugged"}},
		"an interface of a guest that stays": {edits: []func(*facts){on("blue", "blue", "", false), required(none, "", long, errors.New("PVC a is not shared; it is on node1"))},
			want: []string{blue + " migration: a migration, which can't be made (PVC a is not shared; it is on node1): interface blue is to be plugged"}},
		"an interface that no pod gets": {edits: []func(*facts){on("blue", "blue", "", false), required(on("blue", "blue", "", false), "", long, nil)},
			want: []string{blue + " live: interface blue is to be plugged, which no migration brings: the launcher pod pod was made with it, " +
				"and Multus has not said that it is there; look at the pod's annotation k8s.v1.cni.cncf.io/network-status, and whether Multus runs on node "}},
		"an interface that the pod has": {edits: []func(*facts){on("blue", "blue", "", false), required(none, onBlue, 0, nil)},
			want: []string{blue + " live: the guest to get the interface, which its launcher pod has"}},
		"two interfaces": {edits: []func(*facts){on("blue", "blue", "absent", false), on("green", "green", "", false), required(none, onBlue, 0, nil)},
			want: []string{blue + ".state live: " + patience + "interface blue is to be unplugged from the launcher pod",
				"spec.template.spec.domain.devices.interfaces[green] live: " + patience + "interface green is to be plugged"}},
		"an interface that the guest keeps": {edits: []func(*facts){on("blue", "blue", "absent", true), says(v1.VirtualMachineInstanceSynchronized, "False", "the guest has not released it")},
			want: []string{blue + ".state live: the guest to release the interface", " live: the node: the guest has not released it"}},
		"an interface of a guest that is being started": {edits: []func(*facts){on("blue", "blue", "", false), func(f *facts) { f.vmi.Status.Phase = v1.Scheduled }}},
		"an interface that it has no more": {edits: []func(*facts){required(none, onBlue, 0, nil)},
			want: []string{"spec.template.spec.domain.devices.interfaces live: " + patience + "the launcher pod is to lose interfaces that the VMI does not have any more: " +
				layout.SecondaryInterface("blue")}},
		"another network": {edits: []func(*facts){on("blue", "green", "", true), required(none, onBlue, 0, nil)},
			want: []string{"spec.template.spec.networks[blue].multus.networkName migration: " + automatic +
				"interface blue is to be on network lab/green, and its launcher pod is on lab/blue"}},
		"CPUs": {edits: []func(*facts){says(v1.VirtualMachineInstanceVCPUChange, "True", "the guest has 1"), restarts("these changes take effect when the VM is restarted: a, because it can't be changed while the guest runs")},
			want: []string{sockets + " live: the guest has 1", "a restart: a restart of the VM: it can't be changed while the guest runs"}},
		"CPUs for which there is no room": {edits: []func(*facts){says(v1.VirtualMachineInstanceVCPUChange, "True", "x"), says(v1.VirtualMachineInstanceMigrationRequired, "True", room)},
			want: []string{sockets + " migration: " + automatic + room}},
		"room without a reason": {edits: []func(*facts){says(v1.VirtualMachineInstanceMigrationRequired, "True", room)}, want: []string{" migration: " + automatic + room}},
		"memory": {edits: []func(*facts){says(v1.VirtualMachineInstanceMemoryChange, "True", "it grows"), says(v1.VirtualMachineInstanceVCPUChange, "False", "x")},
			want: []string{"spec.template.spec.domain.memory.guest live: it grows"}},
		"words that are not known": {edits: []func(*facts){says(v1.VirtualMachineInstanceMigrationRequired, "True", "as you like; it is"), restarts("a restart is needed")},
			want: []string{" migration: " + automatic + "as you like; it is", " restart: a restart of the VM: a restart is needed"}},
		"several for a restart": {edits: []func(*facts){restarts("these changes take effect when the VM is restarted: a, c, because it is so; b; claims differ")},
			want: []string{"a restart: a restart of the VM: it is so", "c restart: a restart of the VM: it is so",
				"b restart: a restart of the VM: it can't be changed while the guest runs; claims differ"}},
		"volumes": {edits: []func(*facts){says(v1.VirtualMachineInstanceVolumesChange, "True", "data is copied"), func(f *facts) {
			f.vmi.Status.VolumeStatus = []v1.VolumeStatus{{Name: "root"}, {Name: "old", Phase: v1.VolumeReady, HotplugVolume: &v1.HotplugVolumeStatus{}},
				{Name: "new", Phase: v1.VolumeBound, Message: "it is on its way", HotplugVolume: &v1.HotplugVolumeStatus{}}}
		}},
			want: []string{"spec.template.spec.volumes[new] live: the volume, which is Bound: it is on its way",
				"spec.template.spec.volumes migration: " + automatic + "data is copied"}},
	} {
		t.Run(name, func(t *testing.T) {
			got := []string{}
			for _, c := range newFacts(c.edits...).changes() {
				got = append(got, c.Path+" "+string(c.Effect)+": "+c.WaitsFor)
			}
			if !slices.Equal(got, c.want) {
				t.Errorf("got\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(c.want, "\n"))
			}
		})
	}
}

// No condition lists the changes that wait for the end of a migration.
func TestWhatWaitsForTheEndOfAMigration(t *testing.T) {
	const after = " live: the end of migration moves, which is Running: the VMI gets nothing while it is being migrated"
	memory := resource.MustParse("1Gi")
	f := newFacts(on("blue", "blue", "", true), on("red", "red", "", true), moving(v1.MigrationRunning), restarts("these changes take effect when the VM is restarted: "+interfacePath("wait")))
	to := &f.vm.Spec.Template.Spec
	to.Networks = []v1.Network{{Name: "blue", NetworkSource: v1.NetworkSource{Multus: &v1.MultusNetwork{NetworkName: "green"}}}, f.vmi.Spec.Networks[1], {Name: "new"}}
	to.Domain.Devices.Interfaces = []v1.Interface{{Name: "blue", State: "up"}, {Name: "red", State: "down"}, {Name: "new"}, {Name: "wait"}}
	to.Domain.CPU, to.Domain.Memory = &v1.CPU{Sockets: 2}, &v1.Memory{Guest: &memory}
	want := []string{socketsPath + after, memoryPath + after, interfacePath("red") + ".state" + after, interfacePath("new") + after, networkPath("blue") + after,
		interfacePath("wait") + " restart: a restart of the VM: it can't be changed while the guest runs"}
	var got []string
	for _, c := range f.changes() {
		got = append(got, c.Path+" "+string(c.Effect)+": "+c.WaitsFor)
	}
	if !slices.Equal(got, want) {
		t.Errorf("got\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
	f.migrations[0].Status.Phase = v1.MigrationFailed
	if got := f.changes(); len(got) != 1 {
		t.Errorf("after the migration it is %+v", got)
	}
}

func TestATerminalIsToldNothingButText(t *testing.T) {
	var out strings.Builder
	a := answer{VM: "vm", Changes: []change{{Effect: live, WaitsFor: "a guest\x1b[2J that\nsays\tit"}}}
	if err := a.print(&out, true); err != nil || !strings.Contains(out.String(), "-       live          a guest [2J that says it\n") {
		t.Errorf("it is told %q, %v", out.String(), err)
	}
}
