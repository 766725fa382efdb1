package maintenance

import (
	"cmp"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	v1 "kubevirt.io/api/core/v1"
	cdiv1 "kubevirt.io/containerized-data-importer-api/pkg/apis/core/v1beta1"

	"drydock.dev/drydock/internal/rules/machine/stateclaim"
	"drydock.dev/drydock/internal/rules/maintenance/lock"
	"drydock.dev/drydock/internal/rules/storage/placement"
	"drydock.dev/drydock/internal/rules/vmi/vmicontroller"
)

// place places the next pod's disks where the machine fits, by the rule for a start (package placement), and reports
// whether the pod has to wait. It needs no lock: a provisioning pod mounts nothing, and a concurrent start continues
// with the same claims.
func (d *decision) place(next *corev1.Pod) bool {
	wanted := d.predecessor(next) == "" && besideDisks(d.o.Machine, next, d.o.Look) == ""
	if !wanted {
		return d.unprovision(nil)
	}
	if d.unprovision(next) {
		return true
	}
	pod := d.provisioningOf(next)
	unfilled := slices.ContainsFunc(d.o.Look.DataVolumes, func(dv *cdiv1.DataVolume) bool { return dv.Status.Phase != cdiv1.Succeeded })
	switch {
	case pod == nil && !unfilled:
		return false
	case !d.o.Look.PlacesAsked:
		d.Needs = NeedPlaces
		return true
	}
	claims := d.places()
	disks := placement.Decide(placement.Observed{
		Wanted: true, Claims: claims, Pod: pod, Confirmed: true, Topologies: d.o.Look.Topologies, Now: d.o.Now,
	})
	switch {
	case disks.Create:
		d.Step, d.Pod, d.Claims = Provision, next, make([]string, len(claims))
		for i := range claims {
			d.Claims[i] = claims[i].Name
		}
	case disks.Delete:
		d.Step, d.Pod = Unprovision, pod
	}
	if disks.State == placement.Clear {
		return d.Step != Rest
	}
	why := disks.Message
	if unplaced := vmicontroller.Unplaced(disks, pod); unplaced != nil && unplaced.Message != why {
		why = fmt.Sprintf("%s; %s", why, unplaced.Message)
	}
	d.queue(why)
	d.After = cmp.Or(disks.After, obstaclePause)
	return true
}

// Instance returns the VMI that has the machine's disks.
func Instance(m lock.Machine) *v1.VirtualMachineInstance {
	if vm, is := m.(*v1.VirtualMachine); is {
		return stateclaim.Next(vm)
	}
	return m.(*v1.VirtualMachineInstance)
}

// places skips the claim of the machine's state, which is created when its first guest starts.
func (d *decision) places() []placement.Claim {
	_, state := disksOf(d.o.Machine)
	return slices.DeleteFunc(slices.Clone(d.o.Look.Places), func(c placement.Claim) bool { return c.Name == state && c.Claim == nil })
}

func (d *decision) provisioningOf(pod *corev1.Pod) *corev1.Pod {
	if i := slices.IndexFunc(d.o.Provisioning, func(p *corev1.Pod) bool { return metav1.IsControlledBy(p, pod) }); i >= 0 {
		return d.o.Provisioning[i]
	}
	return nil
}

// unprovision deletes a provisioning pod of any other pod, and reports whether there was one.
func (d *decision) unprovision(but *corev1.Pod) bool {
	for _, p := range d.o.Provisioning {
		if but == nil || !metav1.IsControlledBy(p, but) {
			d.Step, d.Pod = Unprovision, p
			return true
		}
	}
	return false
}
