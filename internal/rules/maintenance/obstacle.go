package maintenance

import (
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation"
	v1 "kubevirt.io/api/core/v1"
	cdiv1 "kubevirt.io/containerized-data-importer-api/pkg/apis/core/v1beta1"

	"drydock.dev/drydock/internal/contracts/layout"
	"drydock.dev/drydock/internal/rules/hotplug"
	"drydock.dev/drydock/internal/rules/machine"
	"drydock.dev/drydock/internal/rules/machine/stateclaim"
	"drydock.dev/drydock/internal/rules/maintenance/lock"
	"drydock.dev/drydock/internal/rules/pod/podstatus"
	"drydock.dev/drydock/internal/rules/storage/placement"
	"drydock.dev/drydock/internal/rules/storage/volumeclaim"
	"drydock.dev/drydock/internal/rules/vmi/vmicontroller"
	"drydock.dev/drydock/internal/rules/vmi/vmistatus"
)

// Look has the possible obstacles to a maintenance pod, from the API server.
type Look struct {
	// VMI has the VM's name, whoever created it. For a VMI's pod, VM has the VMI's name.
	VMI *v1.VirtualMachineInstance
	VM  *v1.VirtualMachine
	// Rivals are the guests and other maintenance pods beside which the pod must not run
	// (vmicontroller.GuestOn, vmicontroller.MaintainerOn).
	Rivals []vmicontroller.Rival
	// Users are Drydock's other pods on the claims: attachment pods, and pods that fill, upload or copy claims.
	Users       []*corev1.Pod
	DataVolumes []*cdiv1.DataVolume
	Filling     string // why a claim is not filled, "" for none
	// Plugged is a claim that another VMI's guest has plugged or is about to (hotplug.Plugged).
	Plugged      Plugged
	PluggedAsked bool
	Places       []placement.Claim
	Topologies   []placement.Topology // of the bound claims
	PlacesAsked  bool
}

// Plugged is a claim in a VMI's guest. The zero value is none.
type Plugged struct{ Claim, VMI string }

// Claims returns the claims of machine and pod. The pod must not use one beside another writer, or while it is copied.
func Claims(m lock.Machine, pod *corev1.Pod) []string {
	var out []string
	volumes, state := disksOf(m)
	out = volumeclaim.Names(volumes)
	if state != "" {
		out = append(out, state)
	}
	for _, claim := range lock.Claims(pod) {
		if !slices.Contains(out, claim) {
			out = append(out, claim)
		}
	}
	return out
}

func disksOf(m lock.Machine) (volumes []v1.Volume, state string) {
	switch m := m.(type) {
	case *v1.VirtualMachineInstance:
		return machine.DiskVolumes(&m.Spec), stateclaim.ClaimName(m)
	case *v1.VirtualMachine:
		if m.Spec.Template != nil {
			return machine.DiskVolumes(&m.Spec.Template.Spec), stateclaim.ClaimOf(m)
		}
	}
	return nil, ""
}

// Obstacle returns why the pod can't have the machine's disks, "" if it can.
func Obstacle(m lock.Machine, pod *corev1.Pod, look *Look) string {
	if why := besideDisks(m, pod, look); why != "" {
		return why
	}
	for _, dv := range look.DataVolumes {
		if dv.Status.Phase != cdiv1.Succeeded {
			return fmt.Sprintf("the DataVolume %s is not filled yet (phase %q)", dv.Name, dv.Status.Phase)
		}
	}
	if look.Filling != "" {
		return look.Filling
	}
	for _, user := range look.Users {
		if !podstatus.Terminal(user) {
			return ofUser(user, Claims(m, pod))
		}
	}
	if p := look.Plugged; p.VMI != "" {
		return fmt.Sprintf("the claim %s is plugged into the guest of VMI %s", p.Claim, p.VMI)
	}
	return ""
}

// besideDisks returns the obstacles other than the disks' content.
func besideDisks(m lock.Machine, pod *corev1.Pod, look *Look) string {
	switch m := m.(type) {
	case *v1.VirtualMachine:
		if why := ofVM(m, look); why != "" {
			return why
		}
	case *v1.VirtualMachineInstance:
		if why := ofVMI(m, look); why != "" {
			return why
		}
	}
	for _, r := range look.Rivals {
		if r.UID != pod.UID {
			return ofRival(r, lock.Noun(m))
		}
	}
	return ""
}

func ofVM(vm *v1.VirtualMachine, look *Look) string {
	strategy, err := vm.RunStrategy()
	switch {
	case vm.DeletionTimestamp != nil:
		return "the VM is being deleted"
	case err != nil:
		return fmt.Sprintf("it can't be told whether the VM runs: %v", err)
	case strategy != v1.RunStrategyHalted:
		return fmt.Sprintf("the VM's run strategy is %s; stop it, or set its run strategy to %s", strategy, v1.RunStrategyHalted)
	case slices.ContainsFunc(vm.Status.StateChangeRequests, func(r v1.VirtualMachineStateChangeRequest) bool { return r.Action == v1.StartRequest }):
		return "the VM was asked to start"
	case vm.Status.SnapshotInProgress != nil:
		return fmt.Sprintf("the VM's disks are being snapshotted by the VirtualMachineSnapshot %s", *vm.Status.SnapshotInProgress)
	case vm.Status.RestoreInProgress != nil:
		return fmt.Sprintf("the VM is being restored by the VirtualMachineRestore %s", *vm.Status.RestoreInProgress)
	case look.VMI != nil:
		return fmt.Sprintf("the VM has a virtual machine instance in phase %q, which has to go first", look.VMI.Status.Phase)
	}
	return ""
}

// A locked VMI gets no launcher pod: its handover to a node and its lock are writes of the same object.
func ofVMI(vmi *v1.VirtualMachineInstance, look *Look) string {
	switch {
	case vmi.DeletionTimestamp != nil:
		return "the VMI is being deleted"
	case look.VM != nil:
		return "there is a VM of the VMI's name by now, which the pod would be for"
	case !lock.Wanted(vmi):
		return fmt.Sprintf("the VMI is to run: set its spec.startStrategy to %s", lock.StartStrategy)
	case vmistatus.StageOf(vmi.Status.Phase) == vmistatus.HandedOver:
		return fmt.Sprintf("the VMI's guest is being shut down (phase %s)", vmi.Status.Phase)
	case vmistatus.StageOf(vmi.Status.Phase) == vmistatus.Ended:
		return "the VMI's guest has ended, and its pod is being taken away"
	}
	return ""
}

func ofRival(r vmicontroller.Rival, of string) string {
	switch {
	case r.Maintains != "":
		return fmt.Sprintf("the maintenance pod %s of %s uses the claim %s", r.Pod, r.Maintains, r.Claim)
	case r.Claim != "":
		return fmt.Sprintf("the claim %s is written to by the guest of VMI %s (pod %s)", r.Claim, r.VMI, r.Pod)
	}
	return fmt.Sprintf("the launcher pod %s of the %s has not ended", r.Pod, of)
}

// PluggedInto returns the first claim that another machine's VMI has plugged.
func PluggedInto(m lock.Machine, claims []string, vmis []v1.VirtualMachineInstance) Plugged {
	for i := range vmis {
		if vmi := &vmis[i]; vmi.Name != m.GetName() {
			if claim := hotplug.Plugged(vmi, claims); claim != "" {
				return Plugged{Claim: claim, VMI: vmi.Name}
			}
		}
	}
	return Plugged{}
}

// ofUser names the guest of an attachment pod, whose annotation may be any text.
func ofUser(user *corev1.Pod, claims []string) string {
	what := "one of the disks"
	if i := slices.IndexFunc(lock.Claims(user), func(c string) bool { return slices.Contains(claims, c) }); i >= 0 {
		what = "the claim " + lock.Claims(user)[i]
	}
	if vmi := user.Annotations[v1.DomainAnnotation]; user.Labels[v1.AppLabel] == layout.AttachmentApp && len(validation.IsDNS1123Subdomain(vmi)) == 0 {
		return fmt.Sprintf("%s is plugged into the guest of VMI %s (pod %s)", what, vmi, user.Name)
	}
	return fmt.Sprintf("the pod %s uses %s; the lock is taken when it has ended", user.Name, what)
}

// Bystanders names the pods on the claims that are not Drydock's and may write at any time.
func Bystanders(claims []string, pods []corev1.Pod) []string {
	var out []string
	for i := range pods {
		pod := &pods[i]
		ours := slices.Contains([]string{layout.LauncherApp, layout.AttachmentApp, layout.MaintenanceApp}, pod.Labels[v1.AppLabel])
		if !ours && !podstatus.Terminal(pod) && slices.ContainsFunc(lock.Claims(pod), func(c string) bool { return slices.Contains(claims, c) }) {
			out = append(out, pod.Name)
		}
	}
	slices.Sort(out)
	return out
}
