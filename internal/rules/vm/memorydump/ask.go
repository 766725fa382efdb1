package memorydump

import (
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/util/validation"
	v1 "kubevirt.io/api/core/v1"

	"drydock.dev/drydock/internal/rules/migration"
	"drydock.dev/drydock/internal/rules/storage/volumeclaim"
	"drydock.dev/drydock/internal/rules/vm/memorydump/dumpspace"
)

// Refusal is why a request is refused.
type Refusal struct{ sentence string }

func (r *Refusal) Error() string { return r.sentence }

func refuse(format string, args ...any) error { return &Refusal{fmt.Sprintf(format, args...)} }

// ClaimOf returns the claim of a request, which may leave out the one that the VM has already.
func ClaimOf(vm *v1.VirtualMachine, asked *v1.VirtualMachineMemoryDumpRequest) (string, error) {
	has := vm.Status.MemoryDumpRequest
	switch {
	case asked.ClaimName == "" && has == nil:
		return "", refuse("the first memory dump of a VM needs the name of a claim: set claimName (virtctl: --claim-name)")
	case asked.ClaimName == "":
		return has.ClaimName, nil
	}
	return asked.ClaimName, nil
}

// Asked is a request for a dump. Claim is that of the name, nil if it does not exist.
type Asked struct {
	VM        *v1.VirtualMachine
	VMI       *v1.VirtualMachineInstance
	ClaimName string
	Claim     *corev1.PersistentVolumeClaim
}

// Ask returns the VM's new request, or why there is none.
func Ask(a Asked) (*v1.VirtualMachineMemoryDumpRequest, error) {
	if err := a.free(); err != nil {
		return nil, err
	}
	if err := a.dumpable(); err != nil {
		return nil, err
	}
	if err := a.fits(); err != nil {
		return nil, err
	}
	return &v1.VirtualMachineMemoryDumpRequest{ClaimName: a.ClaimName, Phase: v1.MemoryDumpAssociating}, nil
}

// free refuses a request while another one is not at its end.
func (a *Asked) free() error {
	has := a.VM.Status.MemoryDumpRequest
	switch {
	case has == nil:
		return nil
	case has.Phase != v1.MemoryDumpCompleted && has.Phase != v1.MemoryDumpFailed:
		return refuse("a memory dump of the VM %s to the PVC [%s] is %s: wait until it is Completed or Failed", a.VM.Name, has.ClaimName, has.Phase)
	case has.ClaimName != a.ClaimName:
		return refuse("the VM %s has a memory dump in the PVC [%s]: remove that first (virtctl memory-dump remove), or name that claim", a.VM.Name, has.ClaimName)
	}
	return nil
}

func (a *Asked) dumpable() error {
	switch vmi := a.VMI; {
	case vmi == nil, !vmi.IsRunning(), vmi.DeletionTimestamp != nil:
		return refuse("VM is not running")
	case migration.InFlight(vmi):
		return refuse("the VM is migrating: its memory can be dumped when it has arrived")
	case vmi.Spec.Domain.Devices.DisableHotplug:
		return refuse("spec.domain.devices.disableHotplug is set: this machine gets no claim while it runs")
	case VolumeOf(vmi, a.ClaimName) != nil || StatusOf(vmi, a.ClaimName) != nil:
		return refuse("the PVC [%s] is still being released by the guest: try again", a.ClaimName)
	}
	return a.named()
}

// named refuses a claim whose name the volume can't have, or that is a disk of the guest.
func (a *Asked) named() error {
	if len(validation.IsDNS1123Label(a.ClaimName)) > 0 {
		return refuse("the name of the PVC [%s] can't be a volume's: use a claim with a name of at most %d lower-case letters, digits and hyphens", a.ClaimName, longestClaim)
	}
	return conflict(a.VMI, a.ClaimName)
}

func conflict(vmi *v1.VirtualMachineInstance, claim string) error {
	for i := range vmi.Spec.Volumes {
		v := &vmi.Spec.Volumes[i]
		if v.Name == claim || volumeclaim.Name(&v.VolumeSource) == claim {
			return refuse("the volume [%s] of the VM has the name or the content of the PVC [%s]: use another claim for the memory dump", v.Name, claim)
		}
	}
	for i := range vmi.Status.VolumeStatus {
		if s := &vmi.Status.VolumeStatus[i]; s.Name == claim && s.MemoryDumpVolume == nil {
			return refuse("the volume [%s] is being removed from the VM: try again when it is gone", claim)
		}
	}
	return nil
}

func (a *Asked) fits() error {
	c := a.Claim
	switch {
	case c == nil:
		return refuse("the PVC [%s] does not exist in the namespace %s: create it (virtctl: --create-claim)", a.ClaimName, a.VM.Namespace)
	case c.DeletionTimestamp != nil:
		return refuse("the PVC [%s] is being deleted", c.Name)
	case c.Status.Phase == corev1.ClaimLost:
		return refuse("the PVC [%s] has lost its persistent volume", c.Name)
	case c.Spec.VolumeMode != nil && *c.Spec.VolumeMode != corev1.PersistentVolumeFilesystem:
		return refuse("the PVC [%s] has the volume mode %s: a memory dump is a file, and needs a claim of mode Filesystem", c.Name, *c.Spec.VolumeMode)
	case onlyRead(c):
		return refuse("the PVC [%s] can only be read: a memory dump needs a claim with an access mode for writing", c.Name)
	}
	size := c.Spec.Resources.Requests[corev1.ResourceStorage]
	if has, bound := c.Status.Capacity[corev1.ResourceStorage]; bound {
		size = has
	}
	if need := dumpspace.Of(a.VMI); size.Value() < need {
		return refuse("the PVC [%s] has %s, and a dump of the VM's memory needs %s: use a larger claim", c.Name, amount(size.Value()), amount(need))
	}
	return nil
}

func onlyRead(c *corev1.PersistentVolumeClaim) bool {
	for _, mode := range c.Spec.AccessModes {
		if mode != corev1.ReadOnlyMany {
			return false
		}
	}
	return true
}

func amount(bytes int64) string { return resource.NewQuantity(bytes, resource.BinarySI).String() }

// AskRemoval returns the VM's request to forget its claim.
func AskRemoval(vm *v1.VirtualMachine) (*v1.VirtualMachineMemoryDumpRequest, error) {
	has := vm.Status.MemoryDumpRequest
	if has == nil {
		return nil, refuse("the VM %s has no memory dump to remove", vm.Name)
	}
	next := has.DeepCopy()
	next.Remove, next.Phase = true, v1.MemoryDumpDissociating
	return next, nil
}
