package validate

import (
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"
	v1 "kubevirt.io/api/core/v1"

	"drydock.dev/drydock/internal/api/defaults"
	"drydock.dev/drydock/internal/contracts/layout"
	"drydock.dev/drydock/internal/rules/maintenance/lock"
)

// maintainer is a maintenance pod of VM vm as its author wrote it.
func maintainer(changes ...func(*corev1.Pod)) *corev1.Pod {
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "fix", Labels: map[string]string{layout.MaintenanceForLabel: "vm"}}}
	pod.Spec.Volumes = []corev1.Volume{{VolumeSource: corev1.VolumeSource{PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: "data"}}}}
	for _, change := range changes {
		change(pod)
	}
	return pod
}

func expectOnly(t *testing.T, what string, errs field.ErrorList, want string) {
	t.Helper()
	if want == "" && len(errs) > 0 || want != "" && (len(errs) != 1 || !strings.Contains(errs[0].Error(), want)) {
		t.Errorf("%s: %v, want %q", what, errs, want)
	}
}

func TestANewMaintenancePod(t *testing.T) {
	vm := &v1.VirtualMachine{ObjectMeta: metav1.ObjectMeta{Name: "vm", UID: "vm-uid"}}
	job := metav1.OwnerReference{APIVersion: "batch/v1", Kind: "Job", Name: "job", UID: "job-uid", Controller: new(true)}
	for what, c := range map[string]struct {
		pod    *corev1.Pod
		vm     lock.Machine
		change func(*corev1.Pod)
		want   string
		owners int
	}{
		"one":                            {maintainer(), vm, nil, "", 1},
		"one of a Job":                   {maintainer(func(p *corev1.Pod) { p.OwnerReferences = []metav1.OwnerReference{job} }), vm, nil, "", 2},
		"one that names its VM":          {maintainer(func(p *corev1.Pod) { p.OwnerReferences = []metav1.OwnerReference{{UID: "vm-uid"}} }), vm, nil, "", 1},
		"a name that is just a label":    {maintainer(func(p *corev1.Pod) { p.Name = strings.Repeat("a", 63) }), vm, nil, "", 1},
		"a name that is none":            {maintainer(func(p *corev1.Pod) { p.Name = strings.Repeat("a", 64) }), vm, nil, "no more than 63 characters", 1},
		"one of a VMI":                   {maintainer(), &v1.VirtualMachineInstance{ObjectMeta: metav1.ObjectMeta{Name: "vm", UID: "vmi-uid"}}, nil, "", 1},
		"no VM":                          {maintainer(), nil, nil, "there is no VM of this name in the namespace", 0},
		"a node":                         {maintainer(func(p *corev1.Pod) { p.Spec.NodeName = "node" }), vm, nil, "can't be given a node", 1},
		"another webhook takes the gate": {maintainer(), vm, func(p *corev1.Pod) { p.Spec.SchedulingGates = nil }, "must have the gate", 1},
		"or the finalizer":               {maintainer(), vm, func(p *corev1.Pod) { p.Finalizers = nil }, "must have the finalizer", 1},
		"or a label":                     {maintainer(), vm, func(p *corev1.Pod) { delete(p.Labels, layout.ClaimLabel("data")) }, "are Drydock's", 1},
	} {
		defaults.MaintenancePod(c.pod, c.vm)
		if c.change != nil {
			c.change(c.pod)
		}
		expectOnly(t, what, MaintenancePod(c.pod, c.vm), c.want)
		if len(c.pod.OwnerReferences) != c.owners {
			t.Errorf("%s: its owners are %v", what, c.pod.OwnerReferences)
		}
	}
}

func TestAMaintenancePodStaysOne(t *testing.T) {
	whole := func() *corev1.Pod {
		pod := maintainer()
		defaults.MaintenancePod(pod, nil)
		return pod
	}
	for what, c := range map[string]struct {
		change func(*corev1.Pod)
		want   string
	}{
		"another label":         {func(p *corev1.Pod) { p.Labels["team"] = "a" }, ""},
		"for another VM":        {func(p *corev1.Pod) { p.Labels[layout.MaintenanceForLabel] = "other" }, "can't be changed"},
		"for none":              {func(p *corev1.Pod) { delete(p.Labels, layout.MaintenanceForLabel) }, "can't be changed"},
		"on no claim":           {func(p *corev1.Pod) { delete(p.Labels, layout.ClaimLabel("data")) }, "can't be changed"},
		"not Drydock's":         {func(p *corev1.Pod) { delete(p.Labels, v1.AppLabel) }, "can't be changed"},
		"without its gate":      {func(p *corev1.Pod) { p.Spec.SchedulingGates = nil }, "only virt-controller takes the gate off"},
		"without its finalizer": {func(p *corev1.Pod) { p.Finalizers = nil }, "only virt-controller takes the finalizer off"},
	} {
		pod := whole()
		c.change(pod)
		expectOnly(t, what, MaintenancePodUpdate(pod, whole()), c.want)
	}
	expectOnly(t, "a pod that becomes one", MaintenancePodUpdate(whole(), &corev1.Pod{}), "when it is created, and not later")
}

func TestALockedVM(t *testing.T) {
	machine := func(changes ...func(*v1.VirtualMachine)) *v1.VirtualMachine {
		vm := &v1.VirtualMachine{ObjectMeta: metav1.ObjectMeta{Name: "vm-cirros"}, Spec: v1.VirtualMachineSpec{RunStrategy: new(v1.RunStrategyHalted)}}
		for _, change := range changes {
			change(vm)
		}
		return vm
	}
	locked := func(vm *v1.VirtualMachine) {
		lock.Take(vm, &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "fix"}}, metav1.Now().Time)
	}
	runs := func(vm *v1.VirtualMachine) { vm.Spec.RunStrategy = new(v1.RunStrategyAlways) }
	refused := "Failed to start vm-cirros as it is in maintenance mode: its disks are locked for the pod fix"
	before := machine(locked)
	same := func(changes ...func(*v1.VirtualMachine)) *v1.VirtualMachine {
		vm := before.DeepCopy()
		for _, change := range changes {
			change(vm)
		}
		return vm
	}
	for what, c := range map[string]struct {
		vm, old *v1.VirtualMachine
		want    string
	}{
		"a new one":                {machine(), nil, ""},
		"a new one that is locked": {machine(func(vm *v1.VirtualMachine) { vm.Labels = map[string]string{layout.MaintenanceLabel: "fix"} }), nil, "only virt-controller locks a VM"},
		"a start":                  {machine(runs), machine(), ""},
		"a start while locked":     {same(runs), before, refused},
		"in the older field":       {same(func(vm *v1.VirtualMachine) { vm.Spec.RunStrategy, vm.Spec.Running = nil, new(true) }), before, refused},
		"a start on request":       {same(func(vm *v1.VirtualMachine) { vm.Spec.RunStrategy = new(v1.RunStrategyManual) }), before, refused},
		"a halt while locked":      {same(), same(runs), ""},
		"no strategy at all":       {same(func(vm *v1.VirtualMachine) { vm.Spec.Running = new(true) }), before, ""},
		"another change":           {same(func(vm *v1.VirtualMachine) { vm.Annotations["a"] = "b" }), before, ""},
		"its lock":                 {same(func(vm *v1.VirtualMachine) { vm.Labels = nil }), before, "only virt-controller locks a VM"},
		"a forced unlock":          {same(func(vm *v1.VirtualMachine) { vm.Annotations[layout.MaintenanceReleaseAnnotation] = "uid" }), before, "only Drydock's components keep this record"},
	} {
		expectOnly(t, what, MaintenanceLock(c.vm, c.old), c.want)
	}
}

// TestTheOneChangeOfAVMIsSpec: only its start strategy may change, to Maintenance and back.
func TestTheOneChangeOfAVMIsSpec(t *testing.T) {
	vmi := func(strategy v1.StartStrategy, changes ...func(*v1.VirtualMachineInstance)) *v1.VirtualMachineInstance {
		out := &v1.VirtualMachineInstance{}
		if strategy != "" {
			out.Spec.StartStrategy = &strategy
		}
		for _, change := range changes {
			change(out)
		}
		return out
	}
	owned := func(vmi *v1.VirtualMachineInstance) {
		vmi.OwnerReferences = []metav1.OwnerReference{{Kind: "VirtualMachine", Name: "vm", Controller: new(true)}}
	}
	moving := func(vmi *v1.VirtualMachineInstance) {
		vmi.Status.MigrationState = &v1.VirtualMachineInstanceMigrationState{MigrationUID: "m"}
	}
	leaves := func(vmi *v1.VirtualMachineInstance) {
		vmi.Annotations = map[string]string{layout.LeaveLauncherPodAnnotation: "true"}
	}
	renamed := func(vmi *v1.VirtualMachineInstance) { vmi.Spec.Hostname = "other" }
	noted := func(vmi *v1.VirtualMachineInstance) {
		vmi.Annotations = map[string]string{layout.MaintenanceOpenAnnotation: "true"}
	}
	for what, c := range map[string]struct {
		from, to *v1.VirtualMachineInstance
		want     string
	}{
		"to it":                    {vmi(""), vmi(lock.StartStrategy), ""},
		"from Paused to it":        {vmi(v1.StartStrategyPaused), vmi(lock.StartStrategy), ""},
		"back":                     {vmi(lock.StartStrategy), vmi(""), ""},
		"back, to Paused":          {vmi(lock.StartStrategy), vmi(v1.StartStrategyPaused), ""},
		"back, to nonsense":        {vmi(lock.StartStrategy), vmi("Nonsense"), "Unsupported value"},
		"to Paused":                {vmi(""), vmi(v1.StartStrategyPaused), "update of VMI object is restricted"},
		"something beside it":      {vmi(""), vmi(lock.StartStrategy, renamed), "update of VMI object is restricted"},
		"of a VM's":                {vmi("", owned), vmi(lock.StartStrategy, owned), "virtctl maintenance, or virtctl guestfs --vm"},
		"while it migrates":        {vmi("", moving), vmi(lock.StartStrategy, moving), "the VMI is being migrated"},
		"and its pod is to stay":   {vmi("", leaves), vmi(lock.StartStrategy, leaves), "the annotation kubevirt.io/leave-launcher-pod-after-qemu-exit for a launcher pod that stays"},
		"its pod is to stay later": {vmi(lock.StartStrategy), vmi(lock.StartStrategy, leaves), "the annotation kubevirt.io/leave-launcher-pod-after-qemu-exit for a launcher pod that stays"},
		"a lock that is forged":    {vmi(""), vmi("", noted), "only Drydock's components keep this record of a VMI's lock"},
	} {
		expectOnly(t, what, VMIUpdate(c.to, c.from), c.want)
	}
	expectOnly(t, "a template", maintainedTemplate(&vmi(lock.StartStrategy).Spec, field.NewPath("spec")), "virtctl maintenance, or virtctl guestfs --vm")
	expectOnly(t, "another template", maintainedTemplate(&vmi(v1.StartStrategyPaused).Spec, field.NewPath("spec")), "")
}
